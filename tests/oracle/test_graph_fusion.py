"""Networks in pieces, as exporters write them, become one operator; what only looks like one does not; and in both cases
the answer is that of ONNX Runtime without its optimizer."""

import json
import os
import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="skip: the onnx package cannot be had")
ort = pytest.importorskip("onnxruntime", reason="skip: the onnxruntime package cannot be had")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


class Net:
    def __init__(self, seed=0, opset=17):
        self.rng, self.opset = np.random.default_rng(seed), opset
        self.nodes, self.weights, self.infos, self.feeds = [], [], [], {}

    def input(self, *shape, dims=None, low=-2.0, high=2.0):
        name = f"x{len(self.infos)}"
        self.feeds[name] = self.rng.uniform(low, high, shape).astype(np.float32)
        self.infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims or shape))
        return name

    def tensor(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def floats(self, *shape, low=-1.0, high=1.0):
        return self.tensor(self.rng.uniform(low, high, shape).astype(np.float32))

    def scalar(self, value, shape=()):
        return self.tensor(np.full(shape, value, np.float32))

    def ints(self, *values):
        return self.tensor(np.array(values, np.int64))

    def op(self, kind, *inputs, **attrs):
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"n{len(self.nodes)}", **attrs))
        return out

    def reduce(self, kind, x, axes, keepdims=1):
        if self.opset >= 18 or kind == "ReduceSum":
            return self.op(kind, x, self.ints(*axes), keepdims=keepdims)
        return self.op(kind, x, axes=list(axes), keepdims=keepdims)

    def model(self, outputs):
        infos = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "net", self.infos, infos, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)],
                                 ir_version=8)


def ran(churon, folder, net, outputs, rtol=1e-4, atol=2e-5):
    """Operators that ran and how many of each, after the answer was found right with and without passes."""
    model = net.model(outputs)
    onnx.save(model, folder / "model.onnx")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(outputs, net.feeds)
    inputs = []
    for name, x in net.feeds.items():
        np.save(folder / f"{name}.npy", x)
        inputs += ["--input", f"{name}={folder}/{name}.npy"]
    for left_out in ([], ["--no-pass", "all"]):
        out = folder / "out"
        p = subprocess.run([churon, "run", str(folder / "model.onnx"), "--output-dir", str(out), *inputs, *left_out],
                           capture_output=True, text=True, timeout=60)
        assert p.returncode == 0, p.stderr
        for name, w in zip(outputs, want):
            got = np.load(out / f"{name}.npy")
            assert got.shape == w.shape and got.dtype == w.dtype
            np.testing.assert_allclose(got, w, rtol=rtol, atol=atol, err_msg=f"{name} {left_out}")
    p = subprocess.run([churon, "bench", str(folder / "model.onnx"), "--reps", "1", "--json", *inputs], capture_output=True, text=True,
                       timeout=60)
    assert p.returncode == 0, p.stderr
    return {o["op"]: o["nodes"] for o in json.loads(p.stdout)["rows"][0]["operators"]}


# ---- layer norm and RMS norm -----------------------------------------------------------------------------


def centered(n, x, axes=(-1,)):
    return n.op("Sub", x, n.reduce("ReduceMean", x, axes))


def squared(n, d, how):
    return n.op("Pow", d, n.scalar(2.0)) if how else n.op("Mul", d, d)


def root(n, square, axes=(-1,), epsilon=1e-5):
    return n.op("Sqrt", n.op("Add", n.reduce("ReduceMean", square, axes), n.scalar(epsilon)))


def affine(n, x, *shape):
    return n.op("Add", n.op("Mul", x, n.floats(*shape)), n.floats(*shape))


def torch_layer_norm(n):
    d = centered(n, n.input(2, 5, 24))
    return [affine(n, n.op("Div", d, root(n, squared(n, d, True))), 24)]


def twin_layer_norm(n):
    """Two subtractions, as old exporters write it."""
    x = n.input(2, 5, 24, dims=["N", "T", 24])
    mean = n.reduce("ReduceMean", x, [2])
    d, e = n.op("Sub", x, mean), n.op("Sub", x, mean)
    return [affine(n, n.op("Div", d, root(n, squared(n, e, True), [2])), 24)]


def reciprocal_layer_norm(n):
    d = centered(n, n.input(3, 17), [1])
    return [affine(n, n.op("Mul", n.op("Reciprocal", root(n, squared(n, d, False), [1])), d), 17)]


def two_axes_layer_norm(n):
    d = centered(n, n.input(2, 3, 4, 5), [2, 3])
    return [affine(n, n.op("Div", d, root(n, squared(n, d, True), [2, 3])), 4, 5)]


def bare_layer_norm(n):
    """No scale: what follows is not the norm's."""
    x = n.input(2, 5, 24)
    d = centered(n, x)
    y = n.op("Div", d, root(n, squared(n, d, True)))
    return [n.op("Mul", y, n.input(2, 1, 24))]


def tf_layer_norm(n):
    x = n.input(2, 5, 24)
    mean = n.reduce("ReduceMean", x, [2])
    d = n.op("Sub", x, mean)
    g = n.op("Mul", n.op("Reciprocal", root(n, n.op("Mul", d, d), [2], 1e-3)), n.floats(24))
    return [n.op("Add", n.op("Mul", x, g), n.op("Sub", n.floats(24), n.op("Mul", mean, g)))]


def llama_rms_norm(n):
    x = n.input(2, 5, 24)
    r = n.op("Div", n.scalar(1.0), root(n, squared(n, x, True), epsilon=1e-6))
    return [n.op("Mul", n.floats(24), n.op("Mul", x, r))]


def plain_rms_norm(n):
    x = n.input(2, 5, 24)
    return [n.op("Mul", n.op("Div", x, root(n, n.op("Mul", x, x))), n.floats(24))]


def power_rms_norm(n):
    x = n.input(2, 5, 24)
    v = n.op("Add", n.reduce("ReduceMean", squared(n, x, True), [-1]), n.scalar(1e-6))
    return [n.op("Mul", n.op("Mul", x, n.op("Pow", v, n.scalar(-0.5))), n.floats(24))]


# What is no norm.


def other_axis(n):
    """Over the channels of an image."""
    d = centered(n, n.input(2, 6, 4, 4), [1])
    return [affine(n, n.op("Div", d, root(n, squared(n, d, True), [1])), 6, 1, 1)]


def mixed_axes(n):
    """The mean over one axis, the variance over another."""
    d = centered(n, n.input(2, 6, 6), [1])
    return [n.op("Div", d, root(n, squared(n, d, True), [0]))]


def read_outside(n):
    """The variance is an output too."""
    d = centered(n, n.input(2, 5, 24))
    v = n.reduce("ReduceMean", squared(n, d, True), [-1])
    return [n.op("Div", d, n.op("Sqrt", n.op("Add", v, n.scalar(1e-5)))), v]


def read_by_a_node(n):
    """Somebody else reads the deviation."""
    d = centered(n, n.input(2, 5, 24))
    r = root(n, squared(n, d, True))
    return [n.op("Div", d, r), n.op("Neg", r)]


def epsilon_outside(n):
    d = centered(n, n.input(2, 5, 24))
    s = n.op("Add", n.op("Sqrt", n.reduce("ReduceMean", squared(n, d, True), [-1])), n.scalar(1e-3))
    return [n.op("Div", d, s)]


def cubed(n):
    d = centered(n, n.input(2, 5, 24))
    return [n.op("Div", d, n.op("Sqrt", n.op("Add", n.reduce("ReduceMean", n.op("Pow", d, n.scalar(4.0)), [-1]), n.scalar(1e-5))))]


def epsilon_computed(n):
    d = centered(n, n.input(2, 5, 24))
    e = n.input(1, low=0.1, high=0.2)
    return [n.op("Div", d, n.op("Sqrt", n.op("Add", n.reduce("ReduceMean", squared(n, d, True), [-1]), e)))]


def upside_down(n):
    d = centered(n, n.input(2, 5, 24))
    return [n.op("Div", root(n, squared(n, d, True)), n.op("Add", n.op("Abs", d), n.scalar(1.0)))]


NORMS = [(torch_layer_norm, "LayerNormalization"), (twin_layer_norm, "LayerNormalization"), (reciprocal_layer_norm, "LayerNormalization"),
         (two_axes_layer_norm, "LayerNormalization"), (tf_layer_norm, "LayerNormalization"), (llama_rms_norm, "RMSNormalization"),
         (plain_rms_norm, "RMSNormalization"), (power_rms_norm, "RMSNormalization")]
NO_NORMS = [other_axis, mixed_axes, read_outside, read_by_a_node, epsilon_outside, cubed, epsilon_computed, upside_down]


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("build, op", NORMS, ids=[b.__name__ for b, _ in NORMS])
def test_norm_is_one_operator(churon, tmp_path, build, op, opset):
    n = Net(opset=opset)
    assert ran(churon, tmp_path, n, build(n)) == {op: 1}


def test_norm_without_scale(churon, tmp_path):
    n = Net()
    assert ran(churon, tmp_path, n, bare_layer_norm(n)) == {"LayerNormalization": 1, "Mul": 1}


@pytest.mark.parametrize("build", NO_NORMS, ids=[b.__name__ for b in NO_NORMS])
def test_no_norm(churon, tmp_path, build):
    n = Net()
    assert not {"LayerNormalization", "RMSNormalization"} & set(ran(churon, tmp_path, n, build(n)))


def test_scale_that_widens_the_result_stays(churon, tmp_path):
    n = Net()
    d = centered(n, n.input(3, 1), [1])
    y = n.op("Mul", n.op("Div", d, root(n, squared(n, d, True), [1])), n.floats(7))
    assert ran(churon, tmp_path, n, [y])["Mul"] >= 1


def norm_of_sum(n, a, b, **attrs):
    total = n.op("Add", a, b)
    return total, n.op("LayerNormalization", total, n.floats(24), n.floats(24), **attrs)


@pytest.mark.parametrize("shapes", [((2, 5, 24), (2, 5, 24)), ((2, 5, 24), (5, 24)), ((1, 5, 24), (2, 1, 24)), ((2, 5, 24), (2, 5, 1))])
@pytest.mark.parametrize("read", [False, True])
def test_skip_and_norm_are_one_operator(churon, tmp_path, shapes, read):
    n = Net()
    dims = [[d if i == len(s) - 1 else f"D{k}{i}" for i, d in enumerate(s)] for k, s in enumerate(shapes)]
    total, y = norm_of_sum(n, n.input(*shapes[0], dims=dims[0]), n.input(*shapes[1], dims=dims[1]))
    assert ran(churon, tmp_path, n, [n.op("Neg", total), y] if read else [y]) == {"SkipNormalization": 1, **({"Neg": 1} if read else {})}


@pytest.mark.parametrize("what", ["axis", "scale"])
def test_no_skip_and_norm(churon, tmp_path, what):
    n = Net()
    a, b = n.input(2, 5, 24), n.input(2, 5, 24)
    if what == "axis":
        y = n.op("LayerNormalization", n.op("Add", a, b), n.floats(5, 24), n.floats(5, 24), axis=1)
    else:
        y = n.op("LayerNormalization", n.op("Add", a, b), n.floats(1), n.floats(24))
    assert "SkipNormalization" not in ran(churon, tmp_path, n, [y])


# ---- softmax ---------------------------------------------------------------------------------------------


def softmax_pieces(n, x, axis, sum_axis=None, most=None):
    s = n.op("Sub", x, n.reduce("ReduceMax", most or x, [axis]))
    e = n.op("Exp", s)
    return s, e, n.reduce("ReduceSum", e, [sum_axis if sum_axis is not None else axis])


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("log", [False, True])
def test_softmax_is_one_operator(churon, tmp_path, axis, log):
    n = Net()
    s, e, total = softmax_pieces(n, n.input(3, 4, 9, dims=["N", 4, "T"]), axis)
    y = n.op("Sub", s, n.op("Log", total)) if log else n.op("Div", e, total)
    assert ran(churon, tmp_path, n, [y]) == {"LogSoftmax" if log else "Softmax": 1}


@pytest.mark.parametrize("what", ["axis", "other", "read", "upside down"])
def test_no_softmax(churon, tmp_path, what):
    n = Net()
    x = n.input(5, 5)
    s, e, total = softmax_pieces(n, x, 1, 0 if what == "axis" else 1, n.input(5, 5) if what == "other" else None)
    y = n.op("Div", total, e) if what == "upside down" else n.op("Div", e, total)
    assert "Softmax" not in ran(churon, tmp_path, n, [y, n.op("Neg", e)] if what == "read" else [y])


# ---- functions of one element ----------------------------------------------------------------------------


def cube(n, x, how):
    if how == 0:
        return n.op("Pow", x, n.scalar(3.0))
    return n.op("Mul", x, n.op("Mul", x, x)) if how == 1 else n.op("Mul", n.op("Mul", x, x), x)


def tanh_core(n, x, how, cubic=0.044715, one=1.0):
    k = (2 / np.pi) ** 0.5
    if how == 3:  # x * k * (1 + c * x * x)
        u = n.op("Mul", n.op("Mul", x, n.scalar(k)), n.op("Add", n.op("Mul", n.op("Mul", x, n.scalar(cubic)), x), n.scalar(1.0)))
    else:
        u = n.op("Mul", n.op("Add", x, n.op("Mul", cube(n, x, how), n.scalar(cubic))), n.scalar(k))
    return n.op("Add", n.op("Tanh", u), n.scalar(one))


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("how", range(4))
def test_gelu_by_tanh_is_one_operator(churon, tmp_path, how, order):
    n = Net()
    x = n.input(3, 4, 9, dims=["N", 4, "T"], low=-5, high=5)
    core = tanh_core(n, x, how)
    y = [lambda: n.op("Mul", n.op("Mul", x, core), n.scalar(0.5)), lambda: n.op("Mul", n.op("Mul", x, n.scalar(0.5)), core),
         lambda: n.op("Mul", x, n.op("Mul", n.scalar(0.5), core))][order]()
    assert ran(churon, tmp_path, n, [y]) == {"Unary": 1}


@pytest.mark.parametrize("what", ["cubic", "one", "half", "other", "read"])
def test_no_gelu(churon, tmp_path, what):
    n = Net()
    x = n.input(3, 9)
    core = tanh_core(n, x, 0, cubic=0.05 if what == "cubic" else 0.044715, one=1.5 if what == "one" else 1.0)
    half = n.op("Mul", n.input(3, 9) if what == "other" else x, n.scalar(0.25 if what == "half" else 0.5))
    assert "Unary" not in ran(churon, tmp_path, n, [n.op("Mul", half, core)] + ([n.op("Neg", core)] if what == "read" else []))


def test_gelu_of_a_product_of_itself(churon, tmp_path):
    """The argument is a product too: which factor is x has to be found out."""
    n = Net()
    x = n.op("Mul", n.input(3, 9), n.input(3, 9))
    y = n.op("Mul", n.op("Mul", x, n.op("Add", n.op("Erf", n.op("Div", x, n.scalar(2**0.5))), n.scalar(1.0))), n.scalar(0.5))
    assert ran(churon, tmp_path, n, [y]) == {"Mul": 1, "Unary": 1}


def test_quick_gelu(churon, tmp_path):
    n = Net()
    x = n.input(3, 9)
    assert ran(churon, tmp_path, n, [n.op("Mul", x, n.op("Sigmoid", n.op("Mul", x, n.scalar(1.702))))]) == {"Unary": 1}


# ---- attention -------------------------------------------------------------------------------------------

B, H, T, S, D = 2, 3, 7, 11, 20


def heads(n, length, dims=None, turned=False):
    """[batch, head, time, width] (or the last two turned) of an input [batch, time, head, width]."""
    x = n.input(B, length, H, D, dims=dims)
    return n.op("Transpose", x, perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])


def merged(n, k, length, target=None):
    """Keys turned as three axes, as torch writes it."""
    k = n.op("Transpose", n.op("Reshape", k, n.ints(*(target or (B * H, length, D)))), perm=[0, 2, 1])
    return n.op("Reshape", k, n.ints(B, H, D, length))


def back(n, y):
    return n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3]), n.ints(0, 0, -1))


def bert(n):
    s = n.op("Div", n.op("MatMul", heads(n, T, ["N", "T", H, D]), heads(n, S, ["N", "S", H, D], True)), n.scalar(D**0.5))
    p = n.op("Softmax", n.op("Add", s, n.input(B, 1, 1, S, dims=["N", 1, 1, "S"])), axis=3)
    return [back(n, n.op("MatMul", p, heads(n, S, ["N", "S", H, D])))]


def torch_sdpa(n):
    root = n.scalar(D**-0.25)
    q, k = n.op("Mul", heads(n, T), root), n.op("Mul", merged(n, heads(n, S), S), root)
    p = n.op("Softmax", n.op("Add", n.op("MatMul", q, k), n.tensor(np.where(np.arange(S) < 6, 0, -3e38).astype(np.float32))), axis=-1)
    p = n.op("Where", n.op("IsNaN", p), n.scalar(0.0), p)
    return [back(n, n.op("MatMul", p, heads(n, S)))]


def nothing_seen(n):
    """A row whose keys are all taken away is NaN, and then 0."""
    mask = np.zeros((T, S), np.float32)
    mask[3] = -np.inf
    p = n.op("Softmax", n.op("Add", n.op("MatMul", heads(n, T), heads(n, S, turned=True)), n.tensor(mask)), axis=-1)
    p = n.op("Where", n.op("IsNaN", p), n.scalar(0.0), p)
    return [n.op("MatMul", p, heads(n, S))]


def masked_fill(n):
    s = n.op("Mul", n.op("MatMul", heads(n, T), heads(n, S, turned=True)), n.scalar(0.3))
    s = n.op("Where", n.tensor(np.tri(T, S, 2) == 0), n.scalar(-1e9), s)
    return [n.op("MatMul", n.op("Softmax", s, axis=-1), heads(n, S))]


def masked_fill_turned_and_two_biases(n):
    s = n.op("Where", n.tensor(np.tri(T, S, 2) > 0), n.op("MatMul", heads(n, T), heads(n, S, turned=True)), n.scalar(-5.0))
    s = n.op("Add", n.floats(1, H, T, S), n.op("Add", s, n.floats(B, 1, 1, S)))
    return [n.op("MatMul", n.op("Softmax", s, axis=-1), heads(n, S))]


def three_axes(n):
    q, k, v = n.input(B * H, T, D, dims=["N", "T", D]), n.input(B * H, S, D, dims=["N", "S", D]), n.input(B * H, S, 5, dims=["N", "S", 5])
    s = n.op("MatMul", n.op("Mul", q, n.scalar(0.2)), n.op("Transpose", k, perm=[0, 2, 1]))
    return [n.op("MatMul", n.op("Softmax", n.op("Add", s, n.input(B * H, 1, S, dims=["N", 1, "S"])), axis=2), v)]


def packed(n):
    """Queries, keys and values in one tensor, as vision transformers have them."""
    x = n.op("Transpose", n.input(B, T, 3, H, D, dims=["N", "T", 3, H, D]), perm=[2, 0, 3, 1, 4])
    q, k, v = (n.op("Gather", x, n.tensor(np.array(i, np.int64)), axis=0) for i in (0, -2, 2))
    s = n.op("MatMul", n.op("Mul", q, n.scalar(0.25)), n.op("Transpose", k, perm=[0, 1, 3, 2]))
    return [back(n, n.op("MatMul", n.op("Softmax", s, axis=-1), v))]


def wide_mask(n):
    """The mask has a batch, what it is added to has none."""
    q, k, v = n.input(1, H, T, D, dims=["M", H, "T", D]), n.input(1, 1, S, D, dims=["M", 1, "S", D]), n.input(1, H, S, D, dims=["M", H, "S", D])
    s = n.op("Add", n.op("MatMul", q, n.op("Transpose", k, perm=[0, 1, 3, 2])), n.input(4, 1, T, S, dims=["N", 1, "T", "S"]))
    return [n.op("Transpose", n.op("MatMul", n.op("Softmax", s, axis=-1), v), perm=[0, 2, 1, 3])]


def decode(n):
    """One query over many keys."""
    q, k = n.input(B, H, 1, D), n.input(B, H, 700, D)
    s = n.op("MatMul", q, n.op("Transpose", k, perm=[0, 1, 3, 2]))
    return [n.op("MatMul", n.op("Softmax", s, axis=-1), n.input(B, H, 700, 33))]


def long(n):
    """More rows than a block has, and more keys."""
    q, k = n.input(1, 2, 515, 16, low=-1, high=1), n.input(1, 2, 1030, 16, low=-1, high=1)
    s = n.op("Add", n.op("MatMul", q, n.op("Transpose", k, perm=[0, 1, 3, 2])), n.input(1, 2, 515, 1030))
    return [n.op("MatMul", n.op("Softmax", s, axis=-1), n.input(1, 2, 1030, 8))]


def fused_product(n):
    """As ONNX Runtime's optimizer writes it: scale and transposition in the product."""
    q, k, v = n.input(B, H, T, D, dims=["N", H, "T", D]), n.input(B, H, S, D, dims=["N", H, "S", D]), n.input(B, H, S, 5, dims=["N", H, "S", 5])
    s = n.op("FusedMatMul", q, k, domain="com.microsoft", transB=1, alpha=0.3)
    return [back(n, n.op("MatMul", n.op("Softmax", n.op("Add", s, n.input(B, 1, 1, S)), axis=-1), v))]


def fused_product_of_turned_queries(n):
    s = n.op("FusedMatMul", n.input(B, H, D, T), n.input(B, H, D, S), domain="com.microsoft", transA=1, alpha=0.2)
    return [n.op("MatMul", n.op("Softmax", s, axis=-1), n.input(B, H, S, 5))]


ATTENTIONS = [fused_product, fused_product_of_turned_queries, bert, torch_sdpa, nothing_seen, masked_fill, masked_fill_turned_and_two_biases, three_axes, packed, wide_mask, decode, long]


@pytest.mark.parametrize("build", ATTENTIONS, ids=[b.__name__ for b in ATTENTIONS])
def test_attention_is_one_operator(churon, tmp_path, build):
    n = Net()
    did = ran(churon, tmp_path, n, build(n))
    assert did.pop("Attention") == 1 and not {"MatMul", "FusedMatMul", "Softmax", "Transpose", "Where", "IsNaN", "Gather"} & set(did)


def other_softmax_axis(n):
    s = n.op("MatMul", heads(n, T), heads(n, S, turned=True))
    return [n.op("MatMul", n.op("Softmax", s, axis=2), heads(n, S))]


def old_softmax(n):
    """Before version 13 everything behind the axis is one row."""
    n.opset = 11
    return [n.op("MatMul", n.op("Softmax", n.op("MatMul", heads(n, T), heads(n, S, turned=True))), heads(n, S))]


def probabilities_read(n):
    p = n.op("Softmax", n.op("MatMul", heads(n, T), heads(n, S, turned=True)), axis=-1)
    return [n.op("MatMul", p, heads(n, S)), n.op("Neg", p)]


def scale_behind_mask(n):
    s = n.op("Mul", n.op("Add", n.op("MatMul", heads(n, T), heads(n, S, turned=True)), n.floats(1, 1, T, S)), n.scalar(0.5))
    return [n.op("MatMul", n.op("Softmax", s, axis=-1), heads(n, S))]


def scale_computed(n):
    s = n.op("Mul", n.op("MatMul", heads(n, T), heads(n, S, turned=True)), n.input(1))
    return [n.op("MatMul", n.op("Softmax", s, axis=-1), heads(n, S))]


def nan_to_one(n):
    p = n.op("Softmax", n.op("MatMul", heads(n, T), heads(n, S, turned=True)), axis=-1)
    return [n.op("MatMul", n.op("Where", n.op("IsNaN", p), n.scalar(1.0), p), heads(n, S))]


def constant_keys(n):
    p = n.op("Softmax", n.op("MatMul", heads(n, T), n.floats(B, H, D, S)), axis=-1)
    return [n.op("MatMul", p, heads(n, S))]


def divided_by_scores(n):
    s = n.op("Div", n.scalar(3.0), n.op("Exp", n.op("MatMul", heads(n, T), heads(n, S, turned=True))))
    return [n.op("MatMul", n.op("Softmax", s, axis=-1), heads(n, S))]


NO_ATTENTIONS = [other_softmax_axis, old_softmax, probabilities_read, scale_behind_mask, scale_computed, nan_to_one, constant_keys, divided_by_scores]


@pytest.mark.parametrize("build", NO_ATTENTIONS, ids=[b.__name__ for b in NO_ATTENTIONS])
def test_no_attention(churon, tmp_path, build):
    n = Net()
    assert "Attention" not in ran(churon, tmp_path, n, build(n))


def test_reshapes_that_mix_heads_are_no_transposition(churon, tmp_path):
    n = Net()
    k = merged(n, heads(n, S), S, (B * S, H, D))
    y = n.op("MatMul", n.op("Softmax", n.op("MatMul", heads(n, T), k), axis=-1), heads(n, S))
    assert ran(churon, tmp_path, n, [y]) == {"Attention": 1, "Transpose": 2}


def test_other_turns_of_queries_and_output(churon, tmp_path):
    """[head, batch, ...] queries and an output that goes back another way: the turns are followed or left."""
    n = Net()
    q = n.op("Transpose", n.input(T, B, D, H), perm=[1, 3, 0, 2])
    s = n.op("MatMul", q, n.op("Transpose", n.input(S, B, H, D), perm=[1, 2, 3, 0]))
    y = n.op("MatMul", n.op("Softmax", s, axis=-1), n.op("Transpose", n.input(S, B, H, D), perm=[1, 2, 0, 3]))
    assert ran(churon, tmp_path, n, [n.op("Transpose", y, perm=[2, 0, 1, 3])]) == {"Attention": 1, "Transpose": 1}


@pytest.mark.parametrize("build", [bert, three_axes, packed])
def test_attention_of_a_row_depends_on_no_batch_and_no_thread(churon, tmp_path, build):
    n = Net()
    [y] = build(n)
    onnx.save(n.model([y]), tmp_path / "model.onnx")

    def run(threads, rows):
        inputs = []
        for name, x in n.feeds.items():
            np.save(tmp_path / f"{name}.npy", x[rows])
            inputs += ["--input", f"{name}={tmp_path}/{name}.npy"]
        subprocess.run([churon, "run", str(tmp_path / "model.onnx"), "--threads", threads, "--output-dir", str(tmp_path), *inputs], check=True,
                       capture_output=True, timeout=60)
        return np.load(tmp_path / f"{y}.npy").view(np.uint32)

    whole = run("1", slice(None))
    assert np.array_equal(whole, run("2", slice(None)))
    assert np.array_equal(whole[1:2], run("1", slice(1, 2)))


@pytest.mark.parametrize("kind", ["BiasGelu", "FastGelu"])
def test_bias_and_gelu_join_the_product(churon, tmp_path, kind):
    n = Net()
    y = n.op(kind, n.op("MatMul", n.input(3, 5, 24, dims=["N", 5, 24]), n.floats(24, 40)), n.floats(40), domain="com.microsoft")
    assert ran(churon, tmp_path, n, [y]) == {"Product": 1}


@pytest.mark.parametrize("bias, read", [(False, False), (True, False), (True, True)])
def test_fused_skip_and_norm_are_taken_apart(churon, tmp_path, bias, read):
    n = Net()
    x, skip = n.input(3, 5, 24, dims=["N", 5, 24]), n.input(3, 5, 40, dims=["N", 5, 40])
    x = n.op("MatMul", x, n.floats(24, 40))
    more = [n.floats(40)] if bias else []
    y = n.op("SkipLayerNormalization", x, skip, n.floats(40), n.floats(40), *more, domain="com.microsoft", epsilon=1e-6)
    total = "total"
    if read:
        n.nodes[-1].output.extend(["", "", total])
    outputs = [n.op("Neg", total), y] if read else [y]
    assert ran(churon, tmp_path, n, outputs) == {"Product": 1, "SkipNormalization": 1, **({"Neg": 1} if read else {})}


def test_fused_skip_that_widens_stays(churon, tmp_path):
    n = Net()
    y = n.op("SkipLayerNormalization", n.input(3, 5, 24), n.input(1, 5, 24), n.floats(24), n.floats(24), domain="com.microsoft", epsilon=1e-6)
    assert ran(churon, tmp_path, n, [y]) == {"SkipLayerNormalization": 1}


def one_hot(n, x, rows, how):
    if how == "equal":
        hot = n.op("Cast", n.op("Equal", x, n.tensor(np.arange(2, 2 + rows, dtype=np.int32)[None])), to=TensorProto.FLOAT)
    elif how == "turned":
        hot = n.op("Cast", n.op("Equal", n.tensor(np.arange(-1, rows - 1, dtype=np.int32)), x), to=TensorProto.FLOAT)
    else:
        hot = n.op("OneHot", x, n.tensor(np.array(rows, np.int32)), n.tensor(np.array([0, 1], np.float32)))
    return n.op("MatMul", hot, n.floats(rows, 24))


def integers(n, *shape, low=-9, high=12):
    name = f"x{len(n.infos)}"
    n.feeds[name] = n.rng.integers(low, high, shape).astype(np.int32)
    n.infos.append(helper.make_tensor_value_info(name, TensorProto.INT32, ["N", *shape[1:]]))
    return name


@pytest.mark.parametrize("how", ["equal", "turned", "operator"])
@pytest.mark.parametrize("behind", ["nothing", "bias", "gelu", "clip"])
def test_one_hot_products_pick_rows(churon, tmp_path, how, behind):
    n = Net()
    x = integers(n, 3, 50, *([] if how == "operator" else [1]))
    y = one_hot(n, x, 9, how)
    if behind != "nothing":
        y = n.op("Add", y, n.floats(24))
    if behind == "gelu":
        y = n.op("Gelu", y, domain="com.microsoft")
    if behind == "clip":
        y = n.op("Clip", y, n.scalar(-0.5), n.scalar(0.5))
    assert ran(churon, tmp_path, n, [y]) == {"PickedRows": 1}


@pytest.mark.parametrize("what", ["wide", "gap", "infinite", "read", "values"])
def test_no_one_hot(churon, tmp_path, what):
    n = Net()
    x = integers(n, 2, 5, *([] if what == "values" else [4 if what == "wide" else 1]), low=0, high=4)
    c = np.array([0, 1, 2, 4 if what == "gap" else 3], np.int32)
    if what == "values":
        hot = n.op("OneHot", x, n.tensor(np.array(4, np.int32)), n.tensor(np.array([0, 2], np.float32)))
    else:
        hot = n.op("Cast", n.op("Equal", x, n.tensor(c)), to=TensorProto.FLOAT)
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    if what == "infinite":
        w[1, 1] = np.inf
    outputs = [n.op("MatMul", hot, n.tensor(w))] + ([n.op("Neg", hot)] if what == "read" else [])
    assert "PickedRows" not in ran(churon, tmp_path, n, outputs)


# ---- transpositions and casts ----------------------------------------------------------------------------

IN, OUT = [0, 2, 3, 1], [0, 3, 1, 2]


def turn(n, x, perm=None):
    return n.op("Transpose", x, perm=perm or IN)


def image(n):
    return n.input(2, 3, 4, 5, dims=["N", 3, "H", "W"])


def functions_between(n):
    y = n.op("Clip", n.op("Sigmoid", n.op("Relu", turn(n, image(n)))), n.scalar(0.2), n.scalar(0.7))
    return [turn(n, y, OUT)]


def constants_between(n):
    y = n.op("Mul", n.op("Add", turn(n, image(n)), n.floats(3)), n.floats(1, 1, 5, 3))
    return [turn(n, n.op("Sub", n.scalar(1.0, (1, 1)), y), OUT)]


def two_branches(n):
    y = n.op("Add", n.op("Tanh", turn(n, image(n))), turn(n, n.input(2, 3, 4, 5)))
    return [turn(n, n.op("Exp", y), OUT)]


def constant_that_widens(n):
    return [turn(n, n.op("Add", turn(n, n.input(2, 1, 4, 5)), n.floats(6)), OUT)]


@pytest.mark.parametrize("build", [functions_between, constants_between, two_branches, constant_that_widens])
def test_transpositions_cancel(churon, tmp_path, build):
    n = Net()
    assert "Transpose" not in ran(churon, tmp_path, n, build(n))


def test_sums_of_images_with_channels_last(churon, tmp_path):
    n = Net()
    x = turn(n, n.op("Conv", n.input(2, 3, 8, 9), n.floats(4, 3, 3, 3)))
    y = turn(n, n.op("Conv", turn(n, x, OUT), n.floats(4, 4, 1, 1)))
    z = n.op("Relu", n.op("Add", n.op("Add", y, n.floats(4)), x))
    got = ran(churon, tmp_path, n, [turn(n, n.op("Mul", z, n.op("Add", z, turn(n, n.op("Conv", turn(n, z, OUT), n.floats(4, 4, 1, 1))))), OUT)])
    assert "Transpose" not in got


def test_transpositions_join(churon, tmp_path):
    n = Net()
    assert ran(churon, tmp_path, n, [turn(n, n.op("Neg", turn(n, image(n))), [0, 1, 3, 2])])["Transpose"] == 1


@pytest.mark.parametrize("opset", [13, 18])
def test_a_mean_over_what_was_turned(churon, tmp_path, opset):
    n = Net(opset=opset)
    assert ran(churon, tmp_path, n, [n.reduce("ReduceMean", n.op("Relu", turn(n, image(n))), [1, 2], 0)]) == {"Relu": 1, "ReduceMean": 1}


def test_a_mean_that_would_change_the_order(churon, tmp_path):
    n = Net()
    assert "Transpose" in ran(churon, tmp_path, n, [n.reduce("ReduceMean", turn(n, image(n)), [2], 0)])


@pytest.mark.parametrize("what", ["read twice", "other turn", "softmax"])
def test_transpositions_stay(churon, tmp_path, what):
    n = Net()
    x = turn(n, image(n))
    y = n.op("Softmax", x, axis=-1) if what == "softmax" else n.op("Relu", x)
    if what == "other turn":
        y = n.op("Add", y, turn(n, n.input(2, 4, 5, 3), [0, 1, 2, 3]))
    outputs = [turn(n, y, OUT)] + ([n.op("Exp", y)] if what == "read twice" else [])
    got = ran(churon, tmp_path, n, outputs)
    assert got.get("Transpose", 0) == {"read twice": 2, "other turn": 2, "softmax": 2}[what]


def test_a_shape_needs_no_transposition(churon, tmp_path):
    n = Net()
    shape = n.op("Shape", turn(n, image(n)), start=1, end=3)
    zeros = n.op("ConstantOfShape", shape, value=numpy_helper.from_array(np.array([2.5], np.float32)))
    assert "Transpose" not in ran(churon, tmp_path, n, [zeros])


def test_a_turn_of_single_elements_is_a_reshape(churon, tmp_path):
    n = Net()
    assert "Transpose" not in ran(churon, tmp_path, n, [n.op("Relu", turn(n, n.input(2, 1, 4, 5), [0, 2, 1, 3]))])


@pytest.mark.parametrize("between, casts", [(TensorProto.DOUBLE, 0), (TensorProto.FLOAT16, 2), (TensorProto.INT32, 2), (TensorProto.BFLOAT16, 2)])
def test_casts_that_lose_nothing_vanish(churon, tmp_path, between, casts):
    n = Net()
    x = n.op("Cast", n.op("Cast", n.input(3, 4), to=between), to=TensorProto.FLOAT)
    assert ran(churon, tmp_path, n, [n.op("Relu", x)]).get("Cast", 0) == casts


def test_casts_of_casts(churon, tmp_path):
    n = Net()
    b = n.op("Cast", n.op("Greater", n.input(3, 4), n.scalar(0.0)), to=TensorProto.INT32)
    assert ran(churon, tmp_path, n, [n.op("Cast", n.op("Cast", b, to=TensorProto.INT64), to=TensorProto.FLOAT)])["Cast"] == 1


# ---- the QDQ form ----------------------------------------------------------------------------------------


class Quantized(Net):
    """Values between QuantizeLinear and DequantizeLinear; `step` bounds what one step of the output is."""

    def zero(self, kind, at):
        return self.tensor(np.array(at, kind))

    def q(self, x, scale, kind=np.uint8, zero=None):
        zero = (100 if kind is np.uint8 else -7) if zero is None else zero
        return self.op("QuantizeLinear", x, self.scalar(scale), self.zero(kind, zero)), scale, kind, zero

    def dq(self, quantized):
        name, scale, kind, zero = quantized
        return self.op("DequantizeLinear", name, self.scalar(scale), self.zero(kind, zero))

    def through(self, x, scale, **how):
        return self.dq(self.q(x, scale, **how))

    def byte_weights(self, *shape, axis=None, kind=np.int8):
        count = 1 if axis is None else shape[axis]
        scale = self.rng.uniform(0.005, 0.02, count if axis is not None else ()).astype(np.float32)
        zero = np.zeros(scale.shape, kind) if kind is np.int8 else np.full(scale.shape, 120, kind)
        low, high = (-127, 128) if kind is np.int8 else (0, 256)
        w = self.tensor(self.rng.integers(low, high, shape).astype(kind))
        attrs = {} if axis is None else {"axis": axis}
        return self.op("DequantizeLinear", w, self.tensor(scale), self.tensor(zero), **attrs), scale

    def bias(self, n, x_scale, w_scale, off=1.0):
        scale = np.broadcast_to(np.float32(x_scale) * w_scale, (n,)).astype(np.float32) * np.float32(off)
        b = self.tensor(self.rng.integers(-500, 500, n).astype(np.int32))
        return self.op("DequantizeLinear", b, self.tensor(scale), self.tensor(np.zeros(n, np.int32)), axis=0)


def steps(churon, folder, net, y, scale):
    """Operators that ran; the answer is ONNX Runtime's within one step, and mostly the same one."""
    model = net.model([y])
    onnx.save(model, folder / "model.onnx")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    [want] = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run([y], net.feeds)
    inputs = []
    for name, x in net.feeds.items():
        np.save(folder / f"{name}.npy", x)
        inputs += ["--input", f"{name}={folder}/{name}.npy"]
    subprocess.run([churon, "run", str(folder / "model.onnx"), "--output-dir", str(folder), *inputs], check=True, capture_output=True, timeout=60)
    got = np.load(folder / f"{y}.npy")
    apart = np.abs(got - want)
    assert got.shape == want.shape and apart.max() <= 1.001 * scale and (apart > 0.5 * scale).mean() < 0.01
    p = subprocess.run([churon, "verify", str(folder / "model.onnx"), "--passes", *inputs], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0, p.stdout + p.stderr
    p = subprocess.run([churon, "bench", str(folder / "model.onnx"), "--reps", "1", "--json", *inputs], capture_output=True, text=True,
                       timeout=60)
    return {o["op"]: o["nodes"] for o in json.loads(p.stdout)["rows"][0]["operators"]}


ENDS = {"QuantizeLinear": 1, "DequantizeLinear": 1}
TURNS = {"ToLast": 1, "FromLast": 1}


@pytest.mark.parametrize("axis, kind, bias, relu", [(None, np.int8, True, False), (0, np.int8, True, True), (0, np.int8, False, False),
                                                    (None, np.uint8, True, True)])
def test_quantized_convolution(churon, tmp_path, axis, kind, bias, relu):
    n = Quantized()
    x = n.through(n.input(2, 8, 9, 7, dims=["N", 8, "H", "W"]), 0.0213)
    w, scale = n.byte_weights(12, 8, 3, 3, axis=axis, kind=kind)
    y = n.op("Conv", x, w, *([n.bias(12, 0.0213, scale)] if bias else []), pads=[1, 1, 1, 1], strides=[2, 1])
    y = n.through(n.op("Relu", y) if relu else y, 0.0317, zero=0 if relu else 128)
    assert steps(churon, tmp_path, n, y, 0.0317) == {"QuantizedConv": 1, **TURNS, **ENDS}


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("axis", [None, 1])
def test_quantized_products(churon, tmp_path, axis, kind):
    n = Quantized()
    x = n.through(n.input(5, 33), 0.0213, kind=kind)
    w, scale = n.byte_weights(33, 20, axis=axis)
    y = n.through(n.op("MatMul", x, w), 0.0213, kind=kind, zero=3)
    v, scale = n.byte_weights(9, 20, axis=None if axis is None else 0)
    y = n.through(n.op("Gemm", y, v, n.bias(9, 0.0213, scale), transB=1), 0.0213, kind=kind, zero=-3 if kind is np.int8 else 130)
    assert steps(churon, tmp_path, n, y, 0.0213) == {"QLinearMatMul": 1, "QGemm": 1, **ENDS}


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("op", ["Add", "Mul", "Sum"])
def test_quantized_pairs(churon, tmp_path, op, kind):
    n = Quantized()
    a, b = n.through(n.input(3, 40, 7), 0.0213, kind=kind), n.through(n.input(3, 40, 7), 0.0147, kind=kind)
    y = n.through(n.op("Relu", n.op(op, a, b)), 0.0213, kind=kind, zero=0 if kind is np.uint8 else -128)
    assert steps(churon, tmp_path, n, y, 0.0213) == {"QLinearMul" if op == "Mul" else "QLinearAdd": 1, "QuantizeLinear": 2, "DequantizeLinear": 1}


def test_what_only_moves_is_moved_as_bytes(churon, tmp_path):
    n = Quantized()
    x = n.through(n.input(3, 4, 5), 0.0213)
    y = n.through(n.op("Transpose", x, perm=[0, 2, 1]), 0.0213)
    y = n.through(n.op("Reshape", y, n.ints(3, -1)), 0.0213)
    assert steps(churon, tmp_path, n, y, 1e-9) == {"Transpose": 1, **ENDS}


@pytest.mark.parametrize("what", ["relu", "scale", "bias", "bias scale", "weights", "read"])
def test_what_is_not_computed_on_integers(churon, tmp_path, what):
    n = Quantized()
    x = n.through(n.input(2, 8, 5, 5), 0.0213)
    w, scale = n.byte_weights(12, 8, 3, 3, axis=0)
    if what == "weights":
        w = n.floats(12, 8, 3, 3, low=-0.2, high=0.2)
    b = n.floats(12) if what == "bias" else n.bias(12, 0.0213, scale, 1.01 if what == "bias scale" else 1.0)
    y = n.op("Conv", x, w, b)
    z = n.op("Relu", y) if what == "relu" else y
    if what == "scale":
        out = n.op("DequantizeLinear", n.op("QuantizeLinear", z, n.input(1, low=0.0213, high=0.0317), n.zero(np.uint8, 3)), n.scalar(0.0213), n.zero(np.uint8, 3))
    else:
        out = n.through(z, 0.0317, zero=128)  # Relu, and then negative steps: saturation is not the same
    if what == "read":
        out = n.op("Add", out, n.op("Mul", y, n.scalar(1e-6)))
    assert not {"QLinearConv", "QuantizedConv"} & steps(churon, tmp_path, n, out, 0.0317).keys()


def test_bytes_with_other_scales_are_moved_and_looked_up(churon, tmp_path):
    n = Quantized()
    y = n.through(n.op("Transpose", n.through(n.input(3, 4), 0.0213), perm=[1, 0]), 0.0317)
    assert steps(churon, tmp_path, n, y, 1e-9) == {"Transpose": 1, "Table": 1, **ENDS}


# ---- images of 8 bits ------------------------------------------------------------------------------------


def conv8(n, x, channels, out, kernel=3, x_scale=0.0213, y_scale=0.0317, groups=1, kind=np.uint8, w_kind=np.int8, zero=128, **attrs):
    w, scale = n.byte_weights(out, channels // groups, kernel, kernel, axis=0 if w_kind is np.int8 else None, kind=w_kind)
    pad = kernel // 2
    y = n.op("Conv", x, w, n.bias(out, x_scale, scale), pads=[pad] * 4, group=groups, **attrs)
    return n.through(y, y_scale, kind=kind, zero=zero)


@pytest.mark.parametrize("kind, w_kind", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)])
@pytest.mark.parametrize("groups, stride", [(1, 1), (1, 2), (3, 1), (24, 1), (24, 2)])
def test_quantized_image_convolutions(churon, tmp_path, kind, w_kind, groups, stride):
    n = Quantized()
    zero = -7 if kind is np.int8 else 100
    x = n.through(n.input(2, 24, 9, 7), 0.0213, kind=kind)
    y = conv8(n, x, 24, 24, groups=groups, kind=kind, w_kind=w_kind, zero=zero, strides=[stride, stride])
    y = conv8(n, y, 24, 40, kernel=1, x_scale=0.0317, kind=kind, w_kind=w_kind, zero=zero)
    got = steps(churon, tmp_path, n, y, 0.0317)
    if groups == 24 and w_kind is np.uint8:  # each channel for itself: weights with zero points go the general way
        assert got["QLinearConv"] == 1 and got["QuantizedConv"] == 1
    else:
        assert got == {"QuantizedConv": 2, **TURNS, **ENDS}


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("first", [True, False])
def test_a_residual_joins_its_convolution(churon, tmp_path, kind, first):
    n = Quantized()
    zero = -7 if kind is np.int8 else 100
    x = conv8(n, n.through(n.input(2, 8, 9, 7), 0.0213, kind=kind), 8, 24, kind=kind, zero=zero)
    y = conv8(n, x, 24, 24, x_scale=0.0317, kind=kind, zero=zero)
    y = n.op("Add", x, y) if first else n.op("Add", y, x)
    y = n.through(n.op("Relu", y), 0.0417, kind=kind, zero=-128 if kind is np.int8 else 0)
    assert steps(churon, tmp_path, n, y, 0.0417) == {"QuantizedConv": 2, **TURNS, **ENDS}


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("op, attrs", [
    ("MaxPool", dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])),
    ("MaxPool", dict(kernel_shape=[2, 3], strides=[2, 1], ceil_mode=1)),
    ("AveragePool", dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 1])),
    ("AveragePool", dict(kernel_shape=[3, 2], strides=[1, 1], pads=[1, 0, 1, 1], count_include_pad=1)),
    ("GlobalAveragePool", {}),
])
def test_quantized_pools(churon, tmp_path, kind, op, attrs):
    n = Quantized()
    zero = -7 if kind is np.int8 else 100
    x = conv8(n, n.through(n.input(2, 8, 9, 7), 0.0213, kind=kind), 8, 24, kind=kind, zero=zero)
    scale = 0.0317 if op == "MaxPool" else 0.0213
    y = n.through(n.op(op, x, **attrs), scale, kind=kind, zero=zero)
    assert steps(churon, tmp_path, n, y, scale) == {"QuantizedConv": 1, "QuantizedPool": 1, **TURNS, **ENDS}


def test_quantized_channels_join_and_repeat(churon, tmp_path):
    n = Quantized()
    x = conv8(n, n.through(n.input(2, 8, 5, 6), 0.0213), 8, 24)
    a, b = conv8(n, x, 24, 10, kernel=1, x_scale=0.0317), conv8(n, x, 24, 20, x_scale=0.0317, y_scale=0.0511)
    y = n.through(n.op("Concat", a, b, x, axis=1), 0.0317, zero=128)
    y = n.through(n.op("Resize", y, "", n.tensor(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
                       coordinate_transformation_mode="asymmetric", nearest_mode="floor"), 0.0317, zero=128)
    assert steps(churon, tmp_path, n, y, 0.0317) == {"QuantizedConv": 3, "Join": 1, "RepeatPixels": 1, **TURNS, **ENDS}


def test_quantized_channels_are_shuffled(churon, tmp_path):
    n = Quantized()
    y = conv8(n, n.through(n.input(2, 8, 5, 6), 0.0213), 8, 24)
    y = n.through(n.op("Reshape", y, n.ints(2, 3, 8, 5, 6)), 0.0317, zero=128)
    y = n.through(n.op("Transpose", y, perm=[0, 2, 1, 3, 4]), 0.0317, zero=128)
    y = n.through(n.op("Reshape", y, n.ints(2, 24, 5, 6)), 0.0317, zero=128)
    assert steps(churon, tmp_path, n, y, 0.0317) == {"QuantizedConv": 1, "Pick": 1, **TURNS, **ENDS}


def test_functions_of_a_byte_are_tables(churon, tmp_path):
    """HardSwish in pieces, each quantized; ONNX Runtime without optimizer gives the same bytes."""
    n = Quantized()
    x = n.through(n.input(2, 8, 5, 6, low=-5.0, high=5.0), 0.0413, zero=120)
    y = n.through(n.op("Clip", n.through(n.op("Add", x, n.scalar(3.0)), 0.0513), n.scalar(0.0), n.scalar(6.0)), 0.0241, zero=0)
    y = n.through(n.op("Mul", x, y), 0.0813, zero=40)
    y = n.through(n.op("Div", y, n.scalar(6.0)), 0.0213, zero=40)
    assert steps(churon, tmp_path, n, y, 1e-9) == {"Table": 1, **ENDS}


@pytest.mark.parametrize("shape, constant", [((2, 8, 5, 6), (8, 1, 1)), ((2, 8, 5, 6), (1, 8, 1, 1)), ((3, 7, 12), (12,))])
def test_functions_of_a_byte_and_its_channel_are_tables(churon, tmp_path, shape, constant):
    n = Quantized()
    x = n.through(n.input(*shape), 0.0213)
    y = n.through(n.op("Mul", x, n.floats(*constant)), 0.0213, zero=128)
    y = n.through(n.op("Sigmoid", n.op("Add", y, n.through(n.floats(*constant), 0.01))), 0.0041, zero=3)
    assert steps(churon, tmp_path, n, y, 0.0041) == {"Table": 1, **ENDS}


def test_a_normalization_between_bytes_is_a_table(churon, tmp_path):
    n = Quantized()
    x = conv8(n, n.through(n.input(2, 8, 5, 6), 0.0213), 8, 24)
    y = n.op("BatchNormalization", x, n.floats(24, low=0.5, high=1.5), n.floats(24), n.floats(24), n.floats(24, low=0.5, high=1.5))
    y = n.through(n.op("Relu", y), 0.0317, zero=0)
    assert steps(churon, tmp_path, n, y, 0.0317) == {"QuantizedConv": 1, "Table": 1, **TURNS, **ENDS}


@pytest.mark.parametrize("what", ["another value", "positions"])
def test_what_is_no_function_of_a_byte(churon, tmp_path, what):
    n = Quantized()
    x = n.through(n.input(2, 8, 5, 6), 0.0213)
    other = n.through(n.input(2, 8, 5, 6), 0.0213) if what == "another value" else n.floats(5, 6)
    y = n.through(n.op("Mul", x, other), 0.0213, zero=128)
    assert "Table" not in steps(churon, tmp_path, n, y, 0.0213)


def rows_of(churon, folder, model, inputs, threads, isa):
    """Answers of one run."""
    out = folder / "out"
    args = []
    for name, x in inputs.items():
        np.save(folder / f"in_{name}.npy", x)
        args += ["--input", f"{name}={folder}/in_{name}.npy"]
    p = subprocess.run([churon, "run", str(model), "--output-dir", str(out), "--threads", str(threads), *args], capture_output=True, text=True,
                       timeout=60, env={**os.environ, "CHURON_CPU": isa})
    if p.returncode and "instruction set" in p.stderr:
        return None
    assert p.returncode == 0, p.stderr
    return [np.load(f) for f in sorted(out.glob("*.npy"))]


def test_quantized_images_depend_on_no_company(churon, tmp_path):
    """A row of a batch is the row alone, one thread two, and every instruction set the same, bit for bit."""
    n = Quantized()
    x = n.through(n.input(3, 8, 33, 29, dims=["N", 8, 33, 29]), 0.0213)
    y = conv8(n, x, 8, 48, strides=[2, 2])
    z = n.through(n.op("Relu", n.op("Add", conv8(n, y, 48, 48, x_scale=0.0317), y)), 0.0417, zero=0)
    z = conv8(n, z, 48, 48, groups=48, x_scale=0.0417)
    pooled = n.through(n.op("MaxPool", z, kernel_shape=[3, 3], strides=[2, 2]), 0.0317, zero=128)
    z = n.through(n.op("Sigmoid", pooled), 0.004, zero=0)
    model = tmp_path / "model.onnx"
    onnx.save(n.model([z]), model)
    [name] = n.feeds
    whole = rows_of(churon, tmp_path, model, n.feeds, 1, "avx512") or rows_of(churon, tmp_path, model, n.feeds, 1, "avx2")
    for isa in ("avx512", "avx2", "ref"):
        for threads in (1, 2):
            got = rows_of(churon, tmp_path, model, n.feeds, threads, isa)
            assert got is None or (got[0] == whole[0]).all(), (isa, threads)
    for i in range(3):
        [alone] = rows_of(churon, tmp_path, model, {name: n.feeds[name][i : i + 1]}, 2, "ref")
        assert (alone[0] == whole[0][i]).all()


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("a, b", [((2, 3, 5, 6), (2, 3, 1, 1)), ((2, 3, 5, 6), (1, 1, 5, 6)), ((4, 1, 7), (1, 3, 7)), ((2, 1), (1, 1500)), ((5, 6), (1, 1)),
                                  ((2, 3, 1, 6), (2, 1, 5, 1))])
def test_quantized_pairs_that_broadcast(churon, tmp_path, op, kind, a, b):
    n = Quantized()
    x, z = n.through(n.input(*a), 0.0213, kind=kind), n.through(n.input(*b), 0.0147, kind=kind)
    y = n.through(n.op(op, x, z), 0.0213, kind=kind, zero=100 if kind is np.uint8 else -5)
    assert steps(churon, tmp_path, n, y, 0.0213) == {f"QLinear{op}": 1, "QuantizeLinear": 2, "DequantizeLinear": 1}


def test_a_gate_of_channels_on_quantized_images(churon, tmp_path):
    n = Quantized()
    x = conv8(n, n.through(n.input(2, 8, 9, 7), 0.0213), 8, 24)
    gate = n.through(n.op("GlobalAveragePool", x), 0.0213)
    gate = n.through(n.op("Sigmoid", conv8(n, gate, 24, 24, kernel=1)), 0.004, zero=0)
    y = n.through(n.op("Mul", x, gate), 0.0317, zero=128)
    got = steps(churon, tmp_path, n, y, 0.0317)
    assert got == {"QuantizedConv": 2, "QuantizedPool": 1, "Table": 1, "QLinearMul": 1, **TURNS, **ENDS}
