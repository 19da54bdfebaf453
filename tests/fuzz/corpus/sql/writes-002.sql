SELECT count(*) FROM generate_series(10, -10, -1) WHERE generate_series % 2 = 0
