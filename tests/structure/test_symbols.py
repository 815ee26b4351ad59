"""What the libraries show: names that begin with churon_, all of churon.h, and no library beyond the few that the
engine, with CHURON_PIPELINE the bundles and the registry, may need."""

import argparse
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
MAY_NEED = ("libc.so", "libm.so", "libutf8proc.so", "libpcre2-8.so", "ld-linux", "libgcc_s.so")
PIPELINE_NEEDS = ("libcrypto.so", "libjansson.so", "libsqlite3.so", "libyaml-0.so", "libzstd.so")
MEDIA_NEEDS = ("libjpeg.so", "libpng16.so", "libwebp.so", "libsndfile.so")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def names(*command):
    return {line.split()[-1].split("@")[0] for line in run(*command).splitlines() if len(line.split()) >= 2}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build
    found = []
    cache = (build / "CMakeCache.txt").read_text()
    may_need = MAY_NEED
    for option, more in (("CHURON_PIPELINE", PIPELINE_NEEDS), ("CHURON_MEDIA", MEDIA_NEEDS)):
        may_need += more if re.search(rf"^{option}:BOOL=ON$", cache, re.M) else ()
    declared = set(re.findall(r"CHURON_API[^;]*?\b(churon_\w+)\s*\(", (TOP / "include" / "churon.h").read_text()))
    assert "churon_version" in declared and len(declared) > 10, declared
    for what, shown in (("libchuron.so", names("nm", "-D", "--defined-only", build / "libchuron.so")),
                        ("libchuron.a", names("nm", "-g", "--defined-only", build / "libchuron.a"))):
        found += [f"{what}: {name}: expected a name that begins with churon_" for name in sorted(shown)
                  if not name.startswith("churon_")]
        found += [f"{what}: {name} is in churon.h and not in the library" for name in sorted(declared - shown)]
        found += [f"{what}: {name} is in the library and not in churon.h" for name in sorted(shown - declared)
                  if name.startswith("churon_")]
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", build / "libchuron.so"))
    found += [f"libchuron.so: needs {n}" for n in needed if not n.startswith(may_need)]
    print("\n".join(found) or f"{len(declared)} functions")
    return 1 if found else 0


sys.exit(main())
