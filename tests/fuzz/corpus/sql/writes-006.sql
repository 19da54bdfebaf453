INSERT INTO movies SELECT n, 'm' || n, 1990 + n FROM generate_series(1, 9) AS g(n) ON CONFLICT DO NOTHING RETURNING rowid
