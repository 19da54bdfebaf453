SELECT * FROM LLM('Read', review) RETURNS STRUCT(a TEXT) AS x, reviews
