SELECT * FROM LLM('Name a river') RETURNS STRUCT(river TEXT) AS x
