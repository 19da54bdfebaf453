SELECT LLM('Read', review) RETURNS STRUCT(a TEXT, review TEXT) FROM reviews
