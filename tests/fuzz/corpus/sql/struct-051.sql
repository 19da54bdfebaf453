SELECT LLM('Read', review, stop => 'x') RETURNS STRUCT(a BOOLEAN) FROM reviews
