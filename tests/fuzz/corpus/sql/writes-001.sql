SELECT g.n, r.review FROM generate_series(1, 10, 3) AS g(n) LEFT JOIN reviews r ON r.id = g.n
