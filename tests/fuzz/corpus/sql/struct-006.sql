SELECT x.a, y.b FROM reviews, LLM('Read', review) RETURNS STRUCT(a BOOLEAN) AS x, LLM('Read', review) RETURNS STRUCT(b TEXT, a BOOLEAN) AS y
