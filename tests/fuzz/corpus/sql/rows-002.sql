SELECT title FROM movies AS m WHERE (id, 'yes') IN (SELECT r.movie, LLM('Is {review} good?', review) FROM reviews AS r) AND (LLM('Is {title} long?', title), id) = ('yes', 1)
