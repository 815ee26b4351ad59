"""Absurd attributes and shapes of network operators: one line that names node and field, never a crash; and results that do
not depend on threads or on the batch, bit for bit."""

import json
import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(3)
HUGE = 2**62


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def save(folder, op, inputs, outputs=1, opset=22, domain="", results=None, **attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    outs = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, outs, name="the_node", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), [None] * x.ndim) for n, x in zip(names, inputs)],
        [helper.make_empty_tensor_value_info(o) for o in outs],
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    for i, x in enumerate(inputs):
        (data / f"input_{i}.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    for i in range(outputs):
        y = np.zeros(1, np.float32) if results is None else results[i]
        (data / f"output_{i}.pb").write_bytes(numpy_helper.from_array(y).SerializeToString())


X = f32(1, 2, 5, 5)
W = f32(2, 2, 3, 3)
BAD = {
    "conv_huge_stride": ("Conv", [X, W], dict(strides=[HUGE, 1]), "strides[0]"),
    "conv_huge_pad": ("Conv", [X, W], dict(pads=[0, 0, HUGE, 0]), "pads[2]"),
    "conv_large_pad": ("Conv", [X, W], dict(pads=[0, 0, 2**31 - 1, 2**31 - 1]), ""),
    "conv_zero_dilation": ("Conv", [X, W], dict(dilations=[0, 1]), "dilations[0]"),
    "conv_group": ("Conv", [X, W], dict(group=7), "group"),
    "conv_channels": ("Conv", [f32(1, 3, 5, 5), W], {}, "channels"),
    "conv_kernel": ("Conv", [X, f32(2, 2, 9, 9)], {}, "does not fit"),
    "conv_four_axes": ("Conv", [f32(1, 1, 2, 2, 2, 2), f32(1, 1, 1, 1, 1, 1)], {}, "rank"),
    "transpose_pads": ("ConvTranspose", [X, W], dict(pads=[9, 9, 9, 9]), "pads"),
    "transpose_huge": ("ConvTranspose", [X, W], dict(strides=[2**31 - 1, 2**31 - 1]), ""),
    "pool_kernel": ("MaxPool", [X], dict(kernel_shape=[0, 1]), "kernel_shape[0]"),
    "pool_rank": ("MaxPool", [X], dict(kernel_shape=[2]), "kernel_shape"),
    "unpool_index": ("MaxUnpool", [f32(1, 1, 2, 2), np.int64([[[[0, 1], [2, 99]]]])], dict(kernel_shape=[2, 2], strides=[2, 2]), "I[3]"),
    "roi_batch": ("RoiAlign", [X, f32(1, 4), np.int64([5])], {}, "region 0"),
    "roi_grid": ("RoiAlign", [X, np.float32([[0, 0, 1e9, 1e9]]), np.int64([0])], {}, "rois[0]"),
    "batchnorm_size": ("BatchNormalization", [X, f32(3), f32(2), f32(2), f32(2)], {}, "scale"),
    "batchnorm_training": ("BatchNormalization", [X, f32(2), f32(2), f32(2), f32(2)], dict(training_mode=1), "training_mode"),
    "layernorm_axis": ("LayerNormalization", [X, f32(5)], dict(axis=9), "axis"),
    "groupnorm_groups": ("GroupNormalization", [X, f32(2), f32(2)], dict(num_groups=3), "num_groups"),
    "matmul_inner": ("MatMul", [f32(2, 3), f32(4, 5)], {}, "rows of B"),
    "gemm_bias": ("Gemm", [f32(2, 3), f32(3, 5), f32(4)], {}, "C"),
    "einsum_text": ("Einsum", [f32(2, 3)], dict(equation="i?->i"), "equation"),
    "einsum_output": ("Einsum", [f32(2, 3)], dict(equation="ij->k"), "equation"),
    "einsum_rank": ("Einsum", [f32(2, 3)], dict(equation="ijk->k"), "rank"),
    "lstm_hidden": ("LSTM", [f32(2, 1, 3), f32(1, 16, 3), f32(1, 16, 4)], dict(hidden_size=5), "hidden_size"),
    "lstm_name": ("LSTM", [f32(2, 1, 3), f32(1, 16, 3), f32(1, 16, 4)], dict(hidden_size=4, activations=["Tanh", "What", "Tanh"]), "activations[1]"),
    "gru_lengths": ("GRU", [f32(2, 1, 3), f32(1, 12, 3), f32(1, 12, 4), f32(1, 24), np.int32([9])], dict(hidden_size=4), "sequence_lens[0]"),
    "dft_length": ("DFT", [f32(1, 4, 1), np.int64(-3)], {}, "dft_length"),
    "window_size": ("HannWindow", [np.int64(-1)], {}, "size"),
    "window_huge": ("HannWindow", [np.int64(2**50)], {}, ""),
    "nll_target": ("NegativeLogLikelihoodLoss", [f32(2, 3), np.int64([0, 7])], {}, "target[1]"),
    "quantize_axis": ("QuantizeLinear", [f32(2, 3), f32(3)], dict(axis=5), "axis"),
    "quantize_scale": ("QuantizeLinear", [f32(2, 3), f32(4)], dict(axis=1), "scale"),
    "attention_heads": ("Attention", [f32(1, 2, 6), f32(1, 2, 6), f32(1, 2, 6)], dict(q_num_heads=4, kv_num_heads=3), "q_num_heads"),
    "nms_scores": ("NonMaxSuppression", [f32(1, 3, 4), f32(1, 1, 5)], {}, "boxes"),
    "grid_rank": ("GridSample", [X, f32(1, 2, 2, 3)], {}, "grid"),
    "resize_scale": ("Resize", [X, f32(0), np.float32([1, 1, -2, 1])], {}, "scales[2]"),
    "resize_tiny": ("Resize", [X, f32(0), np.float32([1, 1, 1e30, 1])], {}, "scales[2]"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused_in_one_line(churon, tmp_path, name):
    op, inputs, attributes, field = BAD[name]
    made = {"QuantizeLinear": np.uint8, "NonMaxSuppression": np.int64}.get(op, np.float32)
    save(tmp_path / name, op, inputs, opset=23 if op == "Attention" else 22, results=[np.zeros(1, made)], **attributes)
    run = subprocess.run([churon, "verify", "--onnx-suite", str(tmp_path), "--json", "--timeout", "20"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1, run.stderr
    (row,) = json.loads(run.stdout)["cases"]
    assert not row["ok"] and ("expected" in row["why"] or "limit" in row["why"] or "fit" in row["why"]), row
    assert "the_node" in row["why"] and field in row["why"] and "\n" not in row["why"], row


def numbers(churon, folder, threads):
    run = subprocess.run(
        [churon, "verify", "--onnx-suite", str(folder), "--rtol", "0", "--atol", "0", "--threads", str(threads), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return json.loads(run.stdout)["cases"]


LAYERS = {
    "matmul": ("MatMul", lambda n: [f32(n, 300), f32(300, 210)], {}),
    "conv": ("Conv", lambda n: [f32(n, 32, 24, 24), f32(48, 32, 3, 3), f32(48)], dict(pads=[1, 1, 1, 1])),
    "softmax": ("Softmax", lambda n: [f32(n, 3000)], {}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_close_to_double_for_any_threads(churon, tmp_path, name):
    """The same file of results holds for one thread and for two, within the bound of f32 sums."""
    op, make, attributes = LAYERS[name]
    inputs = make(6)
    if name == "matmul":
        want = inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)
    elif name == "softmax":
        e = np.exp(inputs[0].astype(np.float64) - inputs[0].max(-1, keepdims=True))
        want = e / e.sum(-1, keepdims=True)
    else:
        x = np.pad(inputs[0].astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
        want = np.einsum("nchwij,ocij->nohw", windows, inputs[1].astype(np.float64)) + inputs[2][None, :, None, None]
    save(tmp_path / name, op, inputs, results=[want.astype(np.float32)], **attributes)
    seen = []
    for threads in (1, 2):
        (row,) = numbers(churon, tmp_path, threads)
        assert row["max_abs"] < 2e-4, row
        seen.append((row["max_abs"], row["max_rel"], row.get("why")))
    assert seen[0] == seen[1], "threads change the result"


def test_interpolated_integers_are_rounded(churon, tmp_path):
    """As the reference of the operator has it: 1.25 and 3.75 become 1 and 4."""
    inputs = [np.uint8([[[0, 5]]]), f32(0), f32(0), np.int64([1, 1, 4])]
    save(tmp_path / "resize", "Resize", inputs, mode="linear", results=[np.uint8([[[0, 1, 4, 5]]])])
    (row,) = numbers(churon, tmp_path, 1)
    assert row["ok"], row


@pytest.mark.parametrize("op", ["LayerNormalization", "MaxPool"])
def test_the_first_output_may_not_be_absent(churon, tmp_path, op):
    inputs = [X, f32(5)] if op == "LayerNormalization" else [X]
    save(tmp_path / op, op, inputs, outputs=2, **({} if op == "LayerNormalization" else {"kernel_shape": [2, 2]}))
    path = tmp_path / op / "model.onnx"
    model = onnx.load(path)
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    path.write_bytes(model.SerializeToString())
    (row,) = numbers(churon, tmp_path, 1)
    assert not row["ok"] and "output 0" in row["why"], row


def test_no_input_channels_leave_the_bias(churon, tmp_path):
    inputs = [f32(1, 0, 3, 3), f32(8, 0, 2, 2), np.arange(8, dtype=np.float32)]
    want = np.broadcast_to(inputs[2][None, :, None, None], (1, 8, 2, 2))
    save(tmp_path / "conv", "Conv", inputs, results=[np.ascontiguousarray(want)])
    (row,) = numbers(churon, tmp_path, 1)
    assert row["ok"], row


def test_windows_far_larger_than_the_image(churon, tmp_path):
    big = 2**31 - 1
    save(tmp_path / "pool", "AveragePool", [f32(1, 1, 3, 3)], results=[np.zeros((1, 1, 1, 1), np.float32)],
         kernel_shape=[big, big], pads=[big, big, 0, 0], strides=[big, big], dilations=[1, 1], count_include_pad=1)
    run = subprocess.run([churon, "verify", "--onnx-suite", str(tmp_path), "--json", "--timeout", "20"], capture_output=True, text=True, timeout=60)
    (row,) = json.loads(run.stdout)["cases"]
    assert row["max_abs"] < 1e-9 or not row["ok"], row
