DELETE FROM reviews WHERE stars < (SELECT avg(stars) FROM reviews) RETURNING *
