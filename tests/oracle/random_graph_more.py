"""What random_graph.py leaves out: loops and scans with captured values, other element types, QDQ, indices, recurrent layers.

Integers and indices come from the model's inputs, which every runtime sees bit for bit: a float that two right ways compute a
little apart would become two integers. Narrow floats and QDQ make the bound wider: they count as sums of so many terms that
their rounding fits in."""

import numpy as np
import random_graph
from onnx import TensorProto, helper
from random_graph import Value

FLOATS = {"float16": TensorProto.FLOAT16, "double": TensorProto.DOUBLE}
INTS = {"int32": TensorProto.INT32, "int64": TensorProto.INT64}


def raw(g, kind, inputs, n_outputs=1, **attrs):
    """A node whose values stay out of the pool: of another type, or of a size that nobody else wants."""
    outs = [g.name("t") for _ in range(n_outputs)]
    names = [i.name if isinstance(i, Value) else i for i in inputs]
    g.consumed.update(i.name for i in inputs if isinstance(i, Value))
    g.nodes.append(helper.make_node(kind, names, outs, name=g.name("n"), **attrs))
    return outs if n_outputs > 1 else outs[0]


def given(g):
    return g.find(lambda v: v.name in g.feeds)


def of_type(g, kind, *shape, low=-1.0, high=1.0):
    return g.weight(g.rng.uniform(low, high, shape).astype(kind))


def narrow(g):
    """Some nodes in f16 or f64, between casts."""
    x = g.find(lambda v: 0 < np.prod(v.shape) < 20000)
    if x is None:
        return None
    kind = g.pick(["float16", "double"])
    dtype = np.float16 if kind == "float16" else np.float64
    v, shape = raw(g, "Cast", [x], to=FLOATS[kind]), x.shape
    for _ in range(g.integer(1, 4)):
        what = g.pick(["unary", "unary", "binary", "scale", "product", "softmax", "mean"])
        if what == "unary":
            v = raw(g, g.pick(["Sigmoid", "Tanh", "Relu", "Abs", "Neg"]), [v])
        elif what == "binary":
            v = raw(g, g.pick(["Add", "Sub", "Max", "Min"]), [v, of_type(g, dtype, *shape[-1:])])
        elif what == "scale":
            v = raw(g, "Mul", [v, of_type(g, dtype)])
        elif what == "product" and len(shape) >= 2 and 1 <= shape[-1] <= 300:
            n = g.pick([1, 7, 16, 33])
            v = raw(g, "MatMul", [v, of_type(g, dtype, shape[-1], n, low=-(shape[-1] ** -0.5), high=shape[-1] ** -0.5)])
            g.sums, shape = max(g.sums, shape[-1]), (*shape[:-1], n)
        elif what == "softmax" and len(shape) >= 1:
            v = raw(g, "Softmax", [v], axis=len(shape) - 1)
        elif what == "mean" and len(shape) >= 2 and g.opset < 18:
            v, shape = raw(g, "ReduceMean", [v], axes=[1], keepdims=1), (shape[0], 1, *shape[2:])
    if kind == "float16":
        g.sums = max(g.sums, 1 << 14)
    return g.node("Cast", [v], shape, to=TensorProto.FLOAT)


def whole_numbers(g):
    """Integer arithmetic, from an input on."""
    x = given(g)
    kind = g.pick(["int32", "int64"])
    v = raw(g, "Cast", [raw(g, "Mul", [x, g.weight(np.array(8, np.float32))])], to=INTS[kind])
    constant = lambda low, high: g.weight(np.array(g.integer(low, high), kind))  # noqa: E731
    for _ in range(g.integer(1, 5)):
        op = g.pick(["Add", "Mul", "Sub", "Div", "Mod", "Max", "Clip", "Neg", "Abs", "Sign"])
        if op in ("Neg", "Abs", "Sign"):
            v = raw(g, op, [v])
        elif op == "Clip" and g.opset >= 12:
            v = raw(g, op, [v, constant(-9, 0), constant(1, 9)])
        elif op in ("Div", "Mod"):
            v = raw(g, op, [v, constant(1, 5)])
        elif op != "Clip" and not (op == "Max" and g.opset < 12):
            v = raw(g, op, [v, constant(-3, 3)])
    f = raw(g, "Cast", [v], to=TensorProto.FLOAT)
    return g.node("Tanh", [raw(g, "Mul", [f, g.weight(np.array(0.03, np.float32))])], x.shape)


def comparisons(g):
    x = given(g)
    bits = []
    for _ in range(2):
        bits.append(raw(g, g.pick(["Greater", "Less", "GreaterOrEqual", "LessOrEqual"] if g.opset >= 12 else ["Greater", "Less"]),
                        [x, g.weight(np.array(g.rng.uniform(-1, 1), np.float32))]))
    both = raw(g, g.pick(["And", "Or", "Xor"]), bits)
    both = raw(g, "Not", [both]) if g.chance(0.3) else both
    other = g.find(lambda v: v.shape == x.shape)
    return g.node("Where", [both, other, g.weight(np.array(0.25, np.float32))], x.shape)


def indices(g):
    """Gather and Scatter with constant indices, TopK and ArgMax of an input."""
    x = g.find(lambda v: v.rank >= 1 and 0 < np.prod(v.shape) < 30000)
    if x is None or g.dynamic:
        return None
    axis = g.integer(0, x.rank - 1)
    n, what = x.shape[axis], g.pick(["gather", "gather", "elements", "scatter", "topk", "argmax", "trilu", "tile", "cumsum"])
    if what == "gather":
        shape = g.pick([(), (3,), (2, 2)])
        at = g.weight(g.rng.integers(-n, n, shape).astype(g.pick([np.int32, np.int64])))
        return g.node("Gather", [x, at], (*x.shape[:axis], *shape, *x.shape[axis + 1 :]), axis=axis) if x.rank + len(shape) < 6 else None
    if what == "elements":
        shape = [g.integer(1, 3) if i == axis else d for i, d in enumerate(x.shape)]
        return g.node("GatherElements", [x, g.weight(g.rng.integers(0, n, shape))], shape, axis=axis)
    if what == "scatter":
        shape = [1 if i == axis else d for i, d in enumerate(x.shape)]
        return g.node("ScatterElements", [x, g.weight(g.rng.integers(-n, n, shape)), g.floats(*shape)], x.shape, axis=axis)
    if what == "cumsum":
        g.sums = max(g.sums, n)
        y = g.node("CumSum", [x, g.weight(np.array(axis, np.int64))], x.shape, exclusive=g.integer(0, 1), reverse=g.integer(0, 1))
        return g.node("Mul", [y, g.weight(np.array(1 / n, np.float32))], x.shape)
    if what == "tile" and np.prod(x.shape) < 5000:
        times = [g.integer(1, 2) for _ in x.shape]
        return g.node("Tile", [x, g.ints(*times)], [d * t for d, t in zip(x.shape, times)])
    if what == "trilu" and x.rank >= 2 and g.opset >= 14:
        return g.node("Trilu", [x, g.weight(np.array(g.integer(-2, 2), np.int64))], x.shape, upper=g.integer(0, 1))
    x = given(g)
    axis = g.integer(0, x.rank - 1)
    if what == "topk":
        k = g.integer(1, x.shape[axis])
        shape = [k if i == axis else d for i, d in enumerate(x.shape)]
        values = raw(g, "TopK", [x, g.ints(k)], 2, axis=axis, largest=g.integer(0, 1))[0]
        return g.node("Relu", [values], shape)
    if what == "argmax":
        shape = [1 if i == axis else d for i, d in enumerate(x.shape)]
        f = raw(g, "Cast", [raw(g, g.pick(["ArgMax", "ArgMin"]), [x], axis=axis)], to=TensorProto.FLOAT)
        return g.node("Mul", [f, g.weight(np.array(0.1, np.float32))], shape)
    return None


def loop(g):
    """A Loop that carries one value, captures another, and stacks a third."""
    x = g.find(lambda v: v.rank >= 1 and 0 < np.prod(v.shape) < 5000)
    if x is None:
        return None
    captured = g.find(lambda v: v.shape == x.shape)
    g.consumed.update((x.name, captured.name))
    weight, times = g.floats(x.shape[-1]), g.integer(1, 4)
    i, go, state = g.name("i"), g.name("c"), g.name("b")
    made = [g.name("b") for _ in range(5)]
    kept = g.name("c")
    nodes = [helper.make_node("Mul", [state, weight], [made[0]], name=g.name("n")),
             helper.make_node("Add", [made[0], captured.name], [made[1]], name=g.name("n")),
             helper.make_node(g.pick(["Tanh", "Sigmoid"]), [made[1]], [made[2]], name=g.name("n")),
             helper.make_node("Identity", [go], [kept], name=g.name("n"))]  # fmt: skip
    info = lambda name, kind, shape=None: helper.make_tensor_value_info(name, kind, shape)  # noqa: E731
    inputs = [info(i, TensorProto.INT64, []), info(go, TensorProto.BOOL, []), info(state, TensorProto.FLOAT)]
    outputs = [info(kept, TensorProto.BOOL, []), info(made[2], TensorProto.FLOAT)]
    stacked = g.chance(0.4)
    if stacked:
        nodes.append(helper.make_node("Neg", [made[2]], [made[3]], name=g.name("n")))
        outputs.append(info(made[3], TensorProto.FLOAT))
    body = helper.make_graph(nodes, "body", inputs, outputs)
    outs = [g.name("v") for _ in range(2 if stacked else 1)]
    start = g.weight(np.array(True)) if g.chance(0.5) else ""
    g.nodes.append(helper.make_node("Loop", [g.weight(np.array(times, np.int64)), start, x.name], outs, name=g.name("n"), body=body))
    if stacked and x.rank < 5:
        g.add(Value(outs[1], (times, *x.shape)))
    return Value(outs[0], x.shape)


def scan(g):
    """A Scan over one axis with a running sum, squashed."""
    x = g.find(lambda v: v.rank >= 2 and 0 < np.prod(v.shape) < 5000)
    if x is None or g.dynamic:
        return None
    axis = g.integer(0, x.rank - 1)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    g.consumed.add(x.name)
    start = g.floats(*rest)
    state, item, total, out, row = (g.name("b") for _ in range(5))
    nodes = [helper.make_node("Add", [state, item], [total], name=g.name("n")), helper.make_node("Tanh", [total], [out], name=g.name("n")),
             helper.make_node("Mul", [out, item], [row], name=g.name("n"))]  # fmt: skip
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, list(rest))  # noqa: E731
    body = helper.make_graph(nodes, "body", [info(state), info(item)], [info(out), info(row)])
    last, rows = g.name("v"), g.name("v")
    way = [g.integer(0, 1)]
    g.nodes.append(helper.make_node("Scan", [start, x.name], [last, rows], name=g.name("n"), body=body, num_scan_inputs=1,
                                    scan_input_axes=[axis], scan_input_directions=way, scan_output_axes=[axis], scan_output_directions=way))
    g.add(Value(last, rest))
    return Value(rows, x.shape)


def recurrent(g):
    x = g.find(lambda v: v.rank == 3 and 0 < np.prod(v.shape) < 5000)
    if x is None or g.dynamic:
        return None
    steps, batch, size = x.shape
    kind, way, hidden = g.pick(["LSTM", "GRU", "RNN"]), g.pick(["forward", "reverse", "bidirectional"]), g.pick([3, 8, 17])
    n, gates = (2 if way == "bidirectional" else 1), {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    reach = (size + hidden) ** -0.5
    weights = [g.floats(n, gates * hidden, size, low=-reach, high=reach), g.floats(n, gates * hidden, hidden, low=-reach, high=reach)]
    weights += [g.floats(n, 2 * gates * hidden)] if g.chance(0.7) else []
    more = {"linear_before_reset": g.integer(0, 1)} if kind == "GRU" else {}
    g.sums = max(g.sums, (size + hidden) * steps)
    y = raw(g, kind, [x, *weights], 2, hidden_size=hidden, direction=way, **more)
    if g.chance(0.5):
        return g.node("Relu", [y[1]], (n, batch, hidden))
    turned = raw(g, "Transpose", [y[0]], perm=[0, 2, 1, 3])
    return g.node("Reshape", [turned, g.ints(steps, batch, -1)], (steps, batch, n * hidden))


def codes(g, v, step, signed=False):
    """Quantized and back; values outside of the range are cut."""
    zero = g.weight(np.array(0 if signed else 128, np.int8 if signed else np.uint8))
    scale = g.weight(np.array(step, np.float32))
    return raw(g, "DequantizeLinear", [raw(g, "QuantizeLinear", [v, scale, zero]), scale, zero])


def bytes_weight(g, array, axis):
    """A constant of int8 with a scale for each slice of `axis`, dequantized."""
    most = np.abs(array).max(tuple(i for i in range(array.ndim) if i != axis)) + 1e-3
    scale = (most / 127).astype(np.float32)
    shape = [-1 if i == axis else 1 for i in range(array.ndim)]
    q = np.clip(np.rint(array / scale.reshape(shape)), -127, 127).astype(np.int8)
    if g.opset < 13:
        scale = scale.max()
        return raw(g, "DequantizeLinear", [g.weight(q), g.weight(np.array(scale)), g.weight(np.array(0, np.int8))])
    return raw(g, "DequantizeLinear", [g.weight(q), g.weight(scale), g.weight(np.zeros(len(scale), np.int8))], axis=axis)


def quantized(g):
    """Products and convolutions as QDQ exporters write them."""
    x = g.find(lambda v: v.rank in (2, 4) and 0 < np.prod(v.shape) < 20000)
    if x is None:
        return None
    step = 0.03
    a = codes(g, x, step, g.chance(0.3))
    if x.rank == 2:
        k, n = x.shape[1], g.pick([1, 8, 17, 32])
        w = bytes_weight(g, g.rng.uniform(-1, 1, (k, n)).astype(np.float32) / k**0.5, 1)
        y, shape = raw(g, "MatMul", [a, w]), (x.shape[0], n)
        if g.chance(0.5):
            y = raw(g, "Add", [y, g.floats(n)])
    else:
        c, n = x.shape[1], g.pick([1, 8, 17, 32])
        kernel = g.pick([1, 3])
        w = bytes_weight(g, g.rng.uniform(-1, 1, (n, c, kernel, kernel)).astype(np.float32) / (c * kernel * kernel) ** 0.5, 0)
        bias = [g.floats(n)] if g.chance(0.5) else []
        y, shape = raw(g, "Conv", [a, w, *bias], pads=[kernel // 2] * 4), (x.shape[0], n, *x.shape[2:])
    if g.chance(0.4):
        y = raw(g, "Relu", [y])
    g.sums = max(g.sums, 1 << 17)
    return Value(codes(g, y, step), shape)


MORE = [(narrow, 3), (whole_numbers, 1.5), (comparisons, 1.5), (indices, 3), (loop, 1.5), (scan, 1), (recurrent, 1)]


def make(seed):
    """One graph in six has QDQ too: its bound is so wide that it would hide the rest."""
    more = MORE + ([(quantized, 4)] if seed % 6 == 0 else [])
    return random_graph.make(seed, random_graph.TABLE + more)
