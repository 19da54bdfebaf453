-- Ten queries about films and their reviews, after the Movie scenario of SemBench (arXiv 2511.01716); semantic.sh runs them.
-- Before each query: its name, and after the bar a query that counts the distinct inputs that it could ask about.

-- 1 five positive reviews | SELECT count(DISTINCT review) FROM reviews
SELECT id FROM reviews WHERE LLM('Is {review} positive?', review) = 'yes' LIMIT 5;

-- 2 five positive of one film | SELECT count(DISTINCT review) FROM chosen
SELECT id FROM chosen WHERE LLM('Is {review} positive?', review) = 'yes' LIMIT 5;

-- 3 positive reviews of one film | SELECT count(DISTINCT review) FROM chosen
SELECT count(*) FROM chosen WHERE LLM('Is {review} positive?', review) = 'yes';

-- 4 share of positive ones | SELECT count(DISTINCT review) FROM chosen
SELECT avg(CASE WHEN LLM('Is {review} positive?', review) = 'yes' THEN 1.0 ELSE 0.0 END) FROM chosen;

-- 5 ten pairs of equal feeling | SELECT count(*) FROM (SELECT DISTINCT a.review, b.review FROM chosen a JOIN chosen b ON a.id < b.id)
SELECT a.id, b.id FROM chosen a JOIN chosen b ON a.id < b.id
WHERE LLM('Do both reviews express the same feeling?', a.review AS one, b.review AS other) = 'yes' LIMIT 10;

-- 6 ten pairs of opposite feeling | SELECT count(*) FROM (SELECT DISTINCT a.review, b.review FROM chosen a JOIN chosen b ON a.id < b.id)
SELECT a.id, b.id FROM chosen a JOIN chosen b ON a.id < b.id
WHERE LLM('Do the reviews express opposite feelings?', a.review AS one, b.review AS other) = 'yes' LIMIT 10;

-- 7 all pairs of opposite feeling | SELECT count(*) FROM (SELECT DISTINCT a.review, b.review FROM chosen a JOIN chosen b ON a.id < b.id)
SELECT count(*) FROM chosen a JOIN chosen b ON a.id < b.id
WHERE LLM('Do the reviews express opposite feelings?', a.review AS one, b.review AS other) = 'yes';

-- 8 reviews by feeling | SELECT count(DISTINCT review) FROM chosen
SELECT LLM('Is the review positive or negative?', review) RETURNS ENUM('positive', 'negative') AS feeling, count(*)
FROM chosen GROUP BY feeling;

-- 9 scores of one film | SELECT count(DISTINCT review) FROM chosen
SELECT id, LLM('How much did the writer like the film?', review) RETURNS INTEGER BETWEEN 1 AND 5 AS score
FROM chosen ORDER BY score DESC;

-- 10 films by mean score | SELECT count(*) FROM (SELECT DISTINCT film, review FROM reviews)
SELECT f.title, avg(LLM('How much did the writer like the film?', r.review) RETURNS INTEGER BETWEEN 1 AND 5) AS score
FROM reviews r JOIN films f ON f.id = r.film GROUP BY f.id, f.title ORDER BY score DESC LIMIT 10;
