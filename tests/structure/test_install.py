"""Installs into an empty folder and uses what lies there as a stranger would: the program, the shared library
through pkg-config, the static library, the CMake package; the folder may be moved."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

USER = """#include <churon.h>
#include <stdio.h>
/* A name that the inside of the library uses too: it must not clash. */
int gguf_open(void);
int gguf_open(void) { return 7; }
int main(void) {
    churon_error err;
    churon_model *m;
    if (churon_model_open(&m, "/nowhere.gguf", NULL, &err) == CHURON_OK) return 1;
    printf("%s %d %s\\n", churon_version(), gguf_open(), churon_status_name(err.code));
    return 0;
}
"""
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(churon REQUIRED)
add_executable(shared user.c)
target_link_libraries(shared churon::churon)
add_executable(static user.c)
target_link_libraries(static churon::static)
"""


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def find(prefix, name):
    found = list(prefix.rglob(name))
    if len(found) != 1:
        sys.exit(f"{name}: expected one below the prefix, got {found}")
    return found[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        run("cmake", "--install", build, "--prefix", "/opt/churon", env={**os.environ, "DESTDIR": folder})
        prefix = work / "moved"
        shutil.move(work / "opt" / "churon", prefix)
        for name in ("churon.h", "libchuron.a", "libchuron.so", "churon.pc", "churonConfig.cmake", "churon.1", "_churon", "LICENSE"):
            find(prefix, name)
        if not (prefix / "share/bash-completion/completions/churon").is_file():
            sys.exit("bash completion: not installed")
        version = re.search(r"\d+\.\d+\.\d+", run(prefix / "bin" / "churon", "--version")).group(0)

        (work / "user.c").write_text(USER)
        want = f"{version} 7 not found\n"
        libs = find(prefix, "libchuron.so").parent
        env = {**os.environ, "PKG_CONFIG_PATH": str(libs / "pkgconfig"), "LD_LIBRARY_PATH": str(libs)}
        flags = run("pkg-config", "--cflags", "--libs", "churon", env=env).split()
        if run("pkg-config", "--modversion", "churon", env=env).strip() != version:
            sys.exit("churon.pc: version differs from the program's")
        results = {}
        run("cc", work / "user.c", *flags, "-o", work / "by_pkg_config")
        private = [f for f in run("pkg-config", "--static", "--libs-only-l", "churon", env=env).split() if f != "-lchuron"]
        results["pkg-config"] = run(work / "by_pkg_config", env=env)
        run("cc", work / "user.c", f"-I{prefix}/include", libs / "libchuron.a", *private, "-o", work / "by_archive")
        results["libchuron.a"] = run(work / "by_archive")
        (work / "CMakeLists.txt").write_text(CMAKE)
        run("cmake", "-S", work, "-B", work / "b", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", work / "b")
        results["CMake, shared"] = run(work / "b" / "shared")
        results["CMake, static"] = run(work / "b" / "static")
        wrong = {how: got for how, got in results.items() if got != want}
        print(f"expected {want!r}, got {wrong}" if wrong else f"{len(results)} ways to link")
        return 1 if wrong else 0


sys.exit(main())
