#!/bin/bash
# Draws the pictures of README.md and docs/ anew from what the program really prints.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/venv.sh
model=$(build/venv/bin/python tests/tools/real_model.py) || { echo "$model"; exit 1; }
export CHURON_HOME=$PWD/build/pictures PATH=$PWD/build/release:$PATH
churon pull "$model" --as smollm2 --quiet
mkdir -p docs/images
COLUMNS=96 TITLE="churon inspect and churon run in a terminal" python3 tools/terminal_svg.py docs/images/run.svg \
    'churon inspect smollm2 | head -9' \
    'churon run smollm2 "Why is the sky blue? One sentence." --temperature 0' \
    'churon run smollm2 "Name a colour." --temperature 0 --json | python3 -m json.tool | head -4'
