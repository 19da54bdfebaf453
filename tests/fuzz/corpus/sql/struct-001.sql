SELECT id, LLM('Read {review}', review) RETURNS STRUCT(mood ENUM('warm', 'cold'), rate INTEGER BETWEEN 1 AND 5 'of five', why TEXT) FROM reviews
