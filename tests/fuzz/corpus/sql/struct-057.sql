SELECT LLM_MEAN(x.a) FROM reviews, LLM('Read', review) RETURNS STRUCT(a TEXT) AS x
