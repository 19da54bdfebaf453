#!/bin/sh
# The same statements in kvasir and in Debian's sqlite3, one after the other, and the ratio of the median wall times.
#
#   sh tests/bench/sql.sh [REVIEWS.tsv.gz]      default: ../shared/data/rt.reviews.tsv.gz, else the tutorials' reviews, repeated
#
# Both keep their database on disk with their standard durability, and run each script as one process, start included.
set -eu
cd "$(dirname "$0")/../.."
kvasir=$PWD/build/release/kvasir
reviews=${1:-../shared/data/rt.reviews.tsv.gz}
runs=${RUNS:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v sqlite3 >/dev/null || { echo "sql.sh: sqlite3 is not installed: skipped"; exit 0; }
if [ -r "$reviews" ]; then
    zcat -f "$reviews" >"$work/reviews.tsv"
else
    echo "sql.sh: $reviews is absent: made from the tutorials' reviews"
    printf 'id\treview\trating\tfresh\tcritic\ttop_critic\tpublisher\tdate\n' >"$work/reviews.tsv"
    awk -F, -v OFS='\t' 'NR > 1 { for (i = 0; i < 226; i++) print $2, $5, $4 "/5", ($4 > 3 ? "fresh" : "rotten"), $3, i % 2, "p" i, "2018" }' \
        tutorials/data/reviews.csv | sed 's/"//g' >>"$work/reviews.tsv"
fi

now() { date +%s%N; }

# milliseconds of the median of $runs runs of a command; each run starts with `prepare`
median_ms() {
    i=0
    while [ "$i" -lt "$runs" ]; do
        prepare
        t0=$(now)
        "$@" >"$work/out" 2>"$work/err" || { echo "failed: $*" >&2; cat "$work/err" >&2; exit 1; }
        t1=$(now)
        echo $(((t1 - t0) / 10000))
        i=$((i + 1))
    done | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] / 100 }'
}

compare() { # name, kvasir script, sqlite script
    k=$(median_ms "$kvasir" "$work/k.kvasir" --csv -f "$2")
    s=$(median_ms sqlite3 -batch -csv -init /dev/null "$work/s.db" ".read $3")
    awk -v n="$1" -v k="$k" -v s="$s" 'BEGIN { printf "%-44s %10.1f ms %10.1f ms %8.2f\n", n, k, s, k / s }'
}

columns="id INTEGER, review TEXT, rating TEXT, fresh TEXT, critic TEXT, top_critic INTEGER, publisher TEXT, date TEXT"
repeat() { i=0; while [ "$i" -lt "$2" ]; do cat "$1"; i=$((i + 1)); done; }

cat >"$work/import.k" <<EOF
CREATE TABLE reviews (n INTEGER PRIMARY KEY, $columns);
CREATE TABLE raw ($columns);
COPY raw FROM '$work/reviews.tsv';
EOF
cat >"$work/import.s" <<EOF
CREATE TABLE reviews (n INTEGER PRIMARY KEY, $columns);
CREATE TABLE raw ($columns);
.mode csv
.separator "\t"
.import --skip 1 $work/reviews.tsv raw
EOF

prepare() { rm -rf "$work/k.kvasir" "$work/s.db"; }
printf '%-44s %13s %13s %8s\n' "median of $runs" kvasir sqlite3 ratio
compare "import of the reviews" "$work/import.k" "$work/import.s"

cat >"$work/fill.sql" <<'EOF'
INSERT INTO reviews (id, review, rating, fresh, critic, top_critic, publisher, date) SELECT id, review, rating, fresh, critic, top_critic, publisher, date FROM raw;
CREATE TABLE movies (id INTEGER PRIMARY KEY, title TEXT);
INSERT INTO movies SELECT DISTINCT id, 'movie ' || id FROM raw;
EOF
prepare
"$kvasir" "$work/k.kvasir" -f "$work/import.k" >/dev/null
sqlite3 -batch "$work/s.db" ".read $work/import.s"
"$kvasir" "$work/k.kvasir" -f "$work/fill.sql" >/dev/null
sqlite3 -batch "$work/s.db" ".read $work/fill.sql"
prepare() { :; }

one() { # name, sql: ten times in one process
    printf '%s\n' "$2" >"$work/one.sql"
    repeat "$work/one.sql" 10 >"$work/ten.sql"
    compare "$1" "$work/ten.sql" "$work/ten.sql"
}

one "scan, filter, aggregate (10x)" "SELECT count(*), avg(length(review)), min(rating) FROM reviews WHERE top_critic = 1 AND fresh = 'fresh';"
one "scan with LIKE (10x)" "SELECT count(*) FROM reviews WHERE review LIKE '%great%';"
one "GROUP BY (10x)" "SELECT publisher, count(*), sum(top_critic) FROM reviews GROUP BY publisher ORDER BY 2 DESC, 1 LIMIT 5;"
one "join and GROUP BY (10x)" "SELECT m.title, count(*) FROM reviews r JOIN movies m ON m.id = r.id GROUP BY m.title ORDER BY 2 DESC, 1 LIMIT 5;"
one "ORDER BY … LIMIT (10x)" "SELECT n, critic FROM reviews ORDER BY critic, n LIMIT 10;"

one "rank() and a running sum by critic (10x)" "SELECT max(r), sum(s) FROM (SELECT rank() OVER w AS r, sum(top_critic) OVER w AS s FROM reviews WINDOW w AS (PARTITION BY critic ORDER BY date)) AS q;"
one "sum over 101 rows (10x)" "SELECT sum(s) FROM (SELECT sum(top_critic) OVER (ORDER BY n ROWS BETWEEN 50 PRECEDING AND 50 FOLLOWING) AS s FROM reviews) AS q;"

# Few rows to a table of a million, by its key and by an index.
cat >"$work/million.sql" <<'EOF'
CREATE TABLE digit (x INTEGER);
INSERT INTO digit VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
CREATE TABLE million (id INTEGER PRIMARY KEY, a INTEGER, b TEXT);
INSERT INTO million SELECT i, i * 7919 % 100003, 'row ' || i FROM (SELECT p.x * 100000 + q.x * 10000 + r.x * 1000 + s.x * 100 + t.x * 10 + u.x AS i
    FROM digit p, digit q, digit r, digit s, digit t, digit u);
CREATE INDEX million_a ON million (a);
CREATE TABLE few (n INTEGER, a INTEGER);
INSERT INTO few SELECT p.x * 10 + q.x, (p.x * 10 + q.x) * 997 FROM digit p, digit q;
ANALYZE;
EOF
"$kvasir" "$work/k.kvasir" -f "$work/million.sql" >/dev/null
sqlite3 -batch "$work/s.db" ".read $work/million.sql"
one "100 rows joined to 1,000,000 by key (10x)" "SELECT count(*), sum(length(m.b)) FROM few f JOIN million m ON m.id = f.a;"
one "and by an index, ten rows each (10x)" "SELECT count(*), sum(length(m.b)) FROM million m JOIN few f ON m.a = f.a;"
one "IN of 8 values on that index (10x)" "SELECT count(*), sum(length(b)) FROM million WHERE a IN (7, 99, 1234, 5, 77777, 31, 4, 65536);"

awk 'BEGIN { srand(7); for (i = 0; i < 10000; i++) printf "SELECT critic FROM reviews WHERE n = %d;\n", 1 + int(rand() * 54000) }' >"$work/points.sql"
compare "10,000 look-ups by key" "$work/points.sql" "$work/points.sql"

{
    echo "DROP TABLE IF EXISTS single; CREATE TABLE single (a INTEGER PRIMARY KEY, b TEXT);"
    echo "BEGIN;"
    awk 'BEGIN { for (i = 0; i < 10000; i++) printf "INSERT INTO single VALUES (%d, '"'"'row number %d'"'"');\n", i, i }'
    echo "COMMIT;"
} >"$work/single.sql"
compare "10,000 single-row INSERTs, one transaction" "$work/single.sql" "$work/single.sql"
