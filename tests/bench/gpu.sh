#!/bin/sh
# gpu.sh - runs all tests and benchmarks of the CUDA backend on a host with a card.
#
#   gpu.sh pack DIR [DATA [MODEL]]      on a host with the packages and the CUDA toolkit: builds, and collects in DIR, about 15 MB, what
#                                       a host with a card needs: programs, libraries, the tables of DATA (default ../shared/data), and
#                                       MODEL (default: the default model) without its weights
#   gpu.sh [--deps DIR] [--build DIR] [--steps LIST] [--log FILE]
#                                       on the host with the card: runs the programs of --build or of DIR, or builds gpu/ if DIR's do
#                                       not run there; prints one line per step, and the benchmarks' figures
#
# Steps: tests 135m 8b q2 1b memcheck racecheck synccheck; all by default. Nothing is downloaded; building needs the toolkit, cmake
# and a C compiler. Exits with 1 if a test failed or a benchmark did not finish.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
deps= build= steps="tests 135m 8b q2 1b memcheck racecheck synccheck" log= bad=0
programs="test_attend_plan test_kernels bench_cuda bench_queries"

say() {
    printf '%-34s %s\n' "$1" "$2"
}

die() {
    echo "gpu.sh: $*"
    exit 1
}

# ---- packing

# Copies the headers and libraries that gpu/ and its tests are built with, static libraries where they exist.
pack_libraries() {
    mkdir -p "$1/include" "$1/lib" || exit 1
    for name in pcre2-8:pcre2.h xxhash:xxhash.h utf8proc:utf8proc.h cmocka:cmocka.h; do
        lib=lib${name%%:*} header=${name##*:}
        path=$(printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n
#define PCRE2_CODE_UNIT_WIDTH 8\n#include <%s>\n' "$header" | cc -E -H -o /dev/null - 2>&1 | sed -n "s/^\. //p" | grep "/$header\$")
        file=$(cc -print-file-name="$lib.a")
        [ "$file" != "$lib.a" ] || file=$(cc -print-file-name="$lib.so")
        [ -f "$path" ] && [ -f "$file" ] || die "$lib and $header were not found"
        cp "$path" "$1/include/"
        case $file in
        *.a) cp "$file" "$1/lib/" ;;
        *) cp "$(dirname "$file")/$lib".so* "$1/lib/" ;;
        esac
    done
}

# Builds the programs with only the CUDA backend, and copies them and the libraries they load, except the C runtime's.
pack_programs() {
    mkdir -p "$1/bin" "$1/run" || exit 1
    cmake -S "$root" -B "$scratch/build" -DCMAKE_BUILD_TYPE=Release -DKVASIR_CPU_BACKEND=OFF -DKVASIR_TEST_MODELS=OFF \
        >"$scratch/out" 2>&1 || { tail -20 "$scratch/out"; die "configuring failed"; }
    # shellcheck disable=SC2086
    cmake --build "$scratch/build" -j "$(nproc)" --target $programs >"$scratch/out" 2>&1 ||
        { tail -30 "$scratch/out"; die "building failed"; }
    for program in $programs; do
        strip -o "$1/bin/$program" "$scratch/build/$program" || exit 1
        ldd "$1/bin/$program" | sed -n 's/.* => \(.*\) (.*/\1/p'
    done | sort -u | grep -v -E '/(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+)\.so' |
        while read -r library; do
            cp -L "$library" "$1/run/"
        done
}

pack() {
    dir=$1 data=${2:-$root/../shared/data} model=${3:-${XDG_DATA_HOME:-$HOME/.local/share}/kvasir/models/SmolLM2-135M-Instruct.Q4_1.gguf}
    pack_libraries "$dir"
    pack_programs "$dir"
    mkdir -p "$dir/data"
    cp "$data"/rt.reviews.tsv* "$data"/rt.movie_info.tsv* "$dir/data/" || die "no tables in $data: q2 cannot run"
    chmod u+w "$dir/data"/*
    python3 "$root/tests/bench/hollow.py" pack "$model" "$dir/model" || die "no model at $model: q2 cannot run"
    du -sh "$dir"
}

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
if [ "${1:-}" = pack ] && [ $# -ge 2 ]; then
    shift
    pack "$@"
    exit 0
fi

# ---- running

while [ $# -gt 1 ]; do
    case $1 in
    --deps) deps=$2 ;;
    --build) build=$2 ;;
    --steps) steps=$2 ;;
    --log) log=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# -eq 0 ] || { sed -n '3,13s/^# \{0,1\}//p' "$0"; exit 2; }
log=${log:-$scratch/log}
: >"$log"

# Runs a command as a step: its output goes to the log, and its last lines are also printed if it fails.
step() {
    name=$1 begin=$(date +%s)
    shift
    "$@" >"$scratch/out" 2>&1
    status=$?
    { echo "== $name"; cat "$scratch/out"; } >>"$log"
    took="$(($(date +%s) - begin)) s"
    case $status in
    0) say "$name" "ok, $took" ;;
    77) say "$name" "$(tail -1 "$scratch/out")" ;;
    *)
        say "$name" "FAILED ($status), $took"
        tail -25 "$scratch/out"
        bad=1
        ;;
    esac
    return $status
}

# The same for a benchmark, whose figures are printed at once, since a host with a card may go away at any moment.
bench() {
    step "$@" && cat "$scratch/out" && echo
}

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
# cuBLASLt may be beside the compiler or in a Python package, and not on the loader's path
beside=$([ -z "$nvcc" ] || echo "$(dirname "$nvcc")/../lib64")
if ! ls "$beside"/libcublasLt.so.* >/dev/null 2>&1 && ! ldconfig -p 2>/dev/null | grep -q libcublasLt; then
    found=
    for version in 12 13; do # prefer the later version
        path=$(find /usr /opt "$HOME" -name "libcublasLt.so.$version" 2>/dev/null | sort | tail -1)
        found=${path:-$found}
    done
    beside=$([ -z "$found" ] || dirname "$found")
    say cuBLASLt "${found:-not found}"
fi
LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}$beside${deps:+:$deps/run}"
export LD_LIBRARY_PATH
command -v nvidia-smi >/dev/null && say card "$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader)"

# Use the packed programs if they run on this host, else build them.
if [ -z "$build" ] && [ -n "$deps" ] && [ -x "$deps/bin/test_attend_plan" ] && "$deps/bin/test_attend_plan" >/dev/null 2>&1; then
    build=$deps/bin
    say programs "packed"
fi
if [ -z "$build" ]; then
    build=$scratch/build
    [ -n "$nvcc" ] || die "nvcc was not found"
    PATH=$PATH:$(dirname "$nvcc")
    step configure cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVASIR_GPU_ONLY=ON -DKVASIR_TEST_MODELS=OFF \
        -DKVASIR_DEPS="$deps" || exit 1
    step build cmake --build "$build" -j "$(nproc)" --target test_kernels bench_cuda test_attend_plan || exit 1
fi
[ -x "$build/bench_cuda" ] && [ -x "$build/test_kernels" ] || die "$build holds no bench_cuda and test_kernels"
sanitizer=$(command -v compute-sanitizer || ls "$(dirname "${nvcc:-/none}")/compute-sanitizer" 2>/dev/null)

sanitize() {
    if [ -z "$sanitizer" ]; then
        say "$1" "not run: compute-sanitizer was not found"
        return
    fi
    tool=$1 limit=$2
    shift 2
    step "compute-sanitizer $tool" timeout "$limit" "$sanitizer" --tool "$tool" --error-exitcode 1 "$build/test_kernels" --small "$@"
}

# Times Q2 over 15,000 rows of the real tables, SQL and tokenizer included. The model has no real weights, so its answers
# are meaningless.
q2() {
    if [ ! -x "$build/bench_queries" ] || [ ! -f "$deps/model" ]; then
        say "Q2, 15,000 rows" "not run: needs bench_queries, tables and a model: gpu.sh pack DIR"
        return
    fi
    python3 "$root/tests/bench/hollow.py" fill "$deps/model" "$scratch/model.gguf" || { bad=1; return; }
    bench "Q2, 15,000 rows" env KVASIR_MODEL="$scratch/model.gguf" XDG_CACHE_HOME="$scratch" timeout 200 \
        "$build/bench_queries" --data "$deps/data" --rows 15000 --query Q2 --mode fixed
}

for name in $steps; do
    case $name in
    tests)
        step "plan of attention" "$build/test_attend_plan"
        step "kernels, forwards, sessions" timeout 240 "$build/test_kernels"
        ;;
    memcheck) sanitize memcheck 200 passes ;;
    racecheck | synccheck) sanitize "$name" 150 ;;
    q2) q2 ;;
    135m | 1b | 8b) bench "bench $name" timeout 200 "$build/bench_cuda" --shape "$name" ;;
    *) die "no step '$name'" ;;
    esac
done
exit $bad
