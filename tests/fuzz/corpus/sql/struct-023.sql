SELECT coalesce(LLM('Read', review) RETURNS STRUCT(a BOOLEAN), true) FROM reviews
