EXPLAIN (FORMAT JSON) SELECT title, LLM('Good?', title) RETURNS BOOLEAN AS ok FROM movies QUALIFY lag(year, 1, 0) OVER (ORDER BY id) < year
