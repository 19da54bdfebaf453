SELECT LLM('Read', review) RETURNS TABLE(a TEXT) FROM reviews
