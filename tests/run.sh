#!/bin/sh
# The whole test suite: packages, build and model as the quick start does, then ctest under AddressSanitizer and UBSan, under
# ThreadSanitizer, the fuzzers as clang builds them, and last all in release. Ends with ctest's own summary; exits non-zero when any of them failed.
#
#   sh tests/run.sh [--long]     --long: full counts (crash, property and bitwise tests)
set -eu
cd "$(dirname "$0")/.."
[ "${1:-}" = --long ] && export KVASIR_LONG=1

sh tutorials/quickstart.sh --setup clang clang-format libclang-rt-14-dev expect tmux sqlite3 universal-ctags openssl
sh tutorials/quickstart.sh --embedder

status=0
run_preset() { # preset, what to build of it, ctest arguments
    preset=$1
    target=$2
    shift 2
    cmake --preset "$preset" >"build/$preset.log" 2>&1 &&
        cmake --build --preset "$preset" --target "$target" >>"build/$preset.log" 2>&1 ||
        { tail -40 "build/$preset.log" >&2; exit 1; }
    printf '\n== %s\n' "$preset"
    ctest --test-dir "build/$preset" --output-on-failure "$@" || status=1
}

# oneDNN's libgomp gives false reports under TSan and knows nothing of ASan's allocator: real-model tests there are few.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
run_preset asan all -LE release_only -j2
# Which statements are drawn changes little in what threads do: a fifth of them.
export KVASIR_CASES=200
run_preset tsan tests_tsan -L tsan -j2
unset KVASIR_CASES
run_preset fuzz tests_fuzz -R '^fuzz\.' -j2
run_preset release all -j2
exit $status
