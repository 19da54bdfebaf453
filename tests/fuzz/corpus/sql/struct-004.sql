SELECT * FROM few_shot JOIN LLM('Read', review) RETURNS STRUCT(warm BOOLEAN, rate REAL) AS x(a, b) ON a AND b > id
