"""Bash completion: commands, flags of a command, and names of the store."""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build.resolve()
    with tempfile.TemporaryDirectory() as home:
        (pathlib.Path(home) / "models" / "smollm2").mkdir(parents=True)

        def complete(*words):
            script = ('source tools/completions/churon.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _churon; '
                      'printf "%s\\n" "${COMPREPLY[@]}"')
            env = {**os.environ, "CHURON_HOME": home}
            done = subprocess.run(["bash", "-c", script, "bash", str(build / "churon"), *words], cwd=TOP, env=env,
                                  capture_output=True, text=True, check=True)
            return done.stdout.split()

        for words, want in ((("",), "pull"), (("pu",), "pull"), (("run", "--temp"), "--temperature"), (("run", "smo"), "smollm2"),
                            (("pull", "--"), "--sha256")):
            got = complete(*words)
            if want not in got or "churon" in got:
                print(f"churon {' '.join(words)}<Tab>: expected {want}, got {got}")
                return 1
    return 0


sys.exit(main())
