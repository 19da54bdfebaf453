#!/bin/sh
# The house's own rules: who may include and call whom, the format of the code; warns of long functions and files.
# Exits 1 on a wrong arrow, a circle, a file of over a megabyte or a line that clang-format would change.
#
#   sh tests/house.sh [BUILD]    BUILD: a build folder, to check function use between sub-rooms as well
set -u
cd "$(dirname "$0")/.."
bad=0

# folder: public headers it may include from other folders (its own come plainly or by their public name)
allowed() {
    case $1 in
    storage) echo "storage/base.h storage/containers.h storage/storage.h" ;;
    gpu) echo "gpu/llm.h storage/base.h storage/containers.h" ;;
    sql) echo "sql/sql.h storage/base.h storage/containers.h storage/storage.h" ;;
    planner) echo "planner/planner.h planner/psm.h sql/sql.h storage/base.h storage/containers.h storage/storage.h" ;;
    exec) echo "exec/exec.h planner/planner.h planner/psm.h sql/sql.h storage/base.h storage/containers.h storage/storage.h gpu/llm.h" ;;
    shell) echo "shell/shell.h exec/exec.h planner/planner.h planner/psm.h sql/sql.h storage/base.h storage/containers.h storage/storage.h gpu/llm.h" ;;
    esac
}

for room in storage gpu sql planner exec shell; do
    for file in $(find "$room" -name '*.[chy]' -o -name '*.re' -o -name '*.cu' -o -name '*.cuh'); do
        for header in $(sed -n 's/^# *include *"\(\(storage\|gpu\|sql\|planner\|exec\|shell\)\/[^"]*\)".*/\1/p' "$file"); do
            case " $(allowed $room) " in *" $header "*) ;; *) echo "$file includes $header: a wrong arrow"; bad=1 ;; esac
        done
    done
done

# Within a room: who may use whom between sub-rooms, and circles of files, by the functions that the object files use.
python3 tests/house.py "$@" || bad=1

# Databases, models and fetched data are large; what people write is not.
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
    git ls-files '*.c' | grep -v '^tests/' | xargs ctags -x --c-kinds=f --_xformat='%{end} %{line} %{name} %{input}' 2>/dev/null |
        awk '$1 - $2 > 70 { print "warning: " $3 " in " $4 " has " $1 - $2 " lines" }'
fi
exit $bad
