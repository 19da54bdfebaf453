#!/bin/sh
# Drives the real program in a pseudo-terminal (tmux) and looks at the screen: editing, completion, paste, history,
# errors, Ctrl-C, paging, resizing, the live view, signals. Each check waits until the screen shows what it should.
#
#   screens.sh KVASIR
set -u
kvasir=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/kvasir-screens-XXXXXX")
round=0
tm() { tmux -L "kvasir-$$-$round" -f /dev/null "$@"; }
trap 'tm kill-server 2>/dev/null; rm -rf "$work"' EXIT INT TERM

# run COLUMNS ROWS COMMAND: a fresh terminal; its exit code and the terminal's state are shown when it ends
run() {
    tm kill-server 2>/dev/null
    round=$((round + 1)) # a server of its own: the one before may still be leaving
    cat >"$work/run" <<END
cd $work; env HOME=$work XDG_STATE_HOME=$work/state LC_ALL=C.UTF-8 ${environment:-} sh -c 'echo \$\$ >pid; exec $3'
echo "left with \$?"; stty -a | grep -q -- '-icanon' && echo raw || echo sane
exec sleep 600
END
    tm new-session -d -s s -x "$1" -y "$2" "sh $work/run"
}

# start COLUMNS ROWS ARGUMENTS: a fresh shell at its prompt
start() {
    run "$1" "$2" "$kvasir $3"
    see '^kvasir>'
}
text() { tm send-keys -t s -l "$(printf '%s' "$1" | sed 's/;$/\\;/')"; }
key() { tm send-keys -t s "$@"; }
enter() { text "$1"; key Enter; }
screen() { tm capture-pane -t s -p "$@"; }
fail() {
    printf 'screens.sh: %s: %s:\n' "$check" "$1"
    screen
    exit 1
}
# see PATTERN: the screen has it (basic regular expression) within 10 seconds
see() {
    n=0
    while [ $n -lt 100 ]; do
        screen | grep -q -- "$1" && return 0
        n=$((n + 1))
        sleep 0.1
    done
    fail "no '$1' on the screen"
}
# leave: Ctrl-D at the prompt; typed ahead, while a statement runs, the terminal would keep it for itself
leave() {
    n=0
    until screen | grep . | tail -n 1 | grep -q '^kvasir[*]*> *$'; do
        n=$((n + 1))
        [ $n -lt 100 ] || fail 'no prompt'
        sleep 0.1
    done
    key C-d
}
see_not() { screen | grep -q -- "$1" && fail "'$1' is on the screen"; }
check() { check=$1; }

cat >"$work/setup.sql" <<'END'
CREATE MODEL m FROM 'test:hash';
CREATE TABLE movies(id INTEGER PRIMARY KEY, name TEXT, year INTEGER);
INSERT INTO movies VALUES (1, 'Heat', 1995), (2, '東京物語', 1953), (3, 'Amélie 👍', 2001);
CREATE TABLE digits(d INTEGER);
INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
CREATE TABLE many AS SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS n FROM digits a, digits b, digits c, digits e;
CREATE TABLE texts AS SELECT n, 'text number ' || n AS t FROM many;
END
"$kvasir" "$work/s.kvasir" -f "$work/setup.sql" || exit 1

check 'statements over several lines, wide characters'
start 80 24 s.kvasir
enter 'SELECT name, year'
see '^   \.\.\.>'
enter 'FROM movies ORDER BY id;'
see '│ 東京物語  │ 1953 │'
see '│ Amélie 👍 │ 2001 │'
see '^3 rows'

check 'psql ends a statement with \g, and may name a file'
enter 'SELECT 6 * 7'
enter 'AS six_times_seven'
enter '\g'
see '│              42 │'
enter 'SELECT 43 AS more'
enter '\g out.txt'
enter '.shell cat out.txt'
see '│   43 │'

check 'a line within a literal is not a command, even if it starts with a dot'
enter "SELECT length('"
enter '.tables'
enter "') AS n;"
see '│ 9 │'

check 'errors keep the prompt'
enter 'SELEC 1;'
see 'did you mean SELECT?'
enter '.tabels'
see 'did you mean .tables?'
enter '.import nowhere.csv t'
see "^error: cannot open 'nowhere.csv'"
enter '\dt'
see '^digits  many    movies  texts'

check 'completion right of the cursor'
text 'SELECT na'
key Tab
see 'SELECT name'
text ' FROM mov'
key Tab
see 'SELECT name FROM movies'
text ' WHERE '
key Tab
see '^year *INTEGER'
key C-c
see '\^C'

check 'completion in the middle of a word keeps its end'
text 'SELECT name FROM movies'
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do key Left; done
key Tab
text '||1'
see 'SELECT name||1 FROM movies$'
key C-c

check 'Up joins the lines of a statement'
enter 'SELECT 1'
enter '+ 1'
key Up Up End
text '0'
key Down End
enter ' AS eleven;'
see '│     11 │'

check 'the prompt shows an open transaction'
enter 'BEGIN;'
see 'kvasir\*>'
enter 'ROLLBACK;'

check 'Ctrl-D leaves; history comes back, whole'
leave
see 'left with 0'
see '^sane'
start 80 24 s.kvasir
key Up
see 'ROLLBACK;'
key Up Up
see '^+ 1 AS eleven;'
key C-c

check 'the prompt shows a transaction that can only be rolled back'
enter 'BEGIN;'
see '^kvasir\*>'
enter 'SELECT count(*) AS before FROM movies;'
see '│ before │'
"$kvasir" "$work/s.kvasir" -c "INSERT INTO movies VALUES (9, 'Alien', 1979)" || fail 'a writer beside the reader'
enter "INSERT INTO movies VALUES (10, 'Aliens', 1986);"
see 'the database changed since this transaction began'
see '^kvasir!>'
enter 'SELECT 1'
see '^    \.\.\.>'
enter ';'
see 'this transaction has failed and can only be rolled back'
see 'ROLLBACK'
enter 'ROLLBACK;'
see '^kvasir>'
enter 'DELETE FROM movies WHERE id = 9;'
see '^1 row'

check 'a leading space keeps a statement out of the history; Ctrl-R finds another'
enter " SELECT 'secret' AS s;"
see '│ secret │'
enter " SELECT 'secret too'"
enter "AS s;"
see '│ secret too │'
enter "SELECT 'public' AS p;"
see '│ public │'
leave
see 'left with 0'
grep -rq secret "$work/state" && fail 'the secret is in the history'
grep -rq public "$work/state" || fail 'the history lacks a statement'
start 120 40 s.kvasir
key C-r
text 'AS eleven'
see '+ 1 AS eleven;'
key C-c

check 'a megabyte pasted'
{ printf " SELECT length('"; head -c 1000000 /dev/zero | tr '\0' x; printf "') AS size;"; } >"$work/large"
tm load-buffer "$work/large"
began=$(date +%s%N)
tm paste-buffer -p -t s
key Enter
see '│ 1000000 │'
echo "1 MB pasted, run and shown: $((($(date +%s%N) - began) / 1000000)) ms"

check 'bracketed paste: newlines and tabs stay, nothing runs before Enter'
printf 'SELECT\t1 AS pasted,\n\t2 AS too;\nSELECT 3 AS three;\n' | tm load-buffer -
tm paste-buffer -p -t s
see 'SELECT 3 AS three;$'
see_not 'pasted │'
key Enter
see '│ pasted │ too │'
see '│ three │'

check 'Ctrl-C stops a statement and keeps its answers'
enter "SET model = 'm';"
enter "SET dedup = off;"
enter "SELECT count(*) FROM many a, many b WHERE a.n + b.n < 0;"
sleep 0.5
key C-c
see '^stopped after'
enter 'SELECT 42 AS answer;'
see '│     42 │'

check 'Ctrl-C ends the wait for a named pipe without a writer'
mkfifo "$work/silent"
enter "SELECT * FROM 'silent' AS nothing_comes;"
sleep 0.3
key C-c
enter 'SELECT 43 AS still_here;'
see '│         43 │'

check 'max_tokens_total stops a statement and keeps its answers'
enter 'SET max_tokens_total = 6000;'
enter "SELECT count(LLM('How long?', t) RETURNS INTEGER) FROM texts;"
see 'reached max_tokens_total = 6000'
see 'the answers so far are stored: run the statement again'
enter 'SET max_tokens_total = 0;'

check 'a resized terminal shows the statement once, and it can be edited'
start 80 24 s.kvasir
text "SELECT name, 'a text that is longer than the line of a narrow terminal is' FROM movies"
see 'FROM movies$'
tm resize-window -t s -x 60 -y 24
see '^ a narrow terminal is. FROM movies$'
[ "$(screen | grep -c 'kvasir> SELECT')" = 1 ] || fail 'the statement is on the screen twice'
key Home
tm resize-window -t s -x 50 -y 24
see '^he line of a narrow terminal is. FROM movies$'
tm resize-window -t s -x 120 -y 24
see '^kvasir> SELECT name, .* FROM movies$'
[ "$(screen | grep -c 'kvasir>')" = 1 ] || fail 'the statement is on the screen twice'
text 'EXPLAIN '
see '^kvasir> EXPLAIN SELECT name, .* FROM movies$'
key C-c

check 'a long result goes through the pager'
environment="PAGER='less -FRSX'"
if command -v less >/dev/null; then
    start 80 24 s.kvasir
    enter 'SELECT n FROM many;'
    see '^:$'
    key G
    see '^│ 9999 │'
    key q
    see '^10,000 rows'
    enter '.help'
    see '^SQL statements end'
    see '^:$'
    key q
fi

check 'without a pager rows are capped'
environment='PAGER=cat'
start 80 24 s.kvasir
enter '.pager off'
enter 'SELECT n FROM many;'
see '^… 9,960 more rows'

check 'Ctrl-C stops the drawing of rows'
enter '.maxrows 10000000'
enter 'SELECT n FROM generate_series(1, 2000000) AS n;'
see '│ *[1-9][0-9]\{4,\} │'
key C-c
see '^stopped$'
enter 'SELECT 43 AS answer;'
see '│     43 │'

check 'a plan wider than the screen is wrapped'
start 60 24 s.kvasir
enter "EXPLAIN SELECT LLM('What is the name of this text?', t, n, model => m) RETURNS ENUM('a', 'b') FROM texts;"
see "^└─ LLM  *rows≈10,000, cost≈[0-9]"
see "^   │      sample) RETURNS ENUM('a', 'b') by m"

check 'how typed answers fell, below the line on what they cost'
start 80 24 s.kvasir
enter "SELECT LLM('good?', n % 3 AS k, model => m) RETURNS BOOLEAN AS good FROM texts LIMIT 90;"
see '^90 rows asked, '
see '^good: [a-z]* [0-9]*, [a-z]* [0-9]*$'

check 'a note reports cells cut to the screen'
start 40 10 s.kvasir
enter "SELECT 'a text that is longer than any screen of forty columns' AS t;"
see '^1 row, cells cut'
enter 'SELECT 1;'
see '^1 row$'

check 'RETURNING on the screen and into a file'
start 60 24 s.kvasir
enter 'CREATE TABLE kept(id INTEGER PRIMARY KEY, name TEXT, what TEXT);'
enter "INSERT INTO kept(name, what) SELECT name, repeat('long ', 30) FROM movies RETURNING *;"
see '^│  1 │ Heat      │ long long long long long long long lon…'
see '^3 rows inserted, cells cut'
enter '.once kept.csv'
enter '.mode csv'
enter 'DELETE FROM kept RETURNING id;'
see '^3 rows deleted'
see_not '^id'
enter '.mode box'
leave
see '^left with 0'

check 'a result too wide for a table: one value per line'
start 40 10 s.kvasir
enter 'SELECT name, year, name, year, name, year, name FROM movies WHERE id = 1;'
see '^─ row 1 ─*$'

check 'long texts at 80x24: cut in one line, after --wrap in full, with a rule between rows'
cat >"$work/films.sql" <<'END'
CREATE TABLE films(id INTEGER PRIMARY KEY, title TEXT, synopsis TEXT, note TEXT);
INSERT INTO films VALUES (1, 'Tokyo Story', '老夫婦が東京の子供たちを訪ねるが、忙しい子供たちは両親の相手をする暇がない。', 'by Ozu'),
(2, 'The Salt Road', 'In a drought that has lasted eleven years, a retired surveyor is asked to walk the old salt road.', NULL);
END
"$kvasir" "$work/s.kvasir" -f "$work/films.sql" || fail 'no films'
start 80 24 s.kvasir
enter 'SELECT * FROM films;'
see '│  1 │ Tokyo Story   │ 老夫婦が東京の子供たちを訪ねるが、忙しい子供…  │ by Ozu │'
see '│  2 │ The Salt Road │ In a drought that has lasted eleven years, a … │ NULL   │'
see '^2 rows, cells cut off; .mode box --wrap shows them in full'
enter '.mode box --wrap'
enter 'SELECT * FROM films;'
see '│  1 │ Tokyo Story   │ 老夫婦が東京の子供たちを訪ねるが、忙しい子供た │ by Ozu │'
see '│    │               │ ちは両親の相手をする暇がない。                 │        │'
[ "$(screen | grep -c '^├────┼')" = 3 ] || fail 'no rule between rows'
see '│    │               │ retired surveyor is asked to walk the old salt │        │'
see '^2 rows$'

check 'Ctrl-C stops the drawing of a long cell'
enter "SELECT repeat('word ', 8000000) AS t;"
see '│ word word'
key C-c
see '^stopped$'
enter 'SELECT 44 AS answer;'
see '│     44 │'

check 'long texts at 40x10: wrapped where a column is narrow, in records, in .schema'
start 40 10 s.kvasir
enter 'SELECT * FROM films WHERE id = 2;'
see '│    │             │ surveyor   │      │'
see '│    │             │ salt road. │      │'
see '^1 row$'
enter '.mode box --no-wrap'
enter 'SELECT * FROM films WHERE id = 2;'
see '│  2 │ The Salt Road │ In a dr… │ NULL │'
enter '.mode line'
enter 'SELECT * FROM films WHERE id = 1;'
see '^synopsis = 老夫婦が東京の子供たちを訪ね$'
see '^           るが、忙しい子供たちは両親の$'
see '^           相手をする暇がない。$'
enter '.schema films'
see '^    synopsis TEXT,$'
see '^);$'
screen -S -1 | sed -n '/^CREATE TABLE films/,/^);/p' >"$work/pasted.sql"
"$kvasir" "$work/pasted.kvasir" -f "$work/pasted.sql" -c .schema >"$work/pasted" || fail 'not valid SQL'
"$kvasir" "$work/s.kvasir" -c '.schema films' | cmp - "$work/pasted" || fail 'another table'

check 'long texts at 10x10'
start 10 10 s.kvasir
enter 'SELECT title FROM films WHERE id = 2;'
see '^─ row 1 ──$'
see '^The Salt$'
see '^Road$'

check 'NO_COLOR and TERM=dumb'
environment='NO_COLOR=1'
start 80 24 s.kvasir
enter 'SELECT 1;'
see '│ 1 │'
screen -e | grep -q "$(printf '\033')\[[0-9;]*[1-9]m" && fail 'colour with NO_COLOR'
environment='TERM=dumb'
start 80 24 s.kvasir
enter 'SELECT 1;'
see '│ 1 │'
enter '.help'
see '^Ctrl-C stops a statement' # all of it, and no pager
enter "CREATE MODEL lazy FROM 'test:hash:slow';"
enter "SELECT count(*) FROM texts WHERE LLM('dull?', t, model => lazy) RETURNS BOOLEAN;"
sleep 2.5
[ "$(screen | grep -c '^[0-9,]*/10,000 inputs')" -ge 2 ] || fail 'no line a second'
key C-c
see 'stopped after'
environment=

check 'Ctrl-C ends .compare with the runs so far'
start 100 24 s.kvasir
enter ".compare SELECT LLM('dull?', t, model => lazy) RETURNS BOOLEAN FROM texts WHERE n < 100;"
see '^grouped: '
see '^no cache: '
key C-c
see '^grouped .* s  *best$'
see '^rows are not compared'
see '^stopped$'
enter 'SHOW psm;'
see '│ auto │'

check 'vi keys by ~/.editrc, also pasting; .edit; .history'
echo 'bind -v' >"$work/.editrc"
printf '#!/bin/sh\nsed -i s/12/77/ "$1"\n' >"$work/editor" && chmod +x "$work/editor"
environment="EDITOR=$work/editor"
start 80 24 s.kvasir
text 'XSELECT 1'
key Escape
text '0x$a2 AS n;'
key Enter
see '│ 12 │'
printf 'SELECT\t3 AS pasted,\n4 AS too;\n' | tm load-buffer -
tm paste-buffer -p -r -t s
see '^4 AS too;$'
key Enter
see '│      3 │   4 │'
enter 'SELECT 12 AS m;'
see '│ 12 │'
enter '\e'
see '│ 77 │'
tm send-keys -R -t s
tm clear-history -t s
enter '.history 2'
see '^SELECT 77 AS m;'
rm "$work/.editrc"
environment=

check 'a statement is coloured after Enter'
start 80 24 s.kvasir
enter 'SELECT 17 AS coloured;'
see '│       17 │'
screen -e | grep -q "$(printf '\033')\[[0-9;]*34mSELECT" || fail 'no colour in the statement'

check 'SIGTERM at the prompt leaves a sane terminal'
start 80 24 s.kvasir
kill -TERM "$(cat "$work/pid")"
see 'left with 143'
see '^sane'

check 'the live view, its pages, resizing, and back'
cat >"$work/mock.jsonl" <<'END'
{"statement":"SELECT LLM('good?', review) FROM reviews","phase":"model","operators":1,"operator":1,"inputs":200,"inputs_done":0,"seconds":0}
{"seconds":0.6,"inputs_done":40,"prompt_tokens":40000,"computed_tokens":9000,"reused_memory":31000,"last_answer":"yes","last_input":"東京"}
{"seconds":1.2,"inputs_done":90,"prompt_tokens":90000,"computed_tokens":15000,"reused_memory":75000,"prefill_ms":1000,"last_answer":"no","last_input":"Heat","plan":[{"name":"LLM#1","depth":0,"in":200,"out":0},{"name":"scan reviews","depth":1,"source":true,"out":200}],"shared":[0,90,90,12],"branches":[{"text":"Good?","tokens":3,"prompts":200,"answered":90},{"text":"two detectives","depth":1,"tokens":300,"prompts":40,"answered":12}],"strategies":[{"name":"no cache","prompt_tokens":196000,"computed_tokens":196000},{"name":"FIFO","prompt_tokens":196000,"computed_tokens":120000}]}
END
run 80 24 "$kvasir --view --mock mock.jsonl"
see 'LLM 1 of 1'
see '90 of 200'
see 'two detectives'
see 'scan reviews'
see '^ order *▁██▁'
key 2
see 'FIFO'
key Right
see 'two detectives'
see_not 'FIFO'
key 4
see 'last answers'
see_not 'two detectives'
key '?'
see 'pause or resume the statement'
key 2
see 'FIFO'
tm resize-window -t s -x 60 -y 12
see 'FIFO'
key 1
see '90 of 200'
tm resize-window -t s -x 30 -y 3
see '90/200 inputs'
tm resize-window -t s -x 120 -y 40
see 'two detectives'
key q
see 'left with 0'

check 'the last picture stays, also of a short run; a recording replays to it; .view last'
environment='PAGER=cat'
short="SELECT count(LLM('is it?', t, n) RETURNS BOOLEAN) AS asked FROM texts WHERE n < 40;"
start 80 24 s.kvasir
enter "SET model = 'm'; SET cache = off;"
enter '.view record run.jsonl'
see 'is recorded; kvasir --mock FILE replays it'
enter '.view on'
enter "$short"
see 'LLM 1 of 1  done'
see '40 of 40'
see '^ operators'
screen >"$work/picture.1"
key 2
see '^ this run .* s  █'
screen >"$work/picture.2"
key 3
see '^ *40  *40 .*is it?'
screen >"$work/picture.3"
key 4
see '^ *last answers'
screen >"$work/picture.4"
text 'SELECT 5 AS'
see 'asked │'
see '^kvasir> SELECT 5 AS'
enter ' typed_on;'
see '│ typed_on │'
enter '.view last'
see '^ *last answers'
key Enter
see '^kvasir> *$'
enter "EXPLAIN (TOKENS) $short"
see '^kvasir> *$'
see_not 'LLM 1 of 1'
enter 'SET view_keep = off;'
enter ".view off"
enter "$short"
see '^40 rows asked'
enter '.view last'
see '40 of 40'
see '^ *40  *40 .*is it?'
key q
leave
see 'left with 0'
run 80 24 "$kvasir --view --mock run.jsonl"
see 'LLM 1 of 1  done'
for panel in 1 2 3 4; do
    key $panel
    sleep 0.3
    screen | cmp - "$work/picture.$panel" || fail "panel $panel of the replayed run is another one"
done
for size in '120 40' '40 10'; do
    tm resize-window -t s -x "${size% *}" -y "${size#* }"
    key 2
    see 'faster than without reuse'
    see '^ this run '
done
key q
see 'left with 0'

check 'statements entered together do not wait for a key'
start 80 24 s.kvasir
enter "SET model = 'm'; SET cache = off;"
enter '.view on'
enter "$short SELECT 6 AS next;"
see '│    6 │'
enter '.view record /nowhere/run.jsonl'
see "^error: cannot write '/nowhere/run.jsonl'"
leave
see 'left with 0'
environment=

check 'a script with --view waits for no key'
echo "$short" >"$work/short.sql"
run 80 24 "$kvasir --view --model test:hash s.kvasir -f short.sql"
see '│    40 │'
see 'left with 0'

check 'SIGTERM with the view open'
run 80 24 "$kvasir --view --mock mock.jsonl"
see 'LLM 1 of 1'
kill -TERM "$(cat "$work/pid")"
see '^left with'
see '^sane'

check 'v opens the view during a run; pause, back, again, cancel; other keys are kept for the prompt'
environment='PAGER=cat'
start 80 24 s.kvasir
enter "CREATE MODEL slow FROM 'test:hash:slow';"
enter "SET model = 'slow';"
enter "SELECT count(*) FROM texts WHERE LLM('is it?', t) RETURNS BOOLEAN;"
see 'v view$'
key v
see 'LLM 1 of 1'
see 'LLM#1'
see '^ order '
see '^ KV disk '
key 2
see '^ no cache  *[0-9].* % .*~.*█'
see '^ FIFO  *[0-9].* % .*~.*█'
see '^ fixed  *[0-9].* % .*~.*█'
see '^ grouped  *[0-9].* % .*~.*█'
key 1
see '^ KV disk '
# shell_cpu: nanoseconds of CPU time so far of the shell's thread
pid=$(cat "$work/pid")
shell_cpu() { cut -d ' ' -f 1 "/proc/$pid/task/$pid/schedstat"; }
if [ -r "/proc/$pid/task/$pid/schedstat" ]; then
    before=$(shell_cpu)
    sleep 2
    cost=$((($(shell_cpu) - before) / 2000))
    echo "the view open: $cost us of CPU time a second"
fi
key p
see 'LLM 1 of 1  paused'
sleep 0.3 # until this screen is complete
screen | sed -n 4p >"$work/held"
sleep 0.6
screen | sed -n 4p | cmp -s - "$work/held" || fail 'a paused statement keeps running'
key p
see 'LLM 1 of 1  model'
key 2
see '^ grouped '
key 1
key q
see 'v view$'
tm resize-window -t s -x 60 -y 12
text 'SELECT 7 * 6 AS typed_ahead;'
key Enter
sleep 0.3
key C-v
see '^ kvasir  LLM 1 of 1'
tm resize-window -t s -x 80 -y 24
see 'LLM#1'
key c
see '^stopped after .*answers are kept'
see '│ typed_ahead │'

check 'the estimate of a long statement is printed, and with SET confirm asked about'
enter "CREATE TABLE long AS SELECT t || repeat(' word', 60) AS t FROM texts; ANALYZE long;"
see '^10,000 rows written'
enter "SET confirm = on; SET cost_rates = 'nominal';"
enter "SELECT count(*) FROM long WHERE LLM('is it?', t) RETURNS BOOLEAN;"
see '^about .* distinct inputs, .* tokens; Ctrl-C'
see '^run it. .y/N.'
enter 'n'
see '^not run'
key C-l
enter "SET cache = off;"
enter "SELECT count(*) FROM long WHERE LLM('is it?', t) RETURNS BOOLEAN;"
see '^about .* distinct inputs, .* tokens$'
see '^run it. .y/N.'
enter 'n'
see '^not run'
enter "RESET cost_rates; CREATE MODEL dear FROM 'http://127.0.0.1:9' WITH (model 'x', price_in 1000);"
enter "SELECT count(*) FROM texts WHERE LLM('is it?', t, model => dear) RETURNS BOOLEAN;"
see '^about .* tokens, [$][0-9]'
see '^run it. .y/N.'
enter 'n'
see '^not run'
enter "DROP MODEL dear; RESET confirm; RESET cache;"

check 'SIGTERM with the view of a running statement'
enter "SELECT count(*) FROM texts WHERE LLM('was it?', t) RETURNS BOOLEAN;"
see 'v view$'
key v
see 'LLM 1 of 1'
kill -TERM "$(cat "$work/pid")"
see '^left with 143'
see '^sane'

check 'SIGTERM while a statement asks the model ends the program'
start 80 24 s.kvasir
enter "SET model = 'slow';"
enter "SELECT count(*) FROM texts WHERE LLM('will it be?', t) RETURNS BOOLEAN;"
see 'v view$'
kill -TERM "$(cat "$work/pid")"
see '^left with 143'
see '^sane'

check 'SIGQUIT in the view ends the program and leaves a sane terminal'
start 80 24 s.kvasir
enter "SET model = 'slow';"
enter "SELECT count(*) FROM texts WHERE LLM('will it be?', t) RETURNS BOOLEAN;"
see 'v view$'
key v
see 'LLM 1 of 1'
kill -QUIT "$(cat "$work/pid")"
see '^left with 131'
see '^sane'
[ "$(tm display -t s -p '#{alternate_on}#{cursor_flag}')" = 01 ] || fail 'the terminal still shows the view'

check 'Ctrl-Z restores the terminal; fg returns to the prompt, or to the view'
run 80 24 'sh -i'
enter "$kvasir s.kvasir"
see '^kvasir>'
text 'SELECT 12'
see 'SELECT 12$'
key C-z
see 'Stopped'
enter 'stty -a | grep -q -- -icanon && echo raw || echo sane'
see '^sane'
enter fg
see '^kvasir> SELECT 12$'
text ' AS joined'
for i in 1 2 3 4 5 6 7 8 9 10; do key Left; done # libedit handles keys again, the terminal does not echo them
text '34'
see '^kvasir> SELECT 1234 AS joined$'
enter ''
enter ';'
see '│   1234 │'
enter "SET model = 'slow';"
enter "SELECT count(*) FROM texts WHERE LLM('will it be?', t) RETURNS BOOLEAN;"
see 'v view$'
key v
see 'LLM 1 of 1'
key C-z
see 'Stopped'
tm clear-history -t s
enter 'stty -a | grep -q -- -icanon && echo raw || echo back'
see '^back'
enter fg
see 'LLM 1 of 1'
key c
see '^stopped after'

check 'SELECT 1, from the start of the program to its end'
best=1000000000
for i in 1 2 3 4 5 6 7 8 9 10; do
    began=$(date +%s%N)
    "$kvasir" "$work/s.kvasir" -c 'SELECT 1;' >/dev/null || fail 'SELECT 1'
    took=$(($(date +%s%N) - began))
    [ $took -ge $best ] || best=$took
done
echo "SELECT 1: $((best / 1000)) us"

echo 'screens: as expected'
