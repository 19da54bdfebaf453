"""What comments and pages cite: files of the repository, documents with a section, links and headings.

citations() yields one line for each that is not there: "FILE cites NAME, which is not in the repository".
"""
import os
import re

SOURCE = re.compile(r"\.(c|h|y|re|cu|cuh)$")
SCRIPT = re.compile(r"(\.(sh|py|cmake)|CMakeLists\.txt)$")
# Files of other projects that comments name.
FOREIGN = {"mdb.c", "gguf.md"}
# Upper-case words before a number that are no documents, besides SQL's keywords.
WORDS = set("INTEGER REAL TEXT BOOLEAN BLOB CUDA LMDB VNNI AVX AMX UTF".split())
C_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)
SCRIPT_COMMENT = re.compile(r'(?:^|(?<=\s))#[^\n]*|""".*?"""', re.S | re.M)
FILE_NAME = re.compile(r"(?<![\w/.<>*$}-])((?:[\w.-]+/)*[A-Za-z0-9](?:[\w-]|\.(?!\.))+\.(?:c|h|y|re|cu|cuh|md|sh|py))\b(?![\w(/])")
DOCUMENT = re.compile(r"\b([A-Z]{4,}) \d+(?:\.\d+)*\b")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def files_of(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in (".git", "build", "corpus", "shared")]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root)


def split(path, text):
    """(comments, the rest) of a source or a script; a page is all comment."""
    if path.endswith(".md"):
        return text, ""
    if SOURCE.search(path):
        comments = [t for t in C_TOKEN.findall(text) if t[0] == "/"]
        return "\n".join(comments), C_TOKEN.sub(lambda m: " " if m[0][0] == "/" else m[0], text)
    comments = SCRIPT_COMMENT.findall(text)
    return "\n".join(comments), SCRIPT_COMMENT.sub(" ", text)


def one_line(comments):
    """Comments as running text: line ends and rulers gone, so that 'DESIGN\n * 2.1' is found as well."""
    return re.sub(r"-{3,}", " ", re.sub(r"\s*\n[ \t]*[*#/]*[ \t]*", " ", comments))


def anchors(text):
    """The names by which a page's headings are linked."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    for heading in re.findall(r"^#+ +(.*)", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def broken_links(path, text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(file):
            yield link
        elif anchor and file.endswith(".md") and anchor not in anchors(open(file, encoding="utf-8").read()):
            yield link


def keywords():
    if not os.path.exists("sql/words/keywords.c"):
        return set()
    return set(re.findall(r"X\((\w+)\)", open("sql/words/keywords.c", encoding="utf-8").read()))


def citations():
    paths = sorted(files_of("."))
    by_name = {}
    for path in paths:
        by_name.setdefault(os.path.basename(path), []).append(path)
    known_words = keywords() | WORDS
    for path in paths:
        if not (path.endswith(".md") or SOURCE.search(path) or SCRIPT.search(path)):
            continue
        comments, code = split(path, open(path, encoding="utf-8").read())
        # A lesson's reader makes files of their own: those whose text the page shows, which begins with their name.
        shown = {os.path.basename(n) for n in re.findall(r"^ \* (\S+) - ", comments, re.M)} if path.endswith(".md") else set()
        running = one_line(comments)
        wrong = set()
        for name in FILE_NAME.findall(running):
            base = os.path.basename(name)
            there = any(p == name or p.endswith("/" + name) for p in by_name.get(base, []))
            if not (there or os.path.exists(os.path.join(os.path.dirname(path), name)) or base in code or base in shown | FOREIGN):
                wrong.add(name)
        documents = re.sub(r"```.*?```|`[^`]*`", "", running, flags=re.S) if path.endswith(".md") else running
        wrong.update(set(DOCUMENT.findall(documents)) - known_words)
        if path.endswith(".md"):
            wrong.update(broken_links(path, comments))
        for name in sorted(wrong):
            yield "%s cites %s, which is not in the repository" % (path, name)
