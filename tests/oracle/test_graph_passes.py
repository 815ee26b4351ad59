"""Passes change no answer: networks of the kinds that passes rewrite, against ONNX Runtime without its optimizer.

Each network goes through `churon verify --data`, which runs it with every pass; sums may be taken in another order, so
the tolerance is that of rounding."""

import json
import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="skip: the onnx package cannot be had")
ort = pytest.importorskip("onnxruntime", reason="skip: the onnxruntime package cannot be had")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


class Net:
    """A graph that grows node by node; weights come from one seed."""

    def __init__(self, seed, shape):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.count = [], [], 0
        self.shape = shape

    def constant(self, *shape, low=-0.5, high=0.5):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(self.rng.uniform(low, high, shape).astype(np.float32), name))
        return name

    def scalar(self, value, shape=()):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.full(shape, value, np.float32), name))
        return name

    def integers(self, list_):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(list_, np.int64), name))
        return name

    def op(self, kind, *inputs, **attrs):
        self.count += 1
        out = f"v{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"n{self.count}", **attrs))
        return out

    def conv(self, x, channels, out, kernel, axes=2, groups=1, bias=True, **attrs):
        w = self.constant(out, channels // groups, *(kernel if isinstance(kernel, list) else [kernel] * axes))
        return self.op("Conv", x, w, *([self.constant(out)] if bias else []), group=groups, **attrs)

    def norm(self, x, channels):
        return self.op("BatchNormalization", x, self.constant(channels), self.constant(channels), self.constant(channels),
                       self.constant(channels, low=0.5, high=2.0))

    def model(self, *outputs):
        graph = helper.make_graph(self.nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
                                  [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(churon, folder, model, x):
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    case = folder / "test_data_set_0"
    case.mkdir()
    (case / "input_0.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
    for i, y in enumerate(session.run(None, {"x": x})):
        (case / f"output_{i}.pb").write_bytes(numpy_helper.from_array(y).SerializeToString())
    done = subprocess.run([churon, "verify", "--data", str(folder), "--rtol", "1e-3", "--atol", "2e-5", "--json"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["failed"] == 0


def residual(n):
    """Convolution, normalization, function; a shortcut; pools; what a classifier ends with."""
    x = n.op("Relu", n.norm(n.conv("x", 3, 24, 7, strides=[2, 2], pads=[3, 3, 3, 3]), 24))
    x = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = n.op("Relu", n.norm(n.conv(x, 24, 20, 1, bias=False), 20))
    y = n.norm(n.conv(y, 20, 40, 3, pads=[1, 1, 1, 1]), 40)
    x = n.op("Relu", n.op("Add", y, n.conv(x, 24, 40, 1)))
    x = n.op("Mul", n.conv(x, 40, 16, 3, dilations=[2, 2], pads=[2, 2, 2, 2]), n.constant(16, 1, 1))
    return [n.op("Flatten", n.op("GlobalAveragePool", x)), x]


def inception(n):
    """Branches that are concatenated, whole blocks and not; averages that count padding and do not."""
    x = n.op("LeakyRelu", n.conv("x", 3, 32, 3, pads=[1, 1, 1, 1]), alpha=0.1)
    a = n.op("Relu", n.conv(x, 32, 16, 1))
    b = n.op("Clip", n.conv(x, 32, 48, 5, auto_pad="SAME_UPPER"), n.scalar(0.0), n.scalar(6.0))
    c = n.conv(n.op("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), 32, 9, 1)
    d = n.op("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    y = n.op("Concat", a, b, c, axis=1)
    z = n.op("Concat", a, c, d, axis=1)
    return [n.op("Relu", n.norm(y, 73)), n.op("Sigmoid", z)]


def pooled(n):
    """Windows that reach beyond the far padding, with and without padding in what they are divided by."""
    x = n.conv("x", 3, 32, 3, pads=[1] * 4)
    x = n.op("AveragePool", x, kernel_shape=[3, 4], strides=[2, 3], pads=[1, 2, 1, 1], ceil_mode=1, count_include_pad=1)
    x = n.op("AveragePool", n.conv(x, 32, 32, 1), kernel_shape=[2, 3], strides=[2, 2], pads=[0, 1, 1, 0], ceil_mode=1)
    return [x, n.op("MaxPool", n.conv(x, 32, 16, 1), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1)]


def mobile(n):
    """Depthwise and grouped convolutions, squeeze and excitation, functions in pieces."""
    x = n.conv("x", 3, 32, 3, strides=[2, 2], pads=[1, 1, 1, 1])
    x = n.op("Mul", x, n.op("Sigmoid", x))
    y = n.conv(x, 32, 32, 3, groups=32, pads=[1, 1, 1, 1])
    y = n.op("Div", n.op("Mul", y, n.op("Clip", n.op("Add", y, n.scalar(3.0)), n.scalar(0.0), n.scalar(6.0))), n.scalar(6.0))
    s = n.op("Relu", n.conv(n.op("GlobalAveragePool", y), 32, 8, 1))
    s = n.op("HardSigmoid", n.conv(s, 8, 32, 1), alpha=1 / 6, beta=0.5)
    y = n.op("Mul", y, s)
    y = n.op("Add", n.conv(y, 32, 32, 1), x)
    g = n.conv(y, 32, 64, 3, groups=2, pads=[1, 1, 1, 1])
    g = n.op("Mul", g, n.op("Tanh", n.op("Softplus", g)))
    odd = n.conv(g, 64, 12, 3, groups=4)
    return [odd, n.op("Elu", n.conv(g, 64, 20, 2, strides=[2, 1], pads=[0, 1, 1, 0]), alpha=0.7)]


def gelu(n):
    """Every order in which exporters write GELU, and what looks like one and is not."""
    x = n.conv("x", 3, 16, 1)
    core = lambda: n.op("Add", n.op("Erf", n.op("Div", x, n.scalar(2 ** 0.5))), n.scalar(1.0))
    a = n.op("Mul", n.op("Mul", x, core()), n.scalar(0.5))
    b = n.op("Mul", n.op("Mul", x, n.scalar(0.5)), core())
    c = n.op("Mul", x, n.op("Mul", n.scalar(0.5), core()))
    d = n.op("Mul", n.op("Mul", x, core()), n.scalar(0.25))
    return [a, b, c, d]


def line(n):
    """Images of one axis."""
    x = n.op("Relu", n.conv("x", 3, 40, 5, axes=1, pads=[2, 2], strides=[2]))
    y = n.norm(n.conv(x, 40, 40, 3, axes=1, dilations=[2], pads=[2, 2]), 40)
    x = n.op("Tanh", n.op("Add", x, y))
    return [n.op("MaxPool", x, kernel_shape=[2], strides=[2]), n.op("GlobalAveragePool", x)]


def decoder(n):
    """Transposed convolutions of every residue, pools of unknown sizes, one channel out, one column."""
    x = n.op("Relu", n.conv("x", 3, 24, 3, pads=[1] * 4))
    x = n.op("MaxPool", x, kernel_shape=[2, 2], auto_pad="SAME_UPPER")
    y = n.op("ConvTranspose", x, n.constant(24, 40, 2, 2), n.constant(40), strides=[2, 2])
    y = n.op("ConvTranspose", n.op("Relu", y), n.constant(40, 20, 3, 4), strides=[2, 3], pads=[1, 0, 1, 2], output_padding=[1, 0])
    z = n.op("Sigmoid", n.op("ConvTranspose", y, n.constant(20, 1, 3, 3), n.constant(1), pads=[1] * 4))
    mean = n.op("ReduceMean", x, axes=[3], keepdims=1)
    column = n.op("Relu", n.conv(mean, 24, 20, [5, 1], pads=[2, 0, 2, 0]))
    return [z, n.op("Clip", n.conv(x, 24, 1, 3, pads=[1] * 4), n.scalar(-0.5), n.scalar(0.5)), column,
            n.op("ConvTranspose", x, n.constant(24, 8, 1, 1), strides=[2, 2])]


def shuffled(n):
    """Groups within blocks, shuffled, split, sliced and joined channels, repeated pixels."""
    def ints(*v):
        name = f"i{len(n.weights)}"
        n.weights.append(numpy_helper.from_array(np.array(v, np.int64), name))
        return name

    def shuffle(x, groups, channels):
        size = n.op("Shape", x)
        first = n.op("Slice", size, ints(0), ints(1), ints(0))
        last = n.op("Slice", size, ints(2), ints(4), ints(0))
        y = n.op("Reshape", x, n.op("Concat", first, ints(groups, channels // groups), last, axis=0))
        return n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3, 4]), size)

    x = n.op("Relu", n.conv("x", 3, 24, 3, pads=[1] * 4))
    x = n.op("Relu", n.conv(x, 24, 68, 1, groups=4))
    y = n.op("Relu", n.conv(shuffle(x, 4, 68), 68, 36, 3, groups=2, pads=[1] * 4))
    a, b = f"a{n.count}", f"b{n.count}"
    n.nodes.append(helper.make_node("Split", [y, ints(10, 26)], [a, b], axis=1))
    part = n.op("Slice", y, ints(-30), ints(-3), ints(1))
    joined = n.op("Concat", n.op("Relu", a), b, part, n.op("Abs", a), axis=1)
    big = n.op("Resize", joined, "", "scales", mode="nearest", coordinate_transformation_mode="asymmetric",
               nearest_mode="floor")
    n.weights.append(numpy_helper.from_array(np.array([1, 1, 2, 4], np.float32), "scales"))
    return [n.conv(joined, 73, 16, 1), n.conv(big, 73, 5, 3), part]


def upsample(n):
    """Transposed convolutions of one axis."""
    x = n.conv("x", 3, 33, 3, axes=1, pads=[1, 1])
    y = n.op("ConvTranspose", n.op("LeakyRelu", x, alpha=0.1), n.constant(33, 17, 16), n.constant(17), strides=[8], pads=[4, 4])
    return [y, n.op("Tanh", n.conv(y, 17, 1, 7, axes=1, pads=[3, 3])), n.op("ConvTranspose", y, n.constant(17, 1, 4), strides=[2])]


def dense(n):
    """Matrix products: constant and not, with what follows them."""
    x = n.op("Flatten", n.op("GlobalAveragePool", n.conv("x", 3, 48, 3)))
    a = n.op("Relu", n.op("Gemm", x, n.constant(40, 48), n.constant(40), transB=1))
    b = n.op("Add", n.op("MatMul", a, n.constant(40, 33)), n.constant(33))
    b = n.op("Mul", b, n.op("Sigmoid", b))
    c = n.op("Gemm", b, n.constant(33, 40), n.constant(1, 40))
    d = n.op("Add", c, a)
    f = n.op("MatMul", n.op("Unsqueeze", d, "axes"), n.constant(2, 40, 9))
    n.weights.append(numpy_helper.from_array(np.array([0], np.int64), "axes"))
    return [d, f, n.op("Gemm", d, n.constant(40, 3), alpha=0.5)]


def dynamic(n):
    """Products of activations that are quantized as they come: weights of both types, one scale or one a column."""
    x = n.op("Transpose", n.op("Concat", *["x"] * 9, axis=1), perm=[0, 2, 3, 1])  # [..., 27]: no multiple of 4
    outs = []
    n.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], ["q", "scale", "zero"]))
    for kind, cols, per_column, zeros in [(np.int8, 40, False, True), (np.uint8, 17, True, True), (np.int8, 16, True, False)]:
        low, high = (-128, 128) if kind is np.int8 else (0, 256)
        w, z = f"b{cols}", f"z{cols}"
        n.weights.append(numpy_helper.from_array(n.rng.integers(low, high, (27, cols)).astype(kind), w))
        n.weights.append(numpy_helper.from_array(n.rng.integers(low, high, (cols,) if per_column else ()).astype(kind), z))
        sums = n.op("MatMulInteger", "q", w, "zero", *([z] if zeros else []))
        scale = n.op("Mul", "scale", n.constant(*([cols] if per_column else []), low=0.001, high=0.01))
        outs.append(n.op("Mul", n.op("Cast", sums, to=TensorProto.FLOAT), scale))
    a = n.op("Relu", n.op("Add", n.constant(40), outs[0]))
    b = n.op("Tanh", n.op("Add", outs[1], n.constant(17)))
    c = n.op("Add", n.op("Add", outs[2], n.constant(16)), n.op("Slice", a, "zero_at", "end", "last"))
    for name, v in [("zero_at", 0), ("end", 16), ("last", -1)]:
        n.weights.append(numpy_helper.from_array(np.array([v], np.int64), name))
    return [a, b, c]


def few(n):
    """Few output channels, which make several pixels at once; transposed convolutions without overlap."""
    x = n.op("Relu", n.conv("x", 3, 24, 3, pads=[1] * 4))
    a = n.op("Sigmoid", n.conv(x, 24, 1, [7, 3], pads=[3, 1, 3, 1]))
    b = n.op("Tanh", n.conv(a, 1, 8, [3, 15], pads=[1, 7, 1, 7]))
    b = n.op("Add", b, n.op("Clip", n.conv(b, 8, 8, [2, 5], pads=[1, 2, 0, 2], dilations=[1, 1]), n.scalar(-1.0), n.scalar(1.0)))
    c = n.op("Sigmoid", n.conv(b, 8, 3, [1, 5], strides=[1, 3], dilations=[1, 2], bias=False))
    d = n.op("Relu", n.op("ConvTranspose", x, n.constant(24, 24, 2, 2), n.constant(24), strides=[2, 2]))
    return [c, n.op("Sigmoid", n.op("ConvTranspose", d, n.constant(24, 1, 2, 2), n.constant(1), strides=[2, 2])), d]


def scaled(n):
    """What goes into the weights of transposed convolutions; scalars behind functions."""
    x = n.op("HardSwish", n.conv("x", 3, 24, 3, pads=[1] * 4))
    x = n.op("Add", n.op("Mul", n.scalar(1.5, (1,)), x), n.scalar(-0.25, (1,)))
    x = n.op("Sub", n.op("Div", n.op("Sigmoid", n.conv(x, 24, 16, 3, pads=[1] * 4)), n.scalar(0.5)), n.scalar(0.125, (1, 1)))
    y = n.op("ConvTranspose", x, n.constant(16, 20, 3, 2), strides=[2, 2])
    y = n.op("LeakyRelu", n.norm(n.op("Add", y, n.constant(1, 20, 1, 1)), 20), alpha=0.1)
    z = n.op("HardSwish", n.norm(n.op("ConvTranspose", x, n.constant(16, 5, 2, 2), n.constant(5), strides=[2, 2]), 5))
    return [n.op("Mul", n.op("Add", z, n.scalar(2.0)), z), n.op("Mul", n.op("Relu", n.conv(y, 20, 3, 3)), n.scalar(3.0)), x]


def generator(n):
    """Functions in front of convolutions: read by several, by one alone, by others too; added to what was read."""
    x = n.op("Mul", n.conv("x", 3, 20, 3, pads=[1] * 4), n.scalar(0.02))
    x = n.op("ConvTranspose", x, n.constant(20, 20, 4, 4), n.constant(20), strides=[2, 2], pads=[1] * 4)
    y = n.op("LeakyRelu", x, alpha=0.1)
    a = n.op("Add", n.conv(y, 20, 20, [3, 5], pads=[1, 2, 1, 2]), x)
    b = n.op("Add", n.conv(y, 20, 20, [1, 3], pads=[0, 2, 0, 2], dilations=[1, 2], groups=20), x)
    c = n.op("Add", a, n.conv(n.op("Clip", b, n.scalar(-0.1), n.scalar(0.4)), 20, 20, [3, 1], pads=[1, 0, 1, 0]))
    z = n.op("LeakyRelu", c, alpha=0.2)
    return [n.op("Tanh", n.conv(z, 20, 1, 5)), n.op("Add", n.conv(z, 20, 20, 1), z), n.conv(n.op("Relu", b), 20, 8, 3, strides=[2, 2])]


def local(n):
    """Local response normalization of full and other blocks; padding between."""
    x = n.op("LRN", n.op("Relu", n.conv("x", 3, 48, 5, strides=[2, 2])), size=5, alpha=0.1, bias=0.5)
    x = n.op("MaxPool", n.op("Pad", x, n.integers([0, 0, 1, 2, 0, 0, 0, 1])), kernel_shape=[3, 3], strides=[2, 2])
    y = n.op("LRN", n.conv(x, 48, 20, 1), size=3)
    z = n.op("LRN", n.conv(y, 20, 32, 1), size=7, alpha=0.3, bias=2.0)
    return [y, n.op("LRN", z, size=3, beta=0.5), n.conv(n.op("Pad", z, n.integers([0, 0, 1, 0, 0, 0, 0, 3]), n.scalar(0.25)), 32, 16, 3)]


def channels_last(n):
    """What an exporter of images with channels last makes of a residual block."""
    def last(v):
        return n.op("Transpose", v, perm=[0, 2, 3, 1])

    def first(v):
        return n.op("Transpose", v, perm=[0, 3, 1, 2])

    x = n.op("Relu", n.op("Add", last(n.conv("x", 3, 24, 3, bias=False)), n.constant(24)))
    for i in range(3):
        y = n.op("Relu", n.op("Add", last(n.conv(first(x), 24, 20, 1, bias=False)), n.constant(1, 1, 1, 20)))
        y = n.op("Mul", n.op("Sub", last(n.conv(first(y), 20, 24, 3, pads=[1] * 4)), n.constant(24)), n.constant(1, 1, 24))
        x = n.op("Add", y, x) if i == 2 else n.op("Relu", n.op("Add", x, y))
    return [n.op("ReduceMean", x, axes=[1, 2], keepdims=0)]


def left_alone(n):
    """Values that are outputs and inputs at once, constants of every shape, identities."""
    x = n.conv("x", 3, 17, 3)
    y = n.op("Relu", x)
    z = n.op("Identity", n.op("Add", y, n.constant(1, 17, 1, 1)))
    t = n.op("Transpose", n.op("Transpose", z, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
    u = n.op("Exp", n.op("Mul", t, n.constant(1, 17, 1, 1, low=-1, high=0)))
    v = n.op("Log", n.op("Add", n.op("Abs", u), n.scalar(1.0, (1,))))
    return [x, y, z, v, n.op("Reciprocal", n.op("Add", n.conv(u, 17, 5, 1), n.scalar(50.0)))]


NETS = [residual, inception, pooled, mobile, gelu, line, decoder, shuffled, upsample, dense, dynamic, few, scaled, generator, local, channels_last, left_alone]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("build", NETS, ids=[b.__name__ for b in NETS])
def test_passes_change_no_answer(churon, tmp_path, build, seed):
    rng = np.random.default_rng(seed)
    size = [int(rng.integers(24, 40)) for _ in range(1 if build in (line, upsample) else 2)]
    shape = [int(rng.integers(1, 3)), 3, *size]
    fixed = Net(seed, shape)
    x = rng.standard_normal(shape).astype(np.float32)
    check(churon, tmp_path / "fixed", fixed.model(*build(fixed)), x)
    if build is not inception:  # SAME padding of unknown sizes is not rewritten: the same net both ways
        free = Net(seed, ["N", 3, *["H", "W"][-len(size):]])
        check(churon, tmp_path / "free", free.model(*build(free)), x)
