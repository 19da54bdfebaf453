SELECT LLM('Read', review, LLM('Sum up', review) AS s) RETURNS STRUCT(a BOOLEAN, b TEXT) FROM reviews
