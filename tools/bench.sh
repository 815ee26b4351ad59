#!/bin/bash
# The figures of the README: the machine's bounds, then the real model. With a peer built by tools/peers its
# figures are taken in the same run, alternating.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/venv.sh
model=$(build/venv/bin/python tests/tools/real_model.py) || { echo "$model"; exit 1; }
build/release/churon bench --roofline
for script in tools/bench/*.sh; do
    [ ! -x "$script" ] || exec "$script" "$model"
done
exec build/release/churon bench "$model" --prompt 512 --gen 128 --parallel 1,16
