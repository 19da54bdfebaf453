#!/bin/sh
# Peak of anonymous memory and seconds of operators over 10,000,000 rows, for three values of work_memory.
#
#   sh tests/bench/memory.sh [WHAT...]      WHAT: some of sort, join, group, distinct, window, index; default: all
#
# KVASIR: the program (default: of build/release). ROWS, SIZES: other rows and sizes. The peak is RssAnon of /proc, sampled
# every 10 ms; "over base" is what it is more than that of a statement that only counts the table's rows.
set -eu
cd "$(dirname "$0")/../.."
kvasir=${KVASIR:-$PWD/build/release/kvasir}
rows=${ROWS:-10000000}
sizes=${SIZES:-16 64 256}
[ $# -gt 0 ] || set -- sort join group distinct window index
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# a: every number once, in another order; b: 1,000 different numbers
"$kvasir" "$work/m.kvasir" -c "CREATE TABLE big (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER)" \
    -c "INSERT INTO big SELECT i, i * 7919 % $rows, i % 1000 FROM generate_series(1, $rows) AS g(i)" >"$work/out"

# Runs a statement and sets `peak` (kB of anonymous memory) and `seconds`.
measure() { # work_memory in MB, statement
    start=$(date +%s%N)
    "$kvasir" "$work/m.kvasir" --csv -c "SET work_memory = '$1MB'" -c "$2" >"$work/out" 2>"$work/err" &
    pid=$!
    peak=0
    while line=$(grep RssAnon "/proc/$pid/status" 2>/dev/null); do
        kb=${line#RssAnon:}
        kb=$((${kb% kB}))
        [ "$kb" -le "$peak" ] || peak=$kb
        sleep 0.01
    done
    wait "$pid" || { echo "failed: $2" >&2; cat "$work/err" >&2; exit 1; }
    seconds=$(awk -v a="$start" -v b="$(date +%s%N)" 'BEGIN { printf "%.1f", (b - a) / 1e9 }')
}

statement() {
    case $1 in
    sort) echo "SELECT id, b FROM big ORDER BY a OFFSET $((rows - 5))" ;;
    join) echo "SELECT count(*), sum(x.b + y.b) FROM big x JOIN big y ON x.a = y.a" ;;
    group) echo "SELECT count(*), sum(s) FROM (SELECT a % ($rows / 2) AS k, sum(b) AS s, count(*) FROM big GROUP BY 1) AS g" ;;
    distinct) echo "SELECT count(*), sum(k) FROM (SELECT DISTINCT a AS k FROM big) AS d" ;;
    window) echo "SELECT sum(r), sum(s) FROM (SELECT rank() OVER w AS r, sum(id) OVER w AS s FROM big WINDOW w AS (PARTITION BY b ORDER BY a)) AS q" ;;
    index) echo "CREATE INDEX big_a ON big (a); DROP INDEX big_a" ;;
    *) echo "memory.sh: no measurement '$1'" >&2; exit 2 ;;
    esac
}

measure 16 "SELECT sum(b) FROM big"
base=$peak
printf 'base: %d MB\n%-10s %12s %14s %10s\n' $((base / 1024)) what work_memory 'over base' seconds
for what in "$@"; do
    for size in $sizes; do
        measure "$size" "$(statement "$what")"
        printf '%-10s %9d MB %11d MB %8s s  %s\n' "$what" "$size" $(((peak - base) / 1024)) "$seconds" "$(md5sum <"$work/out" | cut -c1-8)"
    done
done
