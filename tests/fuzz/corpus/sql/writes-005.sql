INSERT INTO movies (id, title) VALUES (1, 'a'), (2, DEFAULT) ON CONFLICT (id) DO UPDATE SET title = excluded.title || '!' WHERE movies.year > 2000 RETURNING id, title
