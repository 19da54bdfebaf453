#!/bin/sh
# gpu.sh - everything that is to be known of the CUDA backend on a card, in one go.
#
#   gpu.sh pack DIR                     on a host with the packages: their headers and libraries into DIR, to be carried along
#   gpu.sh [--deps DIR] [--build DIR] [--shapes "135m 1b 8b"] [--log FILE]
#                                       on the host with the card: builds gpu/ alone (or takes what --build holds), runs the
#                                       kernels' tests, compute-sanitizer over the small ones, and the bench; prints a table
#
# Needs the CUDA toolkit, cmake and a C compiler; nothing is fetched. Exits 1 where a test failed or a figure is missing.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
deps= build= shapes="135m 1b 8b" log= bad=0

say() {
    printf '%-34s %s\n' "$1" "$2"
}

# The libraries that gpu/ and its tests link, as static files where there are any.
pack() {
    mkdir -p "$1/include" "$1/lib" || exit 1
    for name in pcre2-8:pcre2.h xxhash:xxhash.h utf8proc:utf8proc.h cmocka:cmocka.h; do
        lib=lib${name%%:*} header=${name##*:}
        path=$(printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n
#define PCRE2_CODE_UNIT_WIDTH 8\n#include <%s>\n' "$header" | cc -E -H -o /dev/null - 2>&1 | sed -n "s/^\. //p" | grep "/$header\$")
        file=$(cc -print-file-name="$lib.a")
        [ "$file" != "$lib.a" ] || file=$(cc -print-file-name="$lib.so")
        [ -f "$path" ] && [ -f "$file" ] || { echo "gpu.sh: $lib and $header are not to be found"; exit 1; }
        cp "$path" "$1/include/"
        case $file in
        *.a) cp "$file" "$1/lib/" ;;
        *) cp "$(dirname "$file")/$lib".so* "$1/lib/" ;;
        esac
    done
    du -sh "$1"
}

if [ "${1:-}" = pack ] && [ $# -eq 2 ]; then
    pack "$2"
    exit 0
fi
while [ $# -gt 1 ]; do
    case $1 in
    --deps) deps=$2 ;;
    --build) build=$2 ;;
    --shapes) shapes=$2 ;;
    --log) log=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# -eq 0 ] || { sed -n '3,7s/^# \{0,1\}//p' "$0"; exit 2; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
log=${log:-$scratch/log}
: >"$log"

# What a step printed goes to the log; its last lines are shown where it failed.
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

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
# cuBLASLt may lie beside the compiler without being on the loader's path
[ -z "$nvcc" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}$(dirname "$nvcc")/../lib64"
command -v nvidia-smi >/dev/null && say card "$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader)"

if [ -z "$build" ]; then
    build=$scratch/build
    [ -n "$nvcc" ] || { echo "gpu.sh: there is no nvcc"; exit 1; }
    PATH=$PATH:$(dirname "$nvcc")
    step configure cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DKVASIR_GPU_ONLY=ON -DKVASIR_TEST_MODELS=OFF \
        -DKVASIR_DEPS="$deps" || exit 1
    step build cmake --build "$build" -j "$(nproc)" --target test_kernels bench_cuda test_cuda_plan || exit 1
fi
[ -x "$build/bench_cuda" ] && [ -x "$build/test_kernels" ] || { echo "gpu.sh: $build holds no bench_cuda and test_kernels"; exit 1; }

step "plan of attention" "$build/test_cuda_plan"
step "kernels and forwards" "$build/test_kernels"
sanitizer=$(command -v compute-sanitizer || ls "$(dirname "$nvcc")/compute-sanitizer" 2>/dev/null)
if [ -n "$sanitizer" ]; then
    step "compute-sanitizer memcheck" timeout 200 "$sanitizer" --tool memcheck --error-exitcode 1 "$build/test_kernels" --small passes
    step "compute-sanitizer racecheck" timeout 120 "$sanitizer" --tool racecheck --error-exitcode 1 "$build/test_kernels" --small
else
    say compute-sanitizer "not to be found"
fi

for shape in $shapes; do
    begin=$(date +%s)
    timeout 240 "$build/bench_cuda" --shape "$shape" >"$scratch/$shape" 2>&1
    case $? in
    0) say "bench $shape" "ok, $(($(date +%s) - begin)) s" ;;
    77) say "bench $shape" "skipped: $(tail -1 "$scratch/$shape")" ;;
    *)
        say "bench $shape" "FAILED: $(tail -1 "$scratch/$shape")"
        bad=1
        ;;
    esac
    { echo "== bench $shape"; cat "$scratch/$shape"; } >>"$log"
done
echo
for shape in $shapes; do
    cat "$scratch/$shape"
    echo
done
exit $bad
