"""churon.h alone, as C11 and as C++17, without extensions and without a warning; at most 400 lines."""

import pathlib
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
HEADER = TOP / "include" / "churon.h"
STRICT = ["-pedantic-errors", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only"]


def main():
    bad = 0
    lines = len(HEADER.read_text().splitlines())
    if lines > 400:
        print(f"include/churon.h: expected at most 400 lines, got {lines}")
        bad += 1
    # Included twice: the guard works too.
    source = '#include "churon.h"\n#include "churon.h"\nint main() { return churon_version() == 0; }\n'
    with tempfile.TemporaryDirectory() as folder:
        for compiler, standard, suffix in (("cc", "-std=c11", ".c"), ("c++", "-std=c++17", ".cpp")):
            file = pathlib.Path(folder) / f"alone{suffix}"
            file.write_text(source if suffix == ".cpp" else source.replace("main()", "main(void)"))
            done = subprocess.run([compiler, standard, *STRICT, "-I", HEADER.parent, file], capture_output=True, text=True)
            if done.returncode != 0:
                print(f"{compiler} {standard}:\n{done.stderr}")
                bad += 1
    return 1 if bad else 0


sys.exit(main())
