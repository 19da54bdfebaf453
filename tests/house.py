"""The arrows between sub-rooms, from includes and from the functions that each object file uses; and what is cited.

    python3 tests/house.py [BUILD]      BUILD: a build folder, whose libkvasir_*.a say which file uses which function of which

Prints one line for each arrow that goes up, each circle of more than MOST files that call each other, and each file name that
two sub-rooms share, and each file, document or link that a comment or a page cites and that is not there (citations.py).
Exits 1 if there is any that tests/house.exceptions does not name, or if that file names one that is gone.
"""
import os
import re
import subprocess
import sys

from citations import citations

MOST = 6
# Each sub-room with those of its room that it may use. '' is the room's own folder: its public header, and what opens the room.
MAY_USE = {
    "storage": {
        "base": "",
        "file": "base",
        "csv": "base file",
        "json": "base file",
        "lmdb": "base",
        "tables": "base lmdb",
        "cache": "base lmdb",
        "": "base tables cache file csv json",
    },
    "gpu": {
        "model": "",
        "text": "model",
        "engine": "model text",
        "cpu": "model text engine",
        "cuda": "model text engine cpu",
        "session": "model text engine",
        "remote": "model text engine session",
        "": "model text engine cpu cuda session remote",
    },
    "sql": {"words": "", "tree": "words", "parse": "words tree", "bind": "words tree parse"},
    "planner": {
        "psm": "",
        "core": "",
        "cost": "core psm",
        "rules": "core cost psm",
        "plan": "core cost rules psm",
        "explain": "core cost rules plan psm",
    },
    "exec": {
        "core": "",
        "rows": "core",
        "eval": "core rows",
        "ops": "core rows eval",
        "llm": "core rows eval ops",
        "system": "core rows eval ops llm",
        "stmt": "core rows eval ops llm system",
    },
    "shell": {
        "term": "",
        "format": "term",
        "view": "term format",
        "core": "term format view",
        "commands": "term format view core",
        "edit": "term format view core commands",
        "run": "term format view core commands edit",
    },
}
# The public headers that each room may include, its own among them.
CONTAINERS = "storage/base.h storage/containers.h"
BELOW_SQL = "storage/storage.h " + CONTAINERS
BELOW_EXEC = "planner/planner.h planner/psm.h sql/sql.h " + BELOW_SQL
HEADERS = {
    "storage": BELOW_SQL,
    "gpu": "gpu/llm.h " + CONTAINERS,
    "sql": "sql/sql.h " + BELOW_SQL,
    "planner": BELOW_EXEC,
    "exec": "exec/exec.h gpu/llm.h " + BELOW_EXEC,
    "shell": "shell/shell.h exec/exec.h gpu/llm.h " + BELOW_EXEC,
}
SOURCE = re.compile(r"\.(c|h|y|re|cu|cuh)$")


def sources():
    """Every source file of the six rooms: path -> (room, sub-room)."""
    found = {}
    for room in MAY_USE:
        for folder, _, names in os.walk(room):
            for name in names:
                if SOURCE.search(name):
                    found[os.path.join(folder, name)] = (room, os.path.relpath(folder, room).replace(".", "", 1))
    return found


def goes_up(user, used):
    """Whether an arrow between two places (room, sub-room) of one room is not in MAY_USE."""
    if user[0] != used[0] or user[1] == used[1] or used[1] == "":
        return False
    return used[1] not in MAY_USE[user[0]].get(user[1], "").split()


def includes(path):
    text = open(path, encoding="utf-8").read()
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.M)


def include_arrows(files):
    for path in files:
        room = files[path][0]
        for header in includes(path):
            for target in (os.path.join(os.path.dirname(path), header), header, os.path.join(room, header)):
                if target in files:
                    yield path, target, "#include"
                    break


def function_arrows(files, build):
    """(user, used, symbol) for each symbol that one file of a room takes from another of the same room."""
    made = {"lex.c": "lex.re", "grammar.c": "grammar.y"}
    for archive in ("base", "storage", "gpu", "sql", "planner", "exec", "shell"):
        room = "storage" if archive == "base" else archive
        path_of = {os.path.basename(p): p for p, place in files.items() if place[0] == room}
        listing = ""
        for library in {"base", "storage"} if room == "storage" else {archive}:
            name = "%s/%s/libkvasir_%s.a" % (build, room, library)
            listing += subprocess.run(["nm", "-A", "-P", name], check=True, capture_output=True, text=True).stdout
        if archive == "storage":
            continue  # read with base: one room
        defined, used = {}, []
        for line in listing.splitlines():
            match = re.match(r"[^\[]*\[([^\]]+)\.o\]: (\S+) (\S)", line)
            if not match:
                continue
            file, symbol, kind = match.groups()
            path = path_of.get(made.get(file, file))
            if path is None:
                continue
            if kind == "U":
                used.append((path, symbol))
            elif kind in "TDBRVWC":
                defined[symbol] = path
        for path, symbol in used:
            if symbol in defined and defined[symbol] != path:
                yield path, defined[symbol], symbol


def circles(arrows):
    """Strongly connected components (Tarjan 1972) of more than MOST files, each as a sorted list."""
    graph = {}
    for user, used, _ in arrows:
        graph.setdefault(user, set()).add(used)
        graph.setdefault(used, set())
    index, low, stack, found = {}, {}, [], []
    sys.setrecursionlimit(10000)

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = []
            while not part or part[-1] != node:
                part.append(stack.pop())
            if len(part) > MOST:
                found.append(sorted(part))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def findings(build):
    files = sources()
    for path, (room, _) in files.items():
        for header in includes(path):
            if header.split("/")[0] in MAY_USE and header not in HEADERS[room].split():
                yield "%s includes %s: no public header of a room below" % (path, header)
    arrows = list(include_arrows(files))
    calls = list(function_arrows(files, build)) if build else []
    for user, used, symbol in sorted(set(arrows + calls)):
        if goes_up(files[user], files[used]):
            yield "%s uses %s of %s: against the arrows" % (user, symbol, used)
    for part in circles(calls):
        yield "circle of %d files that call each other: %s" % (len(part), " ".join(part))
    places = {}
    for path in [path for path, place in files.items() if place[1]]:
        stem = os.path.splitext(os.path.basename(path))[0]
        places.setdefault((files[path][0] if stem.endswith("_int") else "", stem), set()).add(os.path.dirname(path))
    for (_, stem), folders in sorted(places.items()):
        if len(folders) > 1:
            yield "the file name %s stands in %s" % (stem, " and ".join(sorted(folders)))
    yield from citations()


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    build = sys.argv[1] if len(sys.argv) > 1 else None
    excepted = set()
    if os.path.exists("tests/house.exceptions"):
        excepted = {line.strip() for line in open("tests/house.exceptions") if line.strip() and not line.startswith("#")}
    found = set(findings(build))
    for line in sorted(found - excepted):
        print(line)
    gone = sorted(excepted - found) if build else []
    for line in gone:
        print("tests/house.exceptions names what is not there any more: " + line)
    return 1 if found - excepted or gone else 0


if __name__ == "__main__":
    sys.exit(main())
