SELECT LLM('Read', review, output_schema => 'a STRING') FROM reviews
