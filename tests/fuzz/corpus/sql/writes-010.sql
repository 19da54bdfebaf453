COPY (SELECT * FROM reviews WHERE stars > 2) TO 'out.tsv.gz' WITH (HEADER false, DELIMITER ';', NULL 'none')
