SELECT warm, avg(LLM_PROB(warm, 'true')), avg(LLM_MEAN(x.rate)) FROM reviews, LLM('Read', review) RETURNS STRUCT(warm BOOLEAN, rate INTEGER BETWEEN 1 AND 3) AS x GROUP BY warm HAVING max(x.rate) > 2
