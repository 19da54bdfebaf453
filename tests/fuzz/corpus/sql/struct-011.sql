SELECT warm, count(*), avg(LLM_PROB(warm)) FROM reviews, LLM('Read', review) RETURNS STRUCT(warm BOOLEAN) AS x GROUP BY warm
