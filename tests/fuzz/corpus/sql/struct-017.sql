SELECT struct.struct AS struct FROM (SELECT id AS struct FROM reviews) struct
