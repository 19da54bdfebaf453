UPDATE reviews AS r SET stars = r.stars + m.year, review = NULL FROM movies m JOIN movies o ON o.id = m.id WHERE m.id = r.movie_id RETURNING r.id, r.stars AS now, upper(r.review)
