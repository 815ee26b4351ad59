"""A row of a batch equals the row alone, and one thread equals two, bit for bit: network operators one by one."""

import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(11)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


# name: operator, input of a batch, constants, attributes, axis of the batch
LAYERS = {
    "matmul": ("MatMul", (7, 300), [f32(300, 210)], {}, 0),
    "gemm": ("Gemm", (7, 130), [f32(90, 130), f32(90)], {"transB": 1, "alpha": 0.5}, 0),
    "conv": ("Conv", (5, 16, 19, 23), [f32(40, 16, 3, 3), f32(40)], {"pads": [1, 1, 1, 1], "strides": [2, 1]}, 0),
    "conv_pointwise": ("Conv", (5, 48, 13, 11), [f32(30, 48, 1, 1), f32(30)], {}, 0),
    "conv_depthwise": ("Conv", (5, 24, 19, 23), [f32(24, 1, 3, 3)], {"group": 24, "pads": [1, 1, 1, 1]}, 0),
    "conv_grouped": ("Conv", (4, 24, 9, 9), [f32(36, 8, 3, 3)], {"group": 3}, 0),
    "convtranspose": ("ConvTranspose", (4, 12, 9, 9), [f32(12, 10, 3, 3)], {"strides": [2, 2]}, 0),
    "averagepool": ("AveragePool", (4, 6, 30, 30), [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 0),
    "globalpool": ("GlobalAveragePool", (4, 6, 31, 17), [], {}, 0),
    "softmax": ("Softmax", (6, 3000), [], {}, 0),
    "layernorm": ("LayerNormalization", (6, 777), [f32(777), f32(777)], {}, 0),
    "instancenorm": ("InstanceNormalization", (4, 8, 333), [f32(8), f32(8)], {}, 0),
    "resize": ("Resize", (3, 4, 17, 19), [f32(0), np.float32([1, 1, 1.7, 2.3])], {"mode": "linear"}, 0),
    "lstm": ("LSTM", (20, 6, 40), [f32(1, 128, 40), f32(1, 128, 32), f32(1, 256)], {"hidden_size": 32}, 1),
    "gru": ("GRU", (20, 6, 40), [f32(1, 96, 40), f32(1, 96, 32), f32(1, 192)], {"hidden_size": 32}, 1),
    "einsum": ("Einsum", (6, 30, 40), [f32(40, 25)], {"equation": "bij,jk->bik"}, 0),
}


def run(churon, model, x, folder, threads):
    folder.mkdir()
    np.save(folder / "x.npy", x)
    subprocess.run(
        [churon, "run", str(model), "-i", str(folder / "x.npy"), "--output-dir", str(folder / "out"), "--threads", str(threads), "--quiet"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return np.load(folder / "out" / "y.npy")


@pytest.mark.parametrize("name", LAYERS)
def test_rows_do_not_know_their_batch(churon, tmp_path, name):
    op, shape, constants, attributes, axis = LAYERS[name]
    names = [f"w{i}" for i in range(len(constants))]
    node = helper.make_node(op, ["x"] + names, ["y"], **attributes)
    dims = list(shape)
    dims[axis] = "batch"
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(c, n) for c, n in zip(constants, names)],
    )
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), model)
    x = f32(*shape)
    whole = run(churon, model, x, tmp_path / "two", 2)
    assert np.isfinite(whole).all() and np.abs(whole).max() > 0
    assert run(churon, model, x, tmp_path / "one", 1).tobytes() == whole.tobytes(), "threads"
    out_axis = 2 if op in ("LSTM", "GRU") else axis
    for i in (0, shape[axis] - 1):
        alone = run(churon, model, np.take(x, [i], axis), tmp_path / f"row{i}", 1)
        assert alone.tobytes() == np.take(whole, [i], out_axis).tobytes(), f"row {i}"
