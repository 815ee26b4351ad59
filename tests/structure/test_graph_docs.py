"""docs/graphs.md lists the passes that `churon inspect --passes` lists, in the same order, and names every option that
the commands show for a graph, or docs/commands.md or docs/server.md does."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
MODEL = TOP / "examples" / "iris.onnx"


def table_of_passes(text):
    section = text.split("## What makes it fast", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.M)


def options_of(program, command):
    shown = subprocess.run([program, command, MODEL, "--help"], capture_output=True, text=True, check=True).stdout
    own = shown.split("\nOptions:\n", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^  (?:-\w, )?--([a-z-]+)", own, re.M)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    program = parser.parse_args().build.resolve() / "churon"
    graphs, *others = ((TOP / "docs" / f"{n}.md").read_text() for n in ("graphs", "commands", "server"))
    assert table_of_passes("## What makes it fast\n| `a` | x |\n| `b-1` | y |\n## Z\n| `c` |") == ["a", "b-1"]
    found = []
    listed = subprocess.run([program, "inspect", MODEL, "--passes", "--json"], capture_output=True, text=True, check=True).stdout
    names = [p["name"] for p in json.loads(listed)["passes"]]
    if table_of_passes(graphs) != names:
        found.append(f"docs/graphs.md: passes: expected {', '.join(names)}, got {', '.join(table_of_passes(graphs))}")
    for command in ("run", "inspect", "verify", "bench", "serve"):
        options = options_of(program, command)
        assert "provider" in options, f"{command}: no options were found in its help"
        for o in options:
            if not re.search(rf"`(-\w`, `)?--{o}[ `\[=]", graphs + "".join(others)):
                found.append(f"docs: churon {command}: option --{o} is not described")
    print("\n".join(found) or f"{len(names)} passes")
    return 1 if found else 0


sys.exit(main())
