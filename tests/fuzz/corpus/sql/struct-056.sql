SELECT LLM_PROB(x.a, 'maybe') FROM reviews, LLM('Read', review) RETURNS STRUCT(a BOOLEAN) AS x
