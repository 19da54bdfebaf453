#!/bin/sh
# Draws the pictures of the README and of lesson 5: runs the shell and its live view in a pseudo-terminal (tmux), captures
# the screen with its colours, and writes it as SVG. Records the run that lesson 5 replays.
#
#   tutorials/pictures.sh [KVASIR]     default: build/release/kvasir; needs tmux and the default model
#   tutorials/pictures.sh --svg        the converter alone: `tmux capture-pane -pe` on standard input, SVG on standard output
set -eu
cd "$(dirname "$0")/.."
columns=96 rows=32

# Every run of cells with the same look is one <text>, its width pinned to the grid; blocks (bars, sparklines) are drawn
# as rectangles, so that they touch whatever the font is. Bytes, not characters, are what awk sees.
svg() {
    LC_ALL=C awk -v columns=$columns '
function escaped(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); return s }
function color_of(code) { return code in palette ? palette[code] : "#c8ccd4" }
# Words apart by one space stay one <text>: viewers drop or narrow longer gaps.
function put(x, words, n,   fill) {
    fill = reverse ? "#16181d" : color_of(fg)
    body = body sprintf("<text x=\"%.1f\" y=\"%.1f\" textLength=\"%.1f\" fill=\"%s\"%s%s>%s</text>\n",
                        left + x * cell, top + y * line + base, n * cell, fill,
                        bold ? " font-weight=\"bold\"" : "", dim ? " opacity=\".6\"" : "", escaped(words))
}
function cells_of(s) { gsub(/[\200-\277]/, "", s); return length(s) }
function flush_run(   x, gap, words) {
    if (text == "") return
    if (reverse)
        body = body sprintf("<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n",
                            left + start * cell, top + y * line, cells_of(text) * cell, line, color_of(fg))
    for (x = start; text != "";) {
        match(text, /^ */); gap = RLENGTH
        x += gap; text = substr(text, gap + 1)
        if (text == "") break
        words = match(text, /  /) ? substr(text, 1, RSTART - 1) : text
        text = substr(text, length(words) + 1)
        sub(/ $/, "", words)
        put(x, words, cells_of(words))
        x += cells_of(words)
        if (text == "") break
    }
    start = column
}
function block(low, part) {
    flush_run()
    if (low)
        body = body sprintf("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
                            left + start * cell, top + (y + 1) * line - 2 - part * (line - 4), cell, part * (line - 4), color_of(fg))
    else
        body = body sprintf("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
                            left + start * cell, top + y * line + 2, part * cell + 0.2, line - 4, color_of(fg))
    start = column + 1
}
function look(codes,   n, i, part) {
    flush_run()
    n = split(codes, part, ";")
    if (n == 0) { part[1] = 0; n = 1 }
    for (i = 1; i <= n; i++) {
        if (part[i] + 0 == 0) { fg = 39; bold = dim = reverse = 0 }
        else if (part[i] == 1) bold = 1
        else if (part[i] == 2) dim = 1
        else if (part[i] == 7) reverse = 1
        else if (part[i] == 22) bold = dim = 0
        else if (part[i] == 27) reverse = 0
        else if (part[i] == 38 || part[i] == 48) i += part[i + 1] == 5 ? 2 : 4
        else if (part[i] >= 30 && part[i] <= 39 || part[i] >= 90 && part[i] <= 97) fg = part[i] + 0
    }
}
BEGIN {
    cell = 8.43; line = 17; base = 13; left = 14; top = 12; fg = 39
    split("31 #e06c75 32 #98c379 33 #e5c07b 34 #61afef 35 #c678dd 36 #56b6c2 37 #dcdfe4", pair, " ")
    for (i = 1; i in pair; i += 2) { palette[pair[i]] = pair[i + 1]; palette[pair[i] + 60] = pair[i + 1] }
    for (i = 1; i <= 8; i++) low[sprintf("\342\226%c", 128 + i)] = i / 8
    for (i = 1; i <= 7; i++) wide[sprintf("\342\226%c", 144 - i)] = i / 8
}
{
    start = column = 0; text = ""; y = NR - 1
    for (at = 1; at <= length($0);) {
        c = substr($0, at, 1)
        if (c == "\033" && match(substr($0, at), /^\033\[[0-9;]*m/)) {
            n = RLENGTH; look(substr($0, at + 2, n - 3)); at += n; continue
        }
        n = c < "\200" ? 1 : c < "\340" ? 2 : c < "\360" ? 3 : 4
        c = substr($0, at, n); at += n
        if (n == 1 && c < " ") continue
        if (c in low) block(1, low[c])
        else if (c in wide) block(0, wide[c])
        else text = text c
        column++
    }
    flush_run()
}
END {
    w = left * 2 + columns * cell; h = top * 2 + NR * line
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" " \
           "font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">\n" \
           "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#16181d\"/>\n%s</svg>\n", w, h, w, h, w, h, body
}'
}

[ "${1:-}" = --svg ] && { svg; exit; }
kvasir=$(realpath "${1:-build/release/kvasir}")
command -v tmux >/dev/null || { echo "pictures.sh: tmux is missing" >&2; exit 1; }
work=$(mktemp -d)
tm() { tmux -L "kvasir-pictures-$$" -f /dev/null "$@"; }
trap 'tm kill-server 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

enter() { tm send-keys -t s -l "$(printf '%s' "$1" | sed 's/;$/\\;/')"; tm send-keys -t s Enter; }
# see PATTERN: waits until the screen has it, two minutes at most
see() {
    n=0
    until tm capture-pane -t s -p | grep -q -- "$1"; do
        n=$((n + 1))
        [ $n -lt 1200 ] || { echo "pictures.sh: no '$1' on the screen:" >&2; tm capture-pane -t s -p >&2; exit 1; }
        sleep 0.1
    done
}
capture() {
    mkdir -p tutorials/pictures
    tm capture-pane -t s -p -e >"$work/screen"
    svg <"$work/screen" >"$work/picture" && mv "$work/picture" "tutorials/pictures/$1.svg"
}

"$kvasir" "$work/films.kvasir" -c ".import tutorials/data/movies.csv movies" -c ".import tutorials/data/reviews.csv reviews" \
    -c "CREATE VIEW few_shot AS SELECT review, CASE WHEN stars > 3 THEN 'positive' ELSE 'negative' END AS answer
        FROM reviews WHERE id IN (2, 6, 15, 25)" >/dev/null
cat >"$work/start" <<END
cd $work && exec env HOME=$work XDG_DATA_HOME=${XDG_DATA_HOME:-$HOME/.local/share} XDG_STATE_HOME=$work LC_ALL=C.UTF-8 \
    TERM=tmux-256color PAGER=cat $kvasir films.kvasir
END
tm new-session -d -s s -x $columns -y $rows "sh $work/start"
tm set -g status off
tm resize-window -t s -x $columns -y $rows
see '^kvasir>'

enter 'SELECT titel, year FROM movies;'
see 'hint'
enter "SELECT stars, LLM('Is the review positive or negative?', review, examples => few_shot)"
see '\.\.\.>'
enter "    RETURNS ENUM('positive', 'negative') AS mood, title, review"
enter 'FROM reviews JOIN movies ON movie = movies.id WHERE stars IN (1, 5) LIMIT 11;'
see 'rows asked, .*tokens computed'
sleep 0.5
tm send-keys -t s -l 'SELECT m. FROM movies m'
tm send-keys -t s Left Left Left Left Left Left Left Left Left Left Left Left Left Left Tab
sleep 1
capture shell

tm send-keys -t s C-c
tm send-keys -t s C-l
enter '.view record run.jsonl'
see 'is recorded'
enter ".view SELECT m.genre, count(*) FROM reviews r JOIN movies m ON r.movie = m.id WHERE LLM('Is the review positive or negative?', r.review, m.synopsis) = 'positive' GROUP BY m.genre"
see 'LLM#1'
see '1[0-9][0-9] of 240'
sleep 0.4
capture view
see 'LLM 1 of 1  done'
tm send-keys -t s 2
see 'faster than'
capture compare
tm send-keys -t s q
see 'rows asked'
cp "$work/run.jsonl" tutorials/data/run.jsonl
ls -l tutorials/pictures tutorials/data/run.jsonl
