SELECT LLM('Read', review) RETURNS STRUCT(a, b TEXT) FROM reviews
