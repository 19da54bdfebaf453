SELECT LLM('Read', review) RETURNS JSON FROM reviews
