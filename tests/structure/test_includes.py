"""Includes point along the order of rooms in docs/architecture.md, and rooms on one line do not know each other."""

import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def order():
    text = (TOP / "docs" / "architecture.md").read_text()
    block = re.search(r"^```rooms\n(.*?)^```", text, re.M | re.S).group(1)
    return {room: i for i, line in enumerate(block.split("\n")) for room in line.replace("|", " ").split()}


def faults(path, room, text, rooms):
    for target in INCLUDE.findall(text):
        if target == "churon.h":
            continue
        to = target.split("/")[0]
        if "/" not in target or not (TOP / "src" / target).is_file():
            yield f"{path}: \"{target}\": expected a path from src/, got one that is not there"
        elif to not in rooms:
            yield f"{path}: \"{target}\": room {to} is not in the list of docs/architecture.md"
        elif to != room and rooms[to] >= rooms[room]:
            yield f"{path}: \"{target}\": {room} may not know {to}"


def check(files, rooms):
    found = []
    for path in files:
        room = path.relative_to(TOP / "src").parts[0]
        if room not in rooms:
            found.append(f"{path}: room {room} is not in the list of docs/architecture.md")
        else:
            found += faults(path.relative_to(TOP), room, path.read_text(), rooms)
    return found


def main():
    rooms = order()
    # The check itself: these must be found.
    assert list(faults("x", "base", '#include "kernel/kernel.h"\n', rooms)), "base may not know kernel"
    assert list(faults("x", "lm", '#include "graph/none.h"\n', rooms)), "a header that is not there"
    assert not list(faults("x", "lm", '#include "base/str.h"\n#include "churon.h"\n#include <stdio.h>\n', rooms))
    header = (TOP / "include" / "churon.h").read_text()
    found = [f"include/churon.h includes {t}" for t in INCLUDE.findall(header)]
    files = [p for p in (TOP / "src").rglob("*") if p.suffix in (".c", ".h", ".inc")]
    found += check(files, rooms)
    print("\n".join(found) or f"{len(files)} files")
    return 1 if found else 0


sys.exit(main())
