#!/usr/bin/env python3
"""bench_trees.py FOLDER [NAME...]: microseconds a run of FOLDER/NAME.onnx beside ONNX Runtime, the two alternating, one
thread each. Models of one input run on rows of FOLDER/X.npy; models of several inputs (columns of numbers and words) on
one row. Needs onnxruntime and build/release/tools/graph_time."""

import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import onnxruntime

TOP = pathlib.Path(__file__).resolve().parents[1]
TOOL = TOP / "build" / "release" / "tools" / "graph_time"
ROUNDS, SECONDS = 3, 0.2


def ours(model, x, rows):
    done = subprocess.run([TOOL, model, x, str(rows), str(SECONDS)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{model}: {done.stderr.strip()}")
    return float(done.stdout)


def columns(session):
    kinds = {"tensor(float)": lambda i: np.full((1, 1), 0.5 * i, np.float32), "tensor(string)": lambda i: np.array([["ios"]])}
    return {v.name: kinds[v.type](i) for i, v in enumerate(session.get_inputs())}


def theirs(session, x, rows):
    inputs = session.get_inputs()
    name, taken, at, end = inputs[0].name, [], 0, time.perf_counter() + SECONDS
    feed = columns(session) if len(inputs) > 1 else None
    while time.perf_counter() < end:
        part = x[at:at + rows]
        at = at + rows if at + 2 * rows <= len(x) else 0
        start = time.perf_counter()
        session.run(None, feed or {name: part})
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


def main():
    folder = pathlib.Path(sys.argv[1])
    x = np.load(folder / "X.npy")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    print(f"{'model':16} {'rows':>6} {'us':>10} {'us/row':>8} {'ORT us':>10} {'ratio':>6}")
    for name in sys.argv[2:] or ("lgbm_nozip", "xgb", "rf", "gb", "pipe", "pipe_nozip"):
        model = folder / f"{name}.onnx"
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for rows in (1, 100, 1000, 10000) if len(session.get_inputs()) == 1 else (1,):
            pairs = [(ours(model, folder / "X.npy", rows), theirs(session, x, rows)) for _ in range(ROUNDS)]
            a, b = (min(p[i] for p in pairs) for i in (0, 1))
            print(f"{name:16} {rows:6} {a:10.1f} {a / rows:8.2f} {b:10.1f} {b / a:6.1f}", flush=True)


main()
