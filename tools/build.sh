#!/bin/bash
# build.sh PRESET [TARGET...]: configures when needed and builds, showing little unless something fails.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
mkdir -p "build/$preset"
log=build/$preset/configure.log
if [ ! -f "build/$preset/build.ninja" ]; then
    cmake --preset "$preset" >"$log" 2>&1 || { tail -30 "$log"; exit 1; }
fi
if [ -t 1 ]; then
    [ "$(ninja -C "build/$preset" -n "$@" | tail -n 1)" = "ninja: no work to do." ] || ninja -C "build/$preset" "$@"
else
    ninja -C "build/$preset" --quiet "$@" 2>&1 | { grep -v -e '^ninja: no work' -e '^-- ' || true; }
fi
