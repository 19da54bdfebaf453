UPDATE few_shot SET answer = LLM('Read', review) RETURNS STRUCT(a TEXT)
