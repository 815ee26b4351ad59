"""With CHURON_PROGRAM=OFF the engine library is configured where no library but utf8proc and PCRE2 is installed."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "pc").mkdir()
        for name in ("libutf8proc", "libpcre2-8"):
            where = subprocess.run(["pkg-config", "--variable=pcfiledir", name], capture_output=True, text=True, check=True)
            shutil.copy(pathlib.Path(where.stdout.strip()) / f"{name}.pc", work / "pc")
        env = {**os.environ, "PKG_CONFIG_LIBDIR": str(work / "pc")}
        done = subprocess.run(["cmake", "-S", TOP, "-B", work / "b", "-G", "Ninja", "-DCHURON_PROGRAM=OFF"], env=env,
                              capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout, done.stderr)
            return 1
        commands = json.loads((work / "b" / "compile_commands.json").read_text())
        targets = subprocess.run(["ninja", "-C", work / "b", "-t", "targets", "all"], capture_output=True, text=True, check=True)
    rooms = {pathlib.Path(c["file"]).relative_to(TOP / "src").parts[0] for c in commands}
    files = {pathlib.Path(c["file"]).relative_to(TOP / "src").as_posix() for c in commands}
    strangers = (files & {"base/digest.c", "bundle/pack.c"}) | rooms & {"registry", "observe", "serve", "bench", "cli"}
    if strangers or not rooms or "libchuron.so" not in targets.stdout or "libchuron.a" not in targets.stdout:
        print("expected the engine's libraries and none of the program's rooms, got", rooms, strangers)
        return 1
    return 0


sys.exit(main())
