SELECT * FROM reviews JOIN LLM('Read', review) RETURNS STRUCT(title TEXT) AS x USING (title)
