WITH RECURSIVE a AS (SELECT id FROM movies UNION SELECT r.movie_id FROM reviews r JOIN a ON a.id = r.id), b AS (SELECT count(*) AS n FROM a) INSERT INTO movies (id) SELECT n FROM b RETURNING id
