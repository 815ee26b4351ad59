"""What a graph holds: weights once while it loads, none for a description, nothing when it is closed."""

import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

BASE = 24 << 20  # bytes of the program itself


def weights(name, *shape):
    return numpy_helper.from_array(np.full(shape, 0.01, np.float32), name)


def save(path, shift):
    """Matrices of 96 MiB as Gemm and MatMul have them, and convolutions with a normalization behind them of 18 MiB.
    shift: bytes that everything lies later in the file, so that no element is aligned."""
    wide = 3072
    held = [weights("a", wide, wide), weights("b", wide, wide), weights("c", wide, 512), weights("k1", 512, 512, 3, 3),
            weights("k2", 512, 512, 3, 3)] + [weights(n, 512) for n in ("gain", "bias", "mean", "var")]
    nodes = [
        helper.make_node("Conv", ["X", "k1"], ["x1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["x1", "gain", "bias", "mean", "var"], ["x2"]),
        helper.make_node("Conv", ["x2", "k2"], ["x3"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["x3"], ["x4"]),
        helper.make_node("Flatten", ["x4"], ["x5"]),
        helper.make_node("Gemm", ["x5", "c"], ["x6"], transB=1),
        helper.make_node("Gemm", ["x6", "a"], ["x7"], transB=1),
        helper.make_node("MatMul", ["x7", "b"], ["Y"]),
    ]
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, 512, 8, 8])
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, wide])
    graph = helper.make_graph(nodes, "g" * shift, [x], [y], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return sum(len(t.raw_data) for t in held)


@pytest.fixture(scope="module", params=range(4))
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "m.onnx"
    return path, save(path, 1 + request.param)


def peak_of(*command):
    """Standard output and the most memory that the command held, in bytes, as the kernel saw it while it ran."""
    child = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE)
    peak = 0
    while child.poll() is None:
        for line in pathlib.Path(f"/proc/{child.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = max(peak, int(line.split()[1]) * 1024)
        time.sleep(0.01)
    assert child.returncode == 0
    return child.stdout.read(), peak


def test_weights_are_there_once(churon, model):
    path, size = model
    out, peak = peak_of(churon, "bench", path, "--reps", "40", "--threads", "1", "--json", "--quiet")
    assert json.loads(out)["rows"]
    assert 0 < peak < 1.5 * size + BASE  # of the largest matrix, where it is no multiple of 4 into the file, there is a copy beside


def test_a_description_needs_no_weights(churon, model):
    path, size = model
    out, peak = peak_of(churon, "inspect", path, "--json")
    told = json.loads(out)
    assert told["runs"] and 0.99 * size < told["memory"]["weights"] < 1.1 * size
    assert 0 < peak < 0.2 * size + BASE


CLOSE = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.churon_graph_open.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
lib.churon_graph_close.argtypes = [ctypes.c_void_p]
def held():
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmRSS:"))
before, opened = held(), []
for i in range(3):
    g = ctypes.c_void_p()
    assert lib.churon_graph_open(ctypes.byref(g), sys.argv[2].encode(), None, None) == 0
    opened.append(held() - before)
    lib.churon_graph_close(g)
print(min(opened), held() - before)
"""


def test_a_closed_graph_leaves_nothing(churon, model):
    library = pathlib.Path(churon).parent / "libchuron.so"
    if not library.exists():
        pytest.skip(f"{library} is not built")
    path, size = model
    done = subprocess.run([sys.executable, "-c", CLOSE, library, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    opened, closed = map(int, done.stdout.split())
    assert opened > 0.9 * size and closed < 8 << 20
