#!/bin/bash
# The figures of the README: every file type of the real model against the machine's bound and, where the
# peer's programs are (PEER_DIR, default build/peers/bin: tools/peers/build.sh makes them), against the peer
# in the same run, alternating. The table goes to stdout and to build/bench/table.md, all figures to
# build/bench/figures.json. REPS: how often each is measured (default 5). FILES: which types (default all).
#
# tools/bench.sh serving [chat16] [stall] [prefix16] [trace]: the server under load beside the peer's, in turns;
# see tools/bench/serving.py.
#
# tools/bench.sh graphs [NAME...]: ONNX graphs beside ONNX Runtime and OpenVINO, in turns; see tools/bench/graphs.py.
#
# tools/bench.sh trees [NAME...]: tree ensembles and a tabular pipeline beside ONNX Runtime and what trained them; see tools/bench/trees.py.
#
# tools/bench.sh bundles: what a record costs around the model, a page of text, opening a pack; see tools/bench/bundles.py.
# tools/bench.sh media: images and sound beside Pillow, OpenCV and librosa.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/venv.sh
if [ "${1:-}" = bundles ]; then
    tools/bundles.sh
    exec build/venv/bin/python tools/bench/bundles.py
fi
if [ "${1:-}" = media ]; then
    exec build/venv/bin/python tools/bench_media.py
fi
if [ "${1:-}" = graphs ]; then
    shift
    exec build/venv/bin/python tools/bench/graphs.py "$@"
fi
if [ "${1:-}" = trees ]; then
    shift
    exec build/venv/bin/python tools/bench/trees.py "$@"
fi
model=$(build/venv/bin/python tests/tools/real_model.py) || { echo "$model"; exit 1; }
if [ "${1:-}" = serving ]; then
    shift
    exec build/venv/bin/python tools/bench/serving.py "$model" "$@"
fi
exec build/venv/bin/python tools/bench/table.py "$model"
