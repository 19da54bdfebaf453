SELECT * FROM reviews, LLM('Read', review) RETURNS BOOLEAN AS x
