"""Attention of ai.onnx, of more queries than its node cases have, against the definition in double; its rows depend on no
batch, thread or instruction set."""

import os
import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="skip: the onnx package cannot be had")
from onnx import TensorProto, helper  # noqa: E402

H, D, V = 4, 16, 24
INFINITY = np.inf


def definition(q, k, v, mask, causal, cap):
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(np.float64) for x in (q, np.repeat(k, group, 1), np.repeat(v, group, 1)))
    s = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    if cap:
        s = cap * np.tanh(s / cap)
    hidden = np.zeros(s.shape, bool)
    if mask is not None:
        short = s.shape[3] - mask.shape[-1]
        if mask.dtype == bool:
            hidden |= np.pad(~mask, [(0, 0)] * (mask.ndim - 1) + [(0, short)], constant_values=True)
        else:
            s = s + np.pad(mask.astype(np.float64), [(0, 0)] * (mask.ndim - 1) + [(0, short)], constant_values=-INFINITY)
    if causal:
        hidden |= ~np.tri(s.shape[2], s.shape[3], dtype=bool)
    s = np.where(hidden, -INFINITY, s)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - np.where(np.isinf(top), 0, top))
    return p / np.maximum(p.sum(-1, keepdims=True), 1e-300) @ v


def run(churon, folder, feeds, attrs, threads="1", cpu=None):
    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(bool): TensorProto.BOOL}
    infos = [helper.make_tensor_value_info(n, types[x.dtype], x.shape) for n, x in feeds.items()]
    node = helper.make_node("Attention", list(feeds), ["y"], **attrs)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), folder / "model.onnx")
    inputs = []
    for name, x in feeds.items():
        np.save(folder / f"{name}.npy", x)
        inputs += ["--input", f"{name}={folder}/{name}.npy"]
    environment = {**os.environ, **({"CHURON_CPU": cpu} if cpu else {})}
    p = subprocess.run([churon, "run", str(folder / "model.onnx"), "--threads", threads, "--output-dir", str(folder), *inputs],
                       capture_output=True, text=True, timeout=60, env=environment)
    assert p.returncode == 0, p.stderr
    return np.load(folder / "y.npy")


def operands(batch, queries, keys, kv_heads=H):
    rng = np.random.default_rng(queries * 1000 + keys)
    shapes = {"Q": (batch, H, queries, D), "K": (batch, kv_heads, keys, D), "V": (batch, kv_heads, keys, V)}
    return {n: rng.uniform(-2, 2, s).astype(np.float32) for n, s in shapes.items()}


def masks(batch, queries, keys):
    rng = np.random.default_rng(keys)
    some = rng.random((batch, 1, queries, keys)) > 0.3
    some[0, 0, 1] = False  # a query that sees nothing
    return {"none": None, "bool": some, "numbers": rng.standard_normal((queries, keys)).astype(np.float32),
            "infinite": np.where(some, np.float32(0.5), np.float32(-INFINITY)), "one for all": rng.standard_normal((1, keys)).astype(np.float32),
            "short": rng.standard_normal((queries, keys - 2)).astype(np.float32)}


@pytest.mark.parametrize("queries, keys", [(5, 5), (17, 40), (200, 70)])
@pytest.mark.parametrize("mask", ["none", "bool", "numbers", "infinite", "one for all", "short"])
@pytest.mark.parametrize("causal, cap", [(0, 0.0), (1, 0.0), (0, 3.0)])
def test_the_definition(churon, tmp_path, queries, keys, mask, causal, cap):
    feeds, m = operands(2, queries, keys), masks(2, queries, keys)[mask]
    got = run(churon, tmp_path, {**feeds, **({} if m is None else {"M": m})}, {"is_causal": causal, "softcap": cap})
    np.testing.assert_allclose(got, definition(*feeds.values(), m, causal, cap), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_heads_that_share_keys(churon, tmp_path, kv_heads):
    feeds = operands(3, 11, 30, kv_heads)
    np.testing.assert_allclose(run(churon, tmp_path, feeds, {}), definition(*feeds.values(), None, 0, 0), rtol=2e-5, atol=2e-5)


def test_one_number_of_many(churon, tmp_path):
    """A key that is not seen may hold anything."""
    feeds = operands(1, 9, 12)
    want = run(churon, tmp_path, {**feeds, "M": np.arange(12)[None] < 10}, {})
    feeds["K"][:, :, 10:] = np.nan
    feeds["V"][:, :, 10:] = 0
    assert np.array_equal(run(churon, tmp_path, {**feeds, "M": np.arange(12)[None] < 10}, {}), want)


def test_a_row_depends_on_nothing_else(churon, tmp_path):
    feeds = operands(3, 50, 90)
    want = run(churon, tmp_path, feeds, {"is_causal": 1})
    for cpu in ("ref", "avx2", "avx512"):
        for threads in ("1", "2"):
            assert np.array_equal(run(churon, tmp_path, feeds, {"is_causal": 1}, threads, cpu), want), (cpu, threads)
    alone = {n: x[1:2] for n, x in feeds.items()}
    assert np.array_equal(run(churon, tmp_path, alone, {"is_causal": 1}), want[1:2])
