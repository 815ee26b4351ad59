"""graph_peer.py onnxruntime|openvino MODEL FEEDS.npz THREADS RUNS: one JSON line: milliseconds of each run after the
first two, seconds to load, bytes of memory that loading and running took at most."""

import json
import pathlib
import sys
import time

import numpy as np


def status_kib(field):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def onnxruntime_runner(model, threads):
    import onnxruntime
    before = status_kib("VmRSS")
    o = onnxruntime.SessionOptions()
    o.log_severity_level = 3
    o.intra_op_num_threads, o.inter_op_num_threads = threads, 1
    o.add_session_config_entry("session.set_denormal_as_zero", "1")
    start = time.perf_counter()
    s = onnxruntime.InferenceSession(model, o, providers=["CPUExecutionProvider"])
    load = time.perf_counter() - start
    names = [i.name for i in s.get_inputs()]
    return before, load, lambda feeds: s.run(None, {k or names[0]: v for k, v in feeds.items()})


def openvino_runner(model, threads):
    import openvino
    before = status_kib("VmRSS")
    core = openvino.Core()
    # Left alone, products with weights in 8 bits quantize their other side too, whatever the precision hint says.
    start = time.perf_counter()
    c = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads,
                                          "NUM_STREAMS": 1, "CPU_DENORMALS_OPTIMIZATION": True,
                                          "PERFORMANCE_HINT": "LATENCY",
                                          "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0})
    load = time.perf_counter() - start
    request = c.create_infer_request()
    return before, load, lambda feeds: request.infer({k if k else 0: v for k, v in feeds.items()}, share_inputs=True)


def main():
    which, model, feeds, threads, runs = sys.argv[1:]
    feeds = {None if k == "_" else k: v for k, v in np.load(feeds).items()}
    make = {"onnxruntime": onnxruntime_runner, "openvino": openvino_runner}[which]
    before, load, run = make(model, int(threads))
    taken = []
    for _ in range(int(runs) + 2):
        start = time.perf_counter()
        run(feeds)
        taken.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({"ms": taken[2:], "load_s": load, "peak_bytes": (status_kib("VmHWM") - before) * 1024}))


if __name__ == "__main__":
    main()
