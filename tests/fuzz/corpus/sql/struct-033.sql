SELECT * FROM reviews, LLM('Read', review) RETURNS STRUCT(a TEXT) AS x(a, b)
