"""Runs commands and draws what a terminal shows as an SVG: the pictures in the documents are real output.

    tools/terminal_svg.py OUT.svg 'COMMAND' ['COMMAND' ...]

Each command is a bash command line, shown after a prompt; it runs on a pseudo-terminal, so it behaves as it does for a
person. Environment: COLUMNS (default 92), TITLE."""

import html
import os
import pty
import re
import sys
import unicodedata

COLUMNS = int(os.environ.get("COLUMNS", "92"))
CELL, LINE, PAD, BAR = 8.4, 19, 16, 34
STYLE = """
.b{fill:#101418}.t{fill:#d7dde4}.p{fill:#7ee787}.d{fill:#8b98a5}
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}"""


def output_of(command):
    """What the command writes to a terminal, as plain text."""
    seen = bytearray()

    def keep(fd):
        data = os.read(fd, 65536)
        seen.extend(data)
        return data  # "" would end the session; stdout is the null device

    os.environ.update(TERM="xterm", NO_COLOR="1", COLUMNS=str(COLUMNS))
    stdout = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        status = pty.spawn(["bash", "-c", command], keep, lambda fd: os.read(fd, 1024))
    finally:
        os.dup2(stdout, 1)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"failed: {command}\n{seen.decode(errors='replace')}")
    text = seen.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = []
    for line in text.split("\n"):
        line = line.rsplit("\r\x1b[K", 1)[-1].rsplit("\r", 1)[-1]  # a bar that was erased
        lines.append(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line))
    return "\n".join(lines).strip("\n")


def width(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text if not unicodedata.combining(c))


def wrapped(text):
    """Lines of at most COLUMNS, broken between words as a reader would want them."""
    for line in text.split("\n"):
        while width(line) > COLUMNS:
            cut = line.rfind(" ", 0, COLUMNS + 1)
            cut = cut if cut > COLUMNS // 2 else COLUMNS
            yield line[:cut]
            line = line[cut:].lstrip()
        yield line


def main():
    target, commands = sys.argv[1], sys.argv[2:]
    rows = []
    for command in commands:
        if rows:
            rows.append(("t", ""))
        shown = [("p", f"$ {command}")]
        for line in wrapped(output_of(command)):
            shown.append(("d" if re.match(r"prompt \d+ tokens", line) else "t", line))
        rows += shown
    w, h = COLUMNS * CELL + 2 * PAD, len(rows) * LINE + BAR + PAD
    title = html.escape(os.environ.get("TITLE", "churon"))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:.0f} {h}" width="{w:.0f}" height="{h}" role="img">',
           f"<title>{title}</title><style>{STYLE}</style>", f'<rect class="b" width="{w:.0f}" height="{h}" rx="8"/>']
    out += [f'<circle cx="{PAD + 4 + 18 * i}" cy="17" r="5.5" fill="{c}"/>'
            for i, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))]
    for i, (kind, text) in enumerate(rows):
        out.append(f'<text class="{kind}" x="{PAD}" y="{BAR + LINE * (i + 1) - 5}">{html.escape(text)}</text>')
    with open(target, "w") as f:
        f.write("\n".join([*out, "</svg>", ""]))


main()
