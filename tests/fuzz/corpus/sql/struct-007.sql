SELECT y.b FROM reviews, LLM('Read', review) RETURNS STRUCT(a TEXT) AS x, LLM('Read on', x.a) RETURNS STRUCT(b TEXT) AS y
