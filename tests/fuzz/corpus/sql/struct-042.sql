SELECT LLM('Read', review) RETURNS STRUCT FROM reviews
