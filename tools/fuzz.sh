#!/bin/bash
# fuzz.sh TARGET SECONDS: fuzzes tests/fuzz/fuzz_TARGET.c from its seeds. The corpus grows in
# build/fuzz/corpus/TARGET; a finding is written to build/fuzz/TARGET-*.
set -euo pipefail
cd "$(dirname "$0")/.."

known=$(cd tests/fuzz && ls fuzz_*.c 2>/dev/null | sed 's/^fuzz_//; s/\.c$//' | tr '\n' ' ')
if [ -z "$1" ] || [ ! -f "tests/fuzz/fuzz_$1.c" ]; then
    echo "usage: make fuzz FUZZ=TARGET TIME=SECONDS. Targets: $known" >&2
    exit 2
fi
tools/build.sh fuzz "fuzz_$1"
corpus=build/fuzz/corpus/$1
mkdir -p "$corpus" "tests/fuzz/seeds/$1"
dictionary=tests/fuzz/$1.dict
exec build/fuzz/tests/fuzz_"$1" -max_total_time="$2" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$1-" $([ ! -f "$dictionary" ] || echo "-dict=$dictionary") \
    "$corpus" "tests/fuzz/seeds/$1"
