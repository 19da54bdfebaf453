#!/bin/sh
# Lesson 8 adds a rule: what its reader would type still compiles beside today's planner.
#
#   lesson8.sh CC CHECKOUT
set -eu
cc=$1
top=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/kvasir-lesson8-XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

# The fences of C, in order: the file, the declaration, the row.
awk -v dir="$work" '/^```c$/ { n++; on = 1; next } /^```$/ { on = 0 } on { print >(dir "/fence" n) }' "$top/tutorials/08-inside.md"
for folder in core cost rules; do
    mkdir "$work/$folder"
    cp "$top/planner/$folder"/*_int.h "$work/$folder"
done
cp "$work/fence1" "$work/rules/limits.c"
sed "/^rel \*merge_projections/r $work/fence2" "$top/planner/rules/rules_int.h" >"$work/rules/rules_int.h"
sed "/RULE(projects,/r $work/fence3" "$top/planner/rules/rules.c" >"$work/rules/rules.c"
grep -q 'merge_limits' "$work/rules/rules_int.h" && grep -q 'limits' "$work/rules/rules.c"
for file in limits rules; do
    $cc -std=c11 -D_GNU_SOURCE -fsyntax-only -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror -I"$work" -I"$top" "$work/rules/$file.c"
done
