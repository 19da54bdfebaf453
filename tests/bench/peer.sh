#!/bin/sh
# The engine and llama.cpp on the same work and machine, side by side, with the ratio.
#
#   LLAMA_BIN=dir sh tests/bench/peer.sh [BUILD]     default build: build/release
#
# dir holds llama-bench, llama-batched-bench and llama-quantize; with llama-server, curl and python3 in reach, the rows of Q2 run, too.
# llama.cpp takes the best of FORMATS, made once from the same model file and kept in the cache folder; kvasir runs as often, in turn
# with it, and takes its best run, so that a busy moment counts against neither. THREADS: default all.
# A table on stdout; a row whose programs are absent is left out and said so on stderr.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build/release}
formats=${FORMATS:-"Q4_0 Q8_0 BF16 F32"}
threads=${THREADS:-$(nproc)}
rows=${ROWS:-200}
runs=${RUNS:-2}
data=${DATA:-../shared/data}
model=${KVASIR_MODEL:-${XDG_DATA_HOME:-$HOME/.local/share}/kvasir/models/SmolLM2-135M-Instruct.Q4_1.gguf}
kept=${XDG_CACHE_HOME:-$HOME/.cache}/kvasir/peer
work=$(mktemp -d)
cleanup() {
    [ ! -r "$work/server" ] || kill "$(cat "$work/server")" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

[ -n "${LLAMA_BIN:-}" ] || { echo "peer.sh: LLAMA_BIN is not set: skipped"; exit 0; }
for program in llama-bench llama-batched-bench llama-quantize; do
    [ -x "$LLAMA_BIN/$program" ] || { echo "peer.sh: $LLAMA_BIN has no $program" >&2; exit 1; }
done
for file in "$build/bench_engine" "$model"; do
    [ -r "$file" ] || { echo "peer.sh: $file is absent" >&2; exit 1; }
done

mkdir -p "$kept"
stamp=$(cksum <"$model" | cut -d' ' -f1)
file_of() { echo "$kept/$stamp-$1.gguf"; }
for f in $formats; do
    [ -r "$(file_of "$f")" ] && continue
    "$LLAMA_BIN/llama-quantize" --allow-requantize "$model" "$work/new.gguf" "$f" >"$work/log" 2>&1 ||
        { echo "peer.sh: llama-quantize to $f failed:" >&2; tail -3 "$work/log" >&2; exit 1; }
    mv "$work/new.gguf" "$(file_of "$f")"
done

number() { # key: the last number under it in the JSON on stdin
    sed -n "s/.*\"$1\": *\([0-9.eE+]*\).*/\1/p" | tail -1
}
best=
own=
best_of() { # theirs, ours: commands that print a rate, in turn; sets best to "rate format" and own to our best rate
    best="0 none"
    own=0
    for f in $formats; do
        rate=$("$1" "$(file_of "$f")" || true)
        best=$(echo "$best ${rate:-0} $f" | awk '{ print ($3 > $1 ? $3 " " $4 : $1 " " $2) }')
        rate=$($2)
        own=$(echo "$own $rate" | awk '{ print ($2 > $1 ? $2 : $1) }')
    done
}
line() { # what, unit: of the last best_of
    echo "$best" | awk -v what="$1" -v k="$own" -v unit="$2" \
        '{ printf "%-44s %10.1f %10.1f %-7s %-9s %6.2f\n", what, k, $1, $2, unit, ($1 > 0 ? k / $1 : 0) }'
}

prefill() {
    "$LLAMA_BIN/llama-bench" -m "$1" -p 512 -n 0 -t "$threads" -r "$runs" -o jsonl 2>"$work/log" | number avg_ts
}
decode() { # 64 sequences behind one prompt of 250 tokens
    "$LLAMA_BIN/llama-batched-bench" -m "$1" -c 20480 -b 2048 -ub 512 -t "$threads" -pps -npp 250 -ntg 64 -npl 64 \
        --output-format jsonl 2>"$work/log" | number speed_tg
}

engine() { # name of a line: its rate
    "$build/bench_engine" --json --threads "$threads" --only "$1" | sed -n "s/.*\"name\":\"$1\",\"tok_s\":\([0-9.]*\).*/\1/p"
}
our_prefill() { engine prefill_512; }
our_decode() { engine decode_b64; }

printf '%-44s %10s %10s %-7s %-9s %6s\n' "on $threads threads" kvasir llama.cpp format unit ratio
best_of prefill our_prefill
line "prefill, prompts of 512 tokens" tokens/s
best_of decode our_decode
line "decode, 64 sequences on one 250-token prefix" tokens/s

# ---- Q2: the very rows and examples of bench_queries, synopsis first, rows of one film together ----

absent=
[ -x "$LLAMA_BIN/llama-server" ] || absent=llama-server
for program in curl python3; do command -v "$program" >/dev/null || absent=$program; done
for file in "$build/bench_queries" "$data/rt.reviews.tsv.gz" "$data/rt.movie_info.tsv.gz"; do
    [ -r "$file" ] || absent=$file
done
[ -z "$absent" ] || { echo "peer.sh: no rows of Q2: $absent is absent" >&2; exit 0; }

cat >"$work/ask.py" <<'EOF'
# ask.py DIR HOST: asks about the rows that bench_queries wrote to DIR, in their order; prints rows/s.
import csv, http.client, json, sys, threading, time

def table(name):
    with open(f"{sys.argv[1]}/{name}.csv", encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))

def line(text):
    return text.replace("\r", " ").replace("\n", " ")

def prompt(r, answer=""):
    return f"synopsis: {line(r['synopsis'])}\nreview: {line(r['review'])}\nanswer:{answer}"

head = "Is the review positive or negative?\n" + "".join(prompt(r, f" {r['answer']}\n\n") for r in table("examples"))
asked = table("rows")
host = sys.argv[2]

def run(workers):
    todo, lock, failed = iter(asked), threading.Lock(), []
    def work(slot):
        link = http.client.HTTPConnection(host)
        while True:
            with lock:
                r = next(todo, None)
            if r is None:
                return
            body = {"prompt": head + prompt(r), "n_predict": 3, "temperature": 0, "cache_prompt": True,
                    "id_slot": slot, "grammar": 'root ::= " positive" | " negative"'}
            link.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
            reply = link.getresponse()
            text = reply.read()
            if reply.status != 200:
                failed.append(text[:200])
                return
    threads = [threading.Thread(target=work, args=(i,)) for i in range(workers)]
    start = time.monotonic()
    for t in threads: t.start()
    for t in threads: t.join()
    if failed:
        sys.exit(f"peer.sh: llama-server: {failed[0]}")
    return len(asked) / (time.monotonic() - start)

print(max(run(1), run(4)))
EOF

port=$((20000 + $$ % 20000))
rows_per_s() {
    "$LLAMA_BIN/llama-server" -m "$1" -c 16384 -np 4 -b 2048 -ub 512 -t "$threads" --port "$port" --host 127.0.0.1 \
        >"$work/log" 2>&1 &
    server=$!
    echo "$server" >"$work/server"
    tries=0
    until curl -sf "http://127.0.0.1:$port/health" >/dev/null; do
        tries=$((tries + 1))
        if [ "$tries" -gt 120 ] || ! kill -0 "$server" 2>/dev/null; then
            echo "peer.sh: llama-server did not start on $1" >&2
            return 1
        fi
        sleep 0.5
    done
    python3 "$work/ask.py" "$work" "127.0.0.1:$port"
    kill "$server"
    wait "$server" 2>/dev/null || true
    rm "$work/server"
}
our_rows() {
    "$build/bench_queries" --data "$data" --rows "$rows" --query Q2 --mode fixed --copy "$work" --json |
        number seconds | awk -v n="$rows" '{ print n / $1 }'
}
our_rows >/dev/null # writes what the server is asked
best_of rows_per_s our_rows
line "Q2, $rows rows in the order that shares most" rows/s
