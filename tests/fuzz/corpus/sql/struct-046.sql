SELECT LLM('Read', review) RETURNS STRUCT("" TEXT) FROM reviews
