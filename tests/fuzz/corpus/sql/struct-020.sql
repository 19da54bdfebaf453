SELECT LLM('Read', review) RETURNS STRUCT(a BOOLEAN) FROM reviews UNION SELECT fresh FROM reviews
