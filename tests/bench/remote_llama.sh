#!/bin/sh
# Rows asked of a real llama-server over HTTP: in kvasir's order and concurrency, beside the written order, one request after the
# other; then of two servers with a thread each.
#
#   LLAMA_BIN=dir sh tests/bench/remote_llama.sh
#
# dir holds llama-server, of any build of llama.cpp; it is, for example, in the source package llama-cpp-python of PyPI, under
# vendor/llama.cpp. ROWS (200) reviews joined with the synopses of their films, of ../shared/data (DATA), else the tutorials', asked
# with two fields (Q2). SLOTS (4) of a server work at a time. Servers start anew for each line, with nothing cached.
set -eu
cd "$(dirname "$0")/../.."
kvasir=$PWD/build/release/kvasir
model=${KVASIR_MODEL:-${XDG_DATA_HOME:-$HOME/.local/share}/kvasir/models/SmolLM2-135M-Instruct.Q4_1.gguf}
data=${DATA:-../shared/data} rows=${ROWS:-200} slots=${SLOTS:-4} port=${PORT:-18080}
server=${LLAMA_BIN:-}/llama-server
[ -x "$server" ] || { echo "remote_llama.sh: no llama-server in LLAMA_BIN: skipped"; exit 0; }
[ -r "$model" ] || { echo "remote_llama.sh: $model is absent: skipped"; exit 0; }
work=$(mktemp -d)
pids=
stop() { [ -z "$pids" ] || { kill $pids; wait $pids || true; } 2>/dev/null; pids=; }
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

if [ -r "$data/rt.reviews.tsv.gz" ]; then
    from="SELECT r.review, m.synopsis FROM '$data/rt.reviews.tsv.gz' r JOIN '$data/rt.movie_info.tsv.gz' m ON r.id = m.id
        WHERE r.review IS NOT NULL AND m.synopsis IS NOT NULL"
else
    from="SELECT r.review, m.synopsis FROM 'tutorials/data/reviews.csv' r JOIN 'tutorials/data/movies.csv' m ON r.movie = m.id"
fi
"$kvasir" "$work/db" -c "CREATE TABLE asked AS SELECT * FROM ($from LIMIT $rows) ORDER BY substr(review, 7, 9), review" >"$work/out" 2>&1

start() { # number of servers, threads of each
    urls=
    for i in $(seq "$1"); do
        "$server" -m "$model" --host 127.0.0.1 --port $((port + i)) -c $((slots * 4096)) -np "$slots" -t "$2" >"$work/log$i" 2>&1 &
        pids="$pids $!"
        urls="$urls${urls:+, }'http://127.0.0.1:$((port + i))'"
    done
    for i in $(seq "$1"); do
        until grep -q 'listening on' "$work/log$i"; do
            kill -0 $pids 2>/dev/null || { tail -3 "$work/log$i" >&2; exit 1; }
            sleep 0.2
        done
    done
}

ask() { # name, psm, window
    cat >"$work/ask.sql" <<END
CREATE OR REPLACE MODEL m FROM ($urls) WITH (window $3);
SET cache = off; SET llm_calibrate = 'off'; SET psm = '$2';
SELECT count(*) FROM asked WHERE LLM('Is the review positive?', review, synopsis, model => m) = 'yes';
.stats
END
    "$kvasir" "$work/db" -f "$work/ask.sql" >"$work/stats" || exit 1
    awk -v n="$1" -v rows="$rows" '{ gsub(",", "") } $1 == "time" { s = $2 * ($3 == "min" ? 60 : 1) } $1 == "prompt" { p = $3 }
        $1 == "computed" { c = $2 } / yes / { }
        END { printf "%-44s %8.1f %8.2f %10d %10d %8.3f\n", n, s, rows / s, p, c, 1 - c / p }' "$work/stats"
    stop
}

printf '%-44s %8s %8s %10s %10s %8s\n' "$rows rows, $slots slots" seconds rows/s prompt computed cached
start 1 2; ask 'one server, written order, one at a time' off 1
start 1 2; ask 'one server, kvasir' grouped 0
start 1 1; ask 'one server of one thread, kvasir' grouped 0
start 2 1; ask 'two servers of one thread, kvasir' grouped 0
