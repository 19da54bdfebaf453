SELECT LLM('Read', (SELECT max(title) FROM movies) AS t) RETURNS STRUCT(a TEXT, b TEXT)
