INSERT INTO few_shot SELECT id, LLM('Read', review) RETURNS STRUCT(a TEXT, b ENUM('x', 'y')) FROM reviews
