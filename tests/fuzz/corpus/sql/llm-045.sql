SELECT LLM('Is {t} kind?', t) RETURNS ENUM('a', 'b') AS x, LLM('Why?', u, after => x) AS y, LLM('Read', t) RETURNS STRUCT(a TEXT, b BOOLEAN 'c') IN ORDER FROM t
