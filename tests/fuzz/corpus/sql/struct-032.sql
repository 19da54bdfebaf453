SELECT * FROM reviews AS x, LLM('Read', review) RETURNS STRUCT(a TEXT) AS x
