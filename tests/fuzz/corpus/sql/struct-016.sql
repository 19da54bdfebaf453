SELECT LLM('Read', id, examples => few_shot, max_tokens => 9, stop => 'x', temperature => 1, calibrate => 'off') RETURNS STRUCT(review TEXT, answer BOOLEAN) FROM reviews
