SELECT (random(), 1) <= (movie, id), (random(), movie) IN ((1, 2), (3, NULL)) FROM reviews GROUP BY (movie, id) = (1, 2)
