SELECT LLM('Read', review) RETURNS STRUCT(warm BOOLEAN), count(*) FROM reviews GROUP BY warm
