UPDATE movies SET (title, year) = (upper(title), year + 1), (studio) = NULL WHERE (id, year) IS NOT DISTINCT FROM (1, NULL) OR (id, year) BETWEEN (1, 2) AND (3, 4)
