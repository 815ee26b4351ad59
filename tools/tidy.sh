#!/bin/bash
# tidy.sh [FILE...]: clang-tidy with .clang-tidy over src/ (or the files given).
set -euo pipefail
cd "$(dirname "$0")/.."

[ -f build/release/compile_commands.json ] || cmake --preset release >/dev/null
if [ $# -gt 0 ]; then files=("$@"); else mapfile -t files < <(git ls-files 'src/*.c'); fi
printf '%s\n' "${files[@]}" | nice xargs -P "$(nproc)" -n 4 clang-tidy-14 -p build/release --quiet \
    --warnings-as-errors='*' 2> >(grep -v 'warnings generated' >&2)
echo "tidy: ${#files[@]} files clean"
