SELECT * FROM reviews LEFT JOIN LLM('Read', review) RETURNS STRUCT(a TEXT) AS x ON true
