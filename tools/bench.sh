#!/bin/bash
# The figures of the README: every file type of the real model against the machine's bound and, where the
# peer's programs are (PEER_DIR, default build/peers/bin: tools/peers/build.sh makes them), against the peer
# in the same run, alternating. The table goes to stdout and to build/bench/table.md, all figures to
# build/bench/figures.json. REPS: how often each is measured (default 5). FILES: which types (default all).
set -euo pipefail
cd "$(dirname "$0")/.."

tools/venv.sh
model=$(build/venv/bin/python tests/tools/real_model.py) || { echo "$model"; exit 1; }
exec build/venv/bin/python tools/bench/table.py "$model"
