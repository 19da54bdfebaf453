#!/bin/sh
# The project's rules for its own sources: who may include and call whom, what comments and pages cite, the format of the
# code; warns about long functions and files. Exits 1 on a wrong arrow, a circle of calls, a citation of something that is
# not in the repository, a file of over a megabyte or a line that clang-format would change. tests/house_test.sh plants each.
#
#   sh tests/house.sh [BUILD]    BUILD: a build folder, to check function use between sub-rooms as well
set -u
cd "$(dirname "$0")/.."
bad=0

# Who includes and calls whom, circles of files, citations.
python3 tests/house.py "$@" || bad=1

# A source is never that large: databases, models and fetched data are.
for file in $(git ls-files 2>/dev/null); do
    [ ! -f "$file" ] || [ "$(wc -c <"$file")" -le 1048576 ] || { echo "$file has more than a megabyte"; bad=1; }
done

# Other versions break lines elsewhere.
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    git ls-files '*.c' '*.h' '*.cu' 2>/dev/null | xargs clang-format --dry-run -Werror || bad=1
else
    echo "warning: the format is not checked without clang-format 14"
fi

for file in $(git ls-files '*.c' '*.h' '*.y' '*.re' '*.cu' 2>/dev/null); do
    lines=$(wc -l <"$file")
    [ "$lines" -le 1000 ] || echo "warning: $file has $lines lines"
done
if command -v ctags >/dev/null 2>&1; then
    git ls-files '*.c' 2>/dev/null | grep -v '^tests/' | xargs ctags -x --c-kinds=f --_xformat='%{end} %{line} %{name} %{input}' 2>/dev/null |
        awk '$1 - $2 > 70 { print "warning: " $3 " in " $4 " has " $1 - $2 " lines" }'
fi
exit $bad
