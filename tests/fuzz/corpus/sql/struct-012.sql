SELECT LLM('Read', review) RETURNS STRUCT(warm BOOLEAN, rate INTEGER BETWEEN 1 AND 3), LLM_PROB(warm), LLM_MEAN(rate) FROM reviews ORDER BY rate, LLM_PROB(warm, true)
