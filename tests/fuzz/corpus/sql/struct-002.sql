SELECT x.mood, mood, x.rate + 1, r.* FROM reviews r, LLM('Read', r.review) RETURNS STRUCT(mood ENUM('warm', 'cold'), rate INTEGER) AS x WHERE x.rate > 3 AND mood = 'warm'
