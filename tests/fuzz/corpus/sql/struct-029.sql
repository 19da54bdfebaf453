SELECT * FROM reviews, LLM('Read', review) AS x
