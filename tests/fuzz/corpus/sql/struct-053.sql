SELECT LLM('Read', review, examples => few_shot) RETURNS STRUCT(answer TEXT, b TEXT) FROM reviews
