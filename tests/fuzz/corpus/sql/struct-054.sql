SELECT LLM_PROB(x.review) FROM reviews AS x
