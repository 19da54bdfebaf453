SELECT movie, string_agg(DISTINCT review, ', ' ORDER BY review DESC NULLS LAST) FILTER (WHERE stars > 2) FROM reviews GROUP BY movie HAVING group_concat(id ORDER BY stars, id) <> '1'
