SELECT title FROM movies WHERE (year, id) > (1990, 3) AND (title, id) NOT IN (('a', 1), ('b', 2)) ORDER BY year, id
