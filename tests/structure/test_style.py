"""What formatting and compilers do not see: file lengths, allocation outside base/mem.h, leaving or printing from
a library, tests that include sources, work that was put off."""

import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
MAX_LINES = 1200

# (what, pattern, which files, exceptions)
RULES = [
    ("allocation outside base/mem.h", r"(?<![\w.>])(malloc|calloc|realloc|strdup|strndup|posix_memalign|aligned_alloc|alloca)\s*\(",
     "src/**/*.[ch]", {"src/base/mem.c", "src/base/mem.h"}),
    ("leaving or printing from a library", r"(?<![\w.>])(exit|_exit|abort|printf|puts|perror)\s*\(",
     "src/**/*.[ch]", {"src/base/mem.c"}),
    ("a test that includes a source", r'#\s*include\s*"[^"]*\.c"', "tests/**/*.[ch]", set()),
    ("work put off", r"\b(TODO|FIXME|XXX)\b", "src/**/*.[ch]", set()),
    ("work put off", r"\b(TODO|FIXME)\b", "tests/**/*.[ch]", set()),
]


def code(text):
    """Without comments and strings, line numbers kept."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def main():
    found = []
    sample = code('/* malloc(3) */ char *s = "exit(1)"; p = malloc(3); x->free(p); exit(1); mem_free(p);')
    assert [re.findall(RULES[i][1], sample) for i in (0, 1)] == [["malloc"], ["exit"]], "the check itself"
    for what, pattern, files, exceptions in RULES:
        for path in sorted(TOP.glob(files)):
            name = path.relative_to(TOP).as_posix()
            if name in exceptions or (what.startswith("leaving") and name.startswith("src/cli/")):
                continue
            text = path.read_text()
            text = text if "put off" in what or "include" in pattern else code(text)
            for m in re.finditer(pattern, text):
                found.append(f"{name}:{text[: m.start()].count(chr(10)) + 1}: {what}: {m.group(0).strip()}")
    for path in [*TOP.glob("src/**/*.[ch]"), *TOP.glob("tests/**/*.[ch]")]:
        lines = path.read_text().count("\n")
        if lines > MAX_LINES:
            found.append(f"{path.relative_to(TOP)}: expected at most {MAX_LINES} lines, got {lines}")
    print("\n".join(found) or "clean")
    return 1 if found else 0


sys.exit(main())
