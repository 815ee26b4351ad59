"""The commands of README.md and docs/*.md.

```sh test and ```python test blocks run, those of one file in order and in one shell, from a folder that looks like
the top folder, with the program on PATH and the real model in a store of its own as smollm2. `churon serve` there
is started in the background and waited for. In a plain ```sh block every `make TARGET` must exist, and every flag of
a `churon COMMAND` must be in its --help. Exit 77 (skip) if the real model cannot be had."""

import argparse
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "tools"))

import real_model  # noqa: E402

BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.M | re.S)
TIME_LIMIT = 280

PRELUDE = r"""
set -euo pipefail
wait_for_server() {
    for _ in $(seq 300); do
        if ! kill -0 "$1" 2>/dev/null; then cat "$2" >&2; return 1; fi
        if grep -q '^ready' "$2"; then return 0; fi
        sleep 0.1
    done
    echo "churon serve: not ready in 30 s" >&2
    return 1
}
churon() {
    if [ "${1:-}" != serve ]; then command churon "$@"; return; fi
    local log
    log=$(mktemp -p .)
    command churon "$@" 2>"$log" &
    wait_for_server $! "$log"
}
curl() { command curl --no-progress-meter --fail-with-body --retry 30 --retry-connrefused --retry-delay 1 "$@"; }
"""


def blocks(path):
    text = path.read_text()
    for m in BLOCK.finditer(text):
        yield text[: m.start()].count("\n") + 1, m.group(1), m.group(2).split(), m.group(3)


def script_of(path):
    parts = []
    for line, language, words, body in blocks(path):
        if "test" not in words:
            continue
        where = f"{path.relative_to(TOP)}:{line}"
        parts.append(f"echo '-- {where}' >&2")
        if language in ("sh", "bash"):
            parts.append(body)
        elif language == "python":
            parts.append(f"python3 - <<'END-OF-BLOCK'\n{body}END-OF-BLOCK")
        else:
            parts.append(f"echo '{where}: cannot run {language}'; false")
    return "\n".join(parts)


# ---- plain blocks ----------------------------------------------------------------------------------------


def commands(body):
    """The simple commands of a block, as lists of words."""
    for line in body.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        start = 0
        for i, word in enumerate([*words, ";"]):
            if word in (";", "|", "&&", "||", "&"):
                if words[start:i]:
                    yield words[start:i]
                start = i + 1


def check_plain(path, helps, targets):
    for line, language, words, body in blocks(path):
        if language not in ("sh", "bash") or "test" in words:
            continue
        where = f"{path.relative_to(TOP)}:{line}"
        if subprocess.run(["bash", "-n"], input=body, text=True, capture_output=True).returncode != 0:
            yield f"{where}: not a shell script"
        for command in commands(body):
            program = command[0].rsplit("/", 1)[-1]
            if program == "make":
                for t in command[1:]:
                    if re.fullmatch(r"[a-z][a-z-]*", t) and t not in targets:
                        yield f"{where}: make {t}: no such target"
            elif program == "churon" and len(command) > 1 and not command[1].startswith("-"):
                text = helps(command[1])
                if text is None:
                    yield f"{where}: churon {command[1]}: no such command"
                    continue
                for flag in (w.split("=")[0] for w in command[2:] if re.match(r"--[a-z]", w)):
                    if not re.search(rf"{flag}\b", text):
                        yield f"{where}: churon {command[1]} {flag}: not in its --help"


def help_of(program):
    known = {}

    def get(command):
        if command not in known:
            done = subprocess.run([program, command, "--help"], capture_output=True, text=True)
            known[command] = done.stdout if done.returncode == 0 else None
        return known[command]

    return get


# ---- running ---------------------------------------------------------------------------------------------


def look_alike(folder):
    """A folder with the top folder's contents by links: what a command writes does not land in the repository."""
    for entry in TOP.iterdir():
        if entry.name != ".git":
            (folder / entry.name).symlink_to(entry)


def isolated():
    """A network of its own with only the loopback, so that port 8080 is free; [] where that is not allowed."""
    prefix = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    try:
        works = subprocess.run([*prefix, "true"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    return prefix if works else []


def run(path, script, env, prefix):
    with tempfile.TemporaryDirectory() as folder:
        look_alike(pathlib.Path(folder))
        with open(pathlib.Path(folder) / ".log", "w+") as log:
            p = subprocess.Popen([*prefix, "bash", "-c", PRELUDE + script], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                                 stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = p.wait(TIME_LIMIT)
            except subprocess.TimeoutExpired:
                code = f"more than {TIME_LIMIT} s"
            for sig in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(p.pid, sig)
                except ProcessLookupError:
                    break
            p.wait()
            log.seek(0)
            text = log.read()
    if code == 0:
        return []
    return [f"{path.relative_to(TOP)}: status {code}; the last lines are:", *text.splitlines()[-25:]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build.resolve()
    program = build / "churon"
    pages = [p for p in [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))] if p.exists()]
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.M))
    found = [f for page in pages for f in check_plain(page, help_of(program), targets)]
    model, reason = real_model.get()
    scripts = {page: s for page in pages if (s := script_of(page))}
    if reason:
        print(*found, f"skip: {reason}", sep="\n")
        return 1 if found else 77
    prefix = isolated()
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "CHURON_HOME": home, "NO_COLOR": "1",
               "PATH": f"{build}:{TOP / 'build' / 'venv' / 'bin'}:{os.environ['PATH']}"}
        subprocess.run([program, "pull", model, "--as", "smollm2", "--quiet"], env=env, check=True)
        for page, script in scripts.items():
            found += run(page, script, env, prefix)
    print("\n".join(found) or f"{len(scripts)} pages")
    return 1 if found else 0


sys.exit(main())
