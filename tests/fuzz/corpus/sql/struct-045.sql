SELECT LLM('Read', review) RETURNS STRUCT(a JSON) FROM reviews
