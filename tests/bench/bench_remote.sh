#!/bin/sh
# Rows asked of n engines over HTTP: kvasir with all of them as endpoints, beside one endpoint that gives requests to the same
# number of engines in turn. The engines are fake_llm's: a prefix cache of blocks of 16 tokens, passes, so many tokens a second.
#
#   sh tests/bench/bench_remote.sh [--engines N] [--rows N] [--share at-once|after-first] [--rate TOKENS]
#
# --share: whether a prefix can be used by other prompts of the pass that computes it (at-once, as vLLM), or only when its first
# prompt is done (after-first, the default). --rate: tokens a second of an engine (35000); 0: no time, for the speed of kvasir
# itself. Rows: reviews joined with the synopses of their films, of ../shared/data (DATA), else the tutorials'.
#
# computed: prompt tokens that the engines did not have, by their own count; ratio: to the first line's. CPU: of kvasir, user and
# system. PSM off: fields and rows as they come.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-$PWD/build/release}
data=${DATA:-../shared/data}
engines=8 rows=12000 share=after-first rate=35000
while [ $# -gt 1 ]; do
    case $1 in
    --engines) engines=$2 ;;
    --rows) rows=$2 ;;
    --share) share=$2 ;;
    --rate) rate=$2 ;;
    *) echo "bench_remote.sh: no option $1" >&2; exit 2 ;;
    esac
    shift 2
done
work=$(mktemp -d)
[ -x "$build/fake_llm" ] || { echo "bench_remote.sh: built without libcurl: skipped"; exit 0; }
stop() { for p in "$work"/port*; do [ ! -f "$p" ] || "$build/fake_llm" --get "$p" /quit; rm -f "$p"; done; }
trap 'stop; rm -rf "$work"' EXIT

if [ -r "$data/rt.reviews.tsv.gz" ]; then
    from="(SELECT r.review, m.synopsis FROM '$data/rt.reviews.tsv.gz' r JOIN '$data/rt.movie_info.tsv.gz' m ON r.id = m.id
        WHERE r.review IS NOT NULL AND m.synopsis IS NOT NULL)"
else
    from="(SELECT r.review, m.synopsis FROM 'tutorials/data/reviews.csv' r JOIN 'tutorials/data/movies.csv' m ON r.movie = m.id)"
fi
# films mixed: by some letters of the reviews
"$build/kvasir" "$work/db" -c "CREATE TABLE asked AS SELECT review, synopsis FROM $from ORDER BY substr(review, 7, 9), review LIMIT $rows" >"$work/out"

# Asks about all rows; prints the figures of kvasir and of the servers.
measure() { # name, psm, urls, window
    printf "SET cache = off; SET llm_calibrate = 'off'; SET psm = '%s';\n" "$2" >"$work/ask.sql"
    printf "CREATE OR REPLACE MODEL m FROM (%s) WITH (window %d);\n" "$3" "$4" >>"$work/ask.sql"
    echo "SELECT count(*) FROM asked WHERE LLM('Is the review positive?', review, synopsis, model => m) = 'yes';" >>"$work/ask.sql"
    echo .stats >>"$work/ask.sql"
    ( "$build/kvasir" "$work/db" -f "$work/ask.sql" >"$work/stats" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }; times ) |
        awk 'NR == 2 { split($1 "m" $2, t, "[ms]"); print 60 * t[1] + t[2] + 60 * t[4] + t[5] }' >"$work/cpu"
    for p in "$work"/port*; do "$build/fake_llm" --get "$p" /stats; done |
        awk '{ r += $2; p += $8; c += $10 } END { print r, p, p - c }' >"$work/served"
    read -r requests prompt computed <"$work/served"
    [ -n "${first:-}" ] || first=$computed
    awk -v n="$1" -v r="$requests" -v p="$prompt" -v c="$computed" -v f="$first" -v cpu="$(cat "$work/cpu")" '
        $1 == "time" { s = $2 * ($3 == "min" ? 60 : 1) }
        END { printf "%-44s %9d %10d %10d %6.3f %8.1f %9.0f %8.0f\n", n, r, p, c, c / f, s, r / s, 1e6 * cpu / r }' "$work/stats"
    stop
}

one() { # fake_llm's options: one endpoint
    "$build/fake_llm" --port-file "$work/port" --seconds 900 --rate "$rate" --share "$share" "$@"
    urls="'http://127.0.0.1:$(cat "$work/port")'"
}

printf '%d rows, %d engines, a prefix is shared %s\n' "$rows" "$engines" "$share"
printf '%-44s %9s %10s %10s %6s %8s %9s %8s\n' '' requests prompt computed ratio seconds requests/s 'CPU µs'
one --engines "$engines"; measure 'engines in turn, PSM off' off "$urls" $((engines * 64))
one --engines "$engines"; measure 'engines in turn, PSM order' grouped "$urls" $((engines * 64))
urls=
i=0
while [ "$i" -lt "$engines" ]; do
    "$build/fake_llm" --port-file "$work/port$i" --seconds 900 --rate "$rate" --share "$share"
    urls="$urls${urls:+, }'http://127.0.0.1:$(cat "$work/port$i")'"
    i=$((i + 1))
done
measure 'endpoints of kvasir: runs, leader first' grouped "$urls" 64
one; measure 'one engine, PSM order' grouped "$urls" 64
