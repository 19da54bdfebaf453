WITH late AS NOT MATERIALIZED (SELECT * FROM movies WHERE year > 1990), l AS MATERIALIZED (SELECT id FROM late) SELECT a.id FROM late AS a JOIN late AS b ON a.id < b.id JOIN l ON l.id = a.id
