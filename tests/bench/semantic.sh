#!/bin/sh
# Ten queries about films and reviews (semantic.sql): what each asks and computes. Fails if a query asks about an input twice.
#
#   sh tests/bench/semantic.sh [--data DIR] [--model NAME] [KVASIR]
#
# --data: folder with rt.reviews.tsv.gz, of which the first 2,000 reviews and the most reviewed film's are taken (default: the
# tutorials' films). --model: a model's name or file (default: test:hash, which answers without a model, by a hash).
set -eu
cd "$(dirname "$0")/../.."
data= model=test:hash kvasir=build/release/kvasir
while [ $# -gt 0 ]; do
    case $1 in
    --data) data=$2; shift 2 ;;
    --model) model=$2; shift 2 ;;
    *) kvasir=$1; shift ;;
    esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
db=$work/films.kvasir

if [ -n "$data" ]; then
    [ -r "$data/rt.reviews.tsv.gz" ] || { echo "semantic.sh: $data has no rt.reviews.tsv.gz: skipped"; exit 0; }
    "$kvasir" "$db" -c ".import $data/rt.reviews.tsv.gz raw" -c "CREATE TABLE reviews AS
        WITH numbered AS (SELECT row_number() OVER () AS id, id AS film, review FROM raw WHERE review <> '')
        SELECT * FROM numbered WHERE id <= 2000
            OR film = (SELECT film FROM numbered GROUP BY film ORDER BY count(*) DESC, film LIMIT 1)" \
        -c "CREATE VIEW films AS SELECT DISTINCT film AS id, film AS title FROM reviews" >/dev/null
else
    "$kvasir" "$db" -c ".import tutorials/data/movies.csv films" -c ".import tutorials/data/reviews.csv raw" \
        -c "CREATE VIEW reviews AS SELECT id, movie AS film, review FROM raw" >/dev/null
fi
"$kvasir" "$db" -c "CREATE VIEW chosen AS SELECT * FROM reviews
    WHERE film = (SELECT film FROM reviews GROUP BY film ORDER BY count(*) DESC, film LIMIT 1)" >/dev/null

value() { awk -v name="$1" '{ line = $0; sub(/^ +/, "", line) } index(line, name "  ") == 1 { gsub(",", "", $NF); print $NF }' "$work/out"; }

printf '%-34s %8s %9s %12s %10s %9s\n' query inputs requests 'tokens sent' computed seconds
grep -o '^-- [0-9][0-9]*' tests/bench/semantic.sql | while read -r _ n; do
    sed -n "/^-- $n /,/;\$/p" tests/bench/semantic.sql >"$work/query.sql"
    head -1 "$work/query.sql" | sed 's/.*| //' >"$work/count.sql"
    name=$(head -1 "$work/query.sql" | sed 's/^-- //; s/ |.*//')
    inputs=$("$kvasir" "$db" --csv -f "$work/count.sql" | tail -1)
    "$kvasir" "$db" --model "$model" -c "SET cache = off" -c "SET llm_calibrate = 'off'" \
        -f "$work/query.sql" -c .stats >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
    printf '%-34s %8s %9s %12s %10s %9s\n' "$name" "$inputs" "$(value prompts)" "$(value 'prompt tokens')" "$(value computed)" \
        "$(awk '$1 == "time" { print $2 }' "$work/out")"
    [ "$(value prompts)" -le "$inputs" ] || { echo "query $n asks about an input twice"; exit 1; }
done
