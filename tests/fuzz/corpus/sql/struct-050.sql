SELECT LLM('Read', random() AS x) RETURNS STRUCT(a TEXT) FROM reviews
