SELECT LLM('Read', review) RETURNS STRUCT<a TEXT> FROM reviews
