"""Every function of the dispatch table has its test (tests/unit/test_kernel*.c, which run every instruction set
of the machine) and its row in the benchmark (src/bench)."""

import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def main():
    header = re.sub(r"/\*.*?\*/", "", (TOP / "src/kernel/kernel.h").read_text(), flags=re.S)
    table = re.search(r"typedef struct kernels \{(.*?)\n\} kernels;", header, re.S).group(1)
    names = re.findall(r"\(\*(\w+)\)\s*\(", table)
    assert "matmul" in names and len(names) > 10, names
    found = []
    for what, pattern in (("test", "tests/unit/test_kernel*.c"), ("benchmark row", "src/bench/*.c")):
        text = "".join(p.read_text() for p in TOP.glob(pattern))
        found += [f"kernels.{n}: no {what} in {pattern}" for n in names if not re.search(rf"(->|\.|\")\s*{n}\b", text)]
    print("\n".join(found) or f"{len(names)} kernels")
    return 1 if found else 0


sys.exit(main())
