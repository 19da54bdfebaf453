#!/bin/sh
# Calls that read each other's answers, stacked in one statement, beside the same calls with the answers already in a table,
# so that all prompts are known at once and no stage waits for another: what no order of the graph can beat.
#
#   sh tests/bench/bench_graph.sh [WHAT...]      WHAT: some of W1 W2 W3 W4; default: all
#
# KVASIR: the program (default: of build/release). OTHER: another build, whose stacked runs are measured too. RUNS: alternating
# runs (default 5); figures are medians. The measure is CPU time, user and system, of the process, since the machine may be
# shared; passes depend on how fast it is. REVIEWS: W3's file of reviews (default: ../shared/data/rt.reviews.tsv.gz, else the
# tutorials' reviews).
set -eu
cd "$(dirname "$0")/../.."
kvasir=${KVASIR:-$PWD/build/release/kvasir}
reviews=${REVIEWS:-../shared/data/rt.reviews.tsv.gz}
runs=${RUNS:-5}
[ $# -gt 0 ] || set -- W1 W2 W3 W4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -r "$reviews" ]; then
    zcat -f "$reviews" >"$work/long.tsv"
    long="SELECT review FROM '$work/long.tsv' WHERE length(review) > 20 LIMIT 226"
else
    long="SELECT review FROM reviews LIMIT 226"
fi
"$kvasir" "$work/g.kvasir" -c ".import tutorials/data/movies.csv movies" -c ".import tutorials/data/reviews.csv reviews" \
    -c "CREATE TABLE long AS $long" >"$work/out"

# The calls of each workload; the last one comes first in the stacked form.
W1_1="LLM('Summarise {review} in a few words', review, max_tokens => 16)"
W1_2="LLM('Is {s} positive or negative?', s) RETURNS ENUM('positive', 'negative')"
W1_3="LLM('Explain in a few words why {s} is {mood}', s, mood, max_tokens => 16)"
W2_1="LLM('Name the main topic of {review} in two words', review, max_tokens => 8)"
W2_2="LLM('Is {topic} about people?', topic) RETURNS ENUM('yes', 'no')"
W2_3="LLM('Say more about {topic}, given {review}', review, topic, max_tokens => 24)"
W3_1="LLM('Is the review positive or negative?', review) RETURNS ENUM('positive', 'negative')"
W3_2="LLM('How strong is the feeling in {review} (it is {mood})?', review, mood) RETURNS INTEGER BETWEEN 1 AND 5"
W4_1="LLM('Summarise {synopsis} in one sentence', synopsis, max_tokens => 32)"
W4_2="LLM('Which genre is {s}?', s) RETURNS ENUM('drama', 'comedy', 'war', 'horror')"
W4_3="LLM('Write a tagline for {s}', s, g, max_tokens => 32)"

stacked() {
    case $1 in
    W1) echo "SELECT count($W1_3) FROM (SELECT s, $W1_2 AS mood FROM (SELECT $W1_1 AS s FROM reviews))" ;;
    W2) echo "SELECT count(x) FROM (SELECT $W2_3 AS x FROM (SELECT review, $W2_1 AS topic FROM reviews) WHERE $W2_2 = 'yes')" ;;
    W3) echo "SELECT count(*) FROM (SELECT $W3_2 AS k FROM (SELECT review, $W3_1 AS mood FROM long)) WHERE k > 0" ;;
    W4) echo "SELECT count($W4_3) FROM (SELECT s, $W4_2 AS g FROM (SELECT $W4_1 AS s FROM movies))" ;;
    *) echo "bench_graph.sh: no workload '$1'" >&2; exit 2 ;;
    esac
}

answers() { # the answers of the inner calls
    case $1 in
    W1) echo "SELECT review, s, $W1_2 AS mood FROM (SELECT review, $W1_1 AS s FROM reviews)" ;;
    W2) echo "SELECT review, topic, $W2_2 AS people FROM (SELECT review, $W2_1 AS topic FROM reviews)" ;;
    W3) echo "SELECT review, $W3_1 AS mood FROM long" ;;
    W4) echo "SELECT synopsis, s, $W4_2 AS g FROM (SELECT synopsis, $W4_1 AS s FROM movies)" ;;
    esac
}

flat() {
    case $1 in
    W1) echo "SELECT count($W1_1), count($W1_2), count($W1_3) FROM W1" ;;
    W2) echo "SELECT count($W2_1), count($W2_2), count(CASE WHEN people = 'yes' THEN $W2_3 END) FROM W2" ;;
    W3) echo "SELECT count($W3_1), count($W3_2) FROM W3" ;;
    W4) echo "SELECT count($W4_1), count($W4_2), count($W4_3) FROM W4" ;;
    esac
}

# Runs a statement; prints CPU seconds, requests, computed tokens, output tokens, passes.
measure() { # program, statement
    (
        "$1" "$work/g.kvasir" -c "SET cache = off" -c "SET llm_calibrate = 'off'" -c "SET field_order = 'fresh'" -c "$2" \
            -c .stats >"$work/stats" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
        times
    ) | awk 'NR == 2 { split($1 "m" $2, t, "[ms]"); print 60 * t[1] + t[2] + 60 * t[4] + t[5] }' >"$work/cpu"
    awk -v cpu="$(cat "$work/cpu")" '{ gsub(",", "") } $1 == "prompts" { r = $2 } $1 == "computed" { c = $2 }
        / output tokens/ { o = $3 } / model passes/ { p = $3 } END { print cpu, r, c, o, p }' "$work/stats"
}

median() { # file, column
    sort -n -k "$2,$2" "$1" | awk -v k="$2" '{ v[NR] = $k } END { print v[int((NR + 1) / 2)] }'
}

row() { # what, form
    printf '%-4s %-8s %9s %10s %8s %8s %8s\n' "$1" "$2" "$(median "$work/$2" 2)" "$(median "$work/$2" 3)" \
        "$(median "$work/$2" 4)" "$(median "$work/$2" 5)" "$(median "$work/$2" 1)"
}

printf '%-4s %-8s %9s %10s %8s %8s %8s\n' '' form requests computed output passes 'CPU s'
for what in "$@"; do
    : >"$work/stacked"; : >"$work/flat"; : >"$work/other"
    "$kvasir" "$work/g.kvasir" -c "SET cache = off" -c "SET llm_calibrate = 'off'" -c "SET field_order = 'fresh'" \
        -c "CREATE TABLE $what AS $(answers "$what")" >"$work/out"
    i=0
    while [ "$i" -lt "$runs" ]; do
        measure "$kvasir" "$(stacked "$what")" >>"$work/stacked"
        measure "$kvasir" "$(flat "$what")" >>"$work/flat"
        [ -z "${OTHER:-}" ] || measure "$OTHER" "$(stacked "$what")" >>"$work/other"
        i=$((i + 1))
    done
    row "$what" stacked
    row "$what" flat
    [ -z "${OTHER:-}" ] || row "$what" other
    awk -v s="$(median "$work/stacked" 1)" -v f="$(median "$work/flat" 1)" 'BEGIN { printf "%-4s stacked / flat %.3f\n", "", s / f }'
done
