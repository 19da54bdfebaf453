COPY reviews (id, review) FROM 'in.csv' (DELIMITER '|', HEADER, NULL '')
