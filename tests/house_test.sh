#!/bin/sh
# Plants one violation of each of the rules of house.py in a small copy of the six rooms, and expects it to be
# named and refused; the copy without a violation must pass.
#
#   house_test.sh CC
set -eu
cc=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/kvasir-house-XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0

# plain: rooms with a file each, of which planner has a chain of seven that call each other downwards
plain() {
    mkdir -p "$work/plain" && cd "$work/plain"
    mkdir -p tests exec/rows gpu/model planner/plan planner/rules shell/term sql/words storage/base storage/tables
    cp "$here/house.sh" "$here/house_test.sh" "$here/house.py" "$here/citations.py" tests/
    for file in gpu/model/a sql/words/b shell/term/c storage/base/d storage/tables/e exec/rows/f planner/plan/top; do
        echo "int in_${file##*/}(void); int in_${file##*/}(void) { return 1; }" >$file.c
    done
    for k in 1 2 3 4 5 6; do
        echo "int r$k(void), r$((k + 1))(void); int r$k(void) { return r$((k + 1))(); }" >planner/rules/rule$k.c
    done
    echo "int r7(void); int r7(void) { return 1; }" >planner/rules/rule7.c
    : >storage/base.h
    : >exec/exec.h
    : >planner/plan/plan_int.h
    echo 'The rules begin in `planner/rules/rule1.c`.' >README.md
}

# fresh: a copy of these, with what was compiled of them
fresh() {
    rm -rf "$work/tree"
    cp -Rp "$work/plain" "$work/tree"
    cd "$work/tree"
}

# house: builds the libraries that house.py reads, and runs the checks
house() {
    for library in storage/base storage/storage gpu/gpu sql/sql planner/planner exec/exec shell/shell; do
        room=${library%/*} name=${library#*/}
        case $name in base) sources=storage/base ;; storage) sources=storage/tables ;; *) sources=$room ;; esac
        objects=build/$room/objects/$name
        mkdir -p "$objects"
        for source in $(find $sources -name '*.c'); do
            object=$objects/${source##*/}.o
            [ "$object" -nt "$source" ] || "$cc" -w -I. -I"$room" -c "$source" -o "$object"
        done
        ar rc "build/$room/libkvasir_$name.a" "$objects"/*.o
    done
    python3 tests/house.py build >out 2>&1
}

# refused WHAT PATTERN: the tree as it is now must fail, and say PATTERN
refused() {
    if house; then
        echo "house_test: not refused: $1"
        failed=1
    elif ! grep -q -- "$2" out; then
        echo "house_test: refused for another reason: $1"
        cat out
        failed=1
    fi
}

plain
house || { echo "house_test: the tree without a violation is refused"; cat out; exit 1; }

fresh
echo '#include "exec/exec.h"' >>storage/base/d.c
refused "an include of a room above" "storage/base/d.c includes exec/exec.h"

fresh
echo '#include "plan/plan_int.h"' >>planner/rules/rule1.c
refused "an include of a sub-room above" "rule1.c uses #include of planner/plan/plan_int.h"

fresh
echo 'int in_top(void); int up(void); int up(void) { return in_top(); }' >>planner/rules/rule1.c
refused "a call of a sub-room above" "rule1.c uses in_top of planner/plan/top.c"

fresh
echo 'int r1(void); int r7(void); int r7(void) { return r1(); }' >planner/rules/rule7.c
refused "a circle of seven files" "circle of 7 files"

fresh
echo 'int r6(void); int r1(void); int r6(void) { return r1(); }' >planner/rules/rule6.c
house || { echo "house_test: a circle of six files is refused"; cat out; failed=1; }

fresh
echo 'int twin(void);' >planner/plan/rule1.c
refused "a file name in two sub-rooms" "file name rule1"

fresh
echo '/* As gone.c has it. */' >>planner/plan/top.c
refused "a comment about a file that is not there" "top.c cites gone.c"

fresh
printf '/* Never two at once (MANUAL\n * 2.1). */\n' >>planner/plan/top.c
refused "a comment about a document that is not there" "top.c cites MANUAL"

fresh
echo 'Read [the map](HACKING.md).' >>README.md
refused "a link to a page that is not there" "README.md cites HACKING.md"

fresh
echo 'Read [further](#further).' >>README.md
refused "a link to a heading that is not there" "README.md cites #further"

fresh
echo "circle of 9 files that call each other: a b" >tests/house.exceptions
refused "an exception for what is mended" "names what is not there any more"

exit $failed
