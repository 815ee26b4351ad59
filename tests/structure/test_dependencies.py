"""tools/install-deps.sh with stand-ins for the system's programs: silent and quick when nothing is missing, installs
exactly what is, renews the lists once, and says what to install where it cannot."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = TOP / "tools" / "install-deps.sh"

# Says "installed" for every package that is asked for and not in $MISSING.
DPKG_QUERY = """shift 2
for p in "$@"; do case " $MISSING " in *" $p "*) ;; *) echo "installed $p";; esac; done
[ -z "$MISSING" ]
"""
APT_GET = 'echo "apt-get $*" >> "$CALLS"; case "$*" in *install*) [ ! -e "$STALE" ];; *update*) rm -f "$STALE";; esac\n'
TOOLS = ("bash", "sed", "sort", "comm", "dirname", "cat", "env", "rm", "sh")


def main():
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        calls, stale, bin = work / "calls", work / "stale", work / "bin"
        bin.mkdir()
        for tool in TOOLS:
            found = subprocess.run(["sh", "-c", f"command -v {tool}"], capture_output=True, text=True).stdout.strip()
            (bin / tool).symlink_to(found)

        def program(name, text):
            (bin / name).write_text("#!/bin/sh\n" + text)
            (bin / name).chmod(0o755)

        def run(*args, missing=""):
            calls.unlink(missing_ok=True)
            env = {"PATH": str(bin), "MISSING": missing, "CALLS": str(calls), "STALE": str(stale)}
            done = subprocess.run(["bash", SCRIPT, *args], env=env, capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr, calls.read_text().splitlines() if calls.exists() else []

        def expect(what, got, good):
            if not good:
                faults.append(f"{what}: got {got}")

        program("dpkg-query", DPKG_QUERY)
        program("apt-get", APT_GET)
        program("id", "echo 0\n")

        start = time.perf_counter()
        got = run("run", "test")
        expect("nothing missing", got, got == (0, "", []))
        expect("nothing missing, seconds", time.perf_counter() - start, time.perf_counter() - start < 1)

        got = run("run", missing="cmake libevent-dev")
        expect("two missing", got, got[0] == 0 and len(got[2]) == 1 and got[2][0].endswith("cmake libevent-dev"))
        got = run("run", missing="libcmocka-dev")
        expect("missing in a group that is not asked for", got, got[2] == [])

        stale.touch()
        got = run("run", missing="cmake")
        expect("old lists", got, got[0] == 0 and ["update" in c for c in got[2]] == [False, True, False])

        got = run("--check", "run", missing="cmake")
        expect("--check", got, got[0] == 1 and "apt-get install cmake" in got[1] and got[2] == [])
        got = run("nonsense")
        expect("unknown group", got, got[0] == 2)

        program("id", "echo 1000\n")
        got = run("run", missing="cmake")
        expect("no root, no sudo", got, got[0] == 1 and "cmake" in got[1] and got[2] == [])
        program("sudo", 'exec "$@"\n')
        got = run("run", missing="cmake")
        expect("sudo", got, got[0] == 0 and len(got[2]) == 1)

        (bin / "apt-get").unlink()
        got = run("run")
        expect("another system", got, got[0] == 1 and "Please install" in got[1] and "cmake" in got[1])
        for tool in ("cc", "cmake", "ninja", "python3", "pkg-config"):
            program(tool, "exit 0\n")
        got = run("run", "test")
        expect("another system that has everything", got, got[0] == 0 and got[1] == "")
    print("\n".join(faults) or "10 cases")
    return 1 if faults else 0


sys.exit(main())
