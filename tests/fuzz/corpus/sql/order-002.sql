SELECT group_concat(title ORDER BY LLM('Is {title} good?', title) = 'yes' DESC, year), sum(year ORDER BY (SELECT max(id) FROM reviews)) FROM movies
