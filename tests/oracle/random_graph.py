"""Random small ONNX graphs, valid by construction, and how far apart two right ways of computing one may be.

A graph grows node by node from a seed: each operator of the table looks for values that it can take, and its result
joins the pool. Shapes are known to the generator; the model may declare batch or spatial dimensions by name. Values
that would leave a tame range are squashed, so that the bound below means something."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Value:
    def __init__(self, name, shape, constant=False):
        self.name, self.shape, self.constant = name, tuple(int(d) for d in shape), constant

    @property
    def rank(self):
        return len(self.shape)


class Graph:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.pool, self.inputs, self.feeds = [], [], [], [], {}
        self.count, self.sums = 0, 1  # sums: additions on the longest chain of one node, multiplied out below
        self.dynamic = self.chance(0.3)
        self.opset = int(self.pick([11, 13, 17, 17, 18, 19, 20]))
        self.consumed = set()

    # ---- drawing

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, items):
        return items[self.rng.integers(len(items))]

    def integer(self, low, high):
        return int(self.rng.integers(low, high + 1))

    # ---- building

    def name(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def weight(self, array):
        name = self.name("w")
        self.weights.append(numpy_helper.from_array(np.array(array, order="C"), name))
        if array.dtype == np.int64 and self.chance(0.15):  # the same, by a Constant node
            tensor = self.weights.pop()
            self.nodes.append(helper.make_node("Constant", [], [name], name=self.name("n"), value=tensor))
        return name

    def floats(self, *shape, low=-1.0, high=1.0):
        return self.weight(self.rng.uniform(low, high, shape).astype(np.float32))

    def ints(self, *values):
        return self.weight(np.array(values, np.int64))

    def node(self, kind, inputs, shape, n_outputs=1, domain=None, **attrs):
        names = [i.name if isinstance(i, Value) else i for i in inputs]
        for i in inputs:
            if isinstance(i, Value):
                self.consumed.add(i.name)
        outs = [self.name("v") for _ in range(n_outputs)]
        self.nodes.append(helper.make_node(kind, names, outs, name=self.name("n"), domain=domain, **attrs))
        values = [Value(o, s) for o, s in zip(outs, shape if n_outputs > 1 else [shape])]
        return values if n_outputs > 1 else values[0]

    def add(self, value):
        self.pool.append(value)
        return value

    def input(self, shape):
        name = self.name("x")
        self.feeds[name] = self.rng.uniform(-2, 2, shape).astype(np.float32)
        dims = list(shape)
        if self.dynamic:
            if self.chance(0.7):
                dims[0] = "N"
            if len(dims) == 4 and self.chance(0.5):
                dims[2], dims[3] = "H", "W"
            if len(dims) == 3 and self.chance(0.5):
                dims[2] = "L"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
        return self.add(Value(name, shape))

    def find(self, want):
        """A value of the pool that fits, newer ones more often."""
        fitting = [v for v in self.pool if want(v)]
        if not fitting:
            return None
        at = len(fitting) - 1 - min(int(self.rng.exponential(2.0)), len(fitting) - 1)
        return fitting[at]

    def image(self, ranks=(3, 4, 5)):
        return self.find(lambda v: v.rank in ranks and all(d > 0 for d in v.shape))

    def model(self, outputs):
        infos = [helper.make_tensor_value_info(o.name, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "random", self.inputs, infos, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


# ---- windows ---------------------------------------------------------------------------------------------


def window(g, size, dilated=True):
    """(kernel, stride, dilation, pad before, pad after, size of the output) along one axis."""
    for _ in range(20):
        k = g.pick([1, 1, 2, 3, 3, 3, 5, 7])
        s, d = g.pick([1, 1, 1, 2, 3]), g.pick([1, 1, 1, 2]) if dilated else 1
        before, after = (g.integer(0, k // 2), g.integer(0, k // 2)) if g.chance(0.6) else (0, 0)
        room = size + before + after - (k - 1) * d - 1
        if room >= 0:
            return k, s, d, before, after, room // s + 1
    return 1, 1, 1, 0, 0, size


def conv(g):
    x = g.image()
    if x is None or np.prod(x.shape) > 60000:
        return None
    axes, channels = x.rank - 2, x.shape[1]
    kind = g.pick(["dense", "dense", "dense", "point", "depthwise", "grouped"])
    out = g.pick([1, 3, 5, 8, 16, 16, 17, 24, 32, 32, 48])
    groups = 1
    if kind == "depthwise":
        groups, out = channels, channels * g.pick([1, 1, 1, 2])
    elif kind == "grouped":
        groups = g.pick([d for d in range(1, channels + 1) if channels % d == 0])
        out = groups * g.pick([1, 2, 3, 16 if groups <= 4 else 1])
    dims = [window(g, d) for d in x.shape[2:]]
    if kind == "point":
        dims = [(1, 1, 1, 0, 0, d) for d in x.shape[2:]]
    attrs = {"group": groups, "strides": [w[1] for w in dims], "dilations": [w[2] for w in dims]}
    if g.chance(0.8):
        attrs["kernel_shape"] = [w[0] for w in dims]
    spatial = [w[5] for w in dims]
    if g.chance(0.15) and all(w[2] == 1 for w in dims):
        attrs["auto_pad"] = g.pick(["SAME_UPPER", "SAME_LOWER"])
        spatial = [-(-d // w[1]) for d, w in zip(x.shape[2:], dims)]
    elif any(w[3] or w[4] for w in dims) or g.chance(0.3):
        attrs["pads"] = [w[3] for w in dims] + [w[4] for w in dims]
    kernel = [w[0] for w in dims]
    fan = channels // groups * int(np.prod(kernel))
    if fan * out * int(np.prod(spatial)) * x.shape[0] > 6e6:
        return None
    reach = 2.0 / np.sqrt(fan)
    w = g.floats(out, channels // groups, *kernel, low=-reach, high=reach)
    bias = [g.floats(out)] if g.chance(0.6) else []
    g.sums = max(g.sums, fan)
    y = g.node("Conv", [x, w, *bias], (x.shape[0], out, *spatial), **attrs)
    for _ in range(g.integer(0, 2)):
        y = conv_tail(g, y)
    return y


def conv_tail(g, y):
    """What stands behind convolutions: what passes take into them."""
    if g.chance(0.3):
        g.add(y)  # somebody else may read it in between
    channels, spread = y.shape[1], [1] * (y.rank - 2)
    what = g.pick(["norm", "norm", "activation", "activation", "scale", "residual", "pieces"])
    if what == "norm":
        return norm(g, y)
    if what == "activation":
        return activation(g, y)
    if what == "pieces":
        return pieces(g, y)
    if what == "scale":
        shape = g.pick([(1, channels, *spread), (channels, *spread), (1,), (), (1,) * y.rank])
        c = g.floats(*shape, low=0.5, high=2.0)
        kind = g.pick(["Add", "Mul", "Sub", "Div"])
        swap = g.chance(0.3) and kind != "Div"
        return g.node(kind, [c, y] if swap else [y, c], y.shape)
    other = g.find(lambda v: v.shape == y.shape and v.name != y.name)
    if other is None:
        return y
    return g.node(g.pick(["Add", "Add", "Add", "Sum", "Sub"]), [y, other] if g.chance(0.5) else [other, y], y.shape)


def conv_transpose(g):
    x = g.image((3, 4))
    if x is None or np.prod(x.shape) > 6000:
        return None
    channels = x.shape[1]
    groups = g.pick([1, 1, channels]) if channels <= 24 else 1
    out = g.pick([1, 2, 3]) if groups > 1 else g.pick([1, 4, 16, 17])
    spatial, strides, pads, kernel = [], [], [], []
    for d in x.shape[2:]:
        k, s = g.pick([1, 2, 3]), g.pick([1, 2])
        p = g.integer(0, (k - 1) // 2)
        spatial.append((d - 1) * s + k - 2 * p)
        strides.append(s), pads.append(p), kernel.append(k)
    if any(d < 1 for d in spatial):
        return None
    fan = channels // groups * int(np.prod(kernel))
    w = g.floats(channels, out, *kernel, low=-1 / np.sqrt(fan), high=1 / np.sqrt(fan))
    g.sums = max(g.sums, fan)
    return g.node("ConvTranspose", [x, w] + ([g.floats(out * groups)] if g.chance(0.5) else []),
                  (x.shape[0], out * groups, *spatial), group=groups, strides=strides, pads=pads + pads)


def pooled(d, k, s, before, after, ceil):
    """None: the last window would begin in the padding; onnx's own shape inference does not leave it out everywhere."""
    room = d + before + after - k
    out = (-(-room // s) if ceil else room // s) + 1
    return None if ceil and (out - 1) * s >= d + before else out


def pool(g):
    x = g.image()
    if x is None:
        return None
    if g.chance(0.2):
        return g.node(g.pick(["GlobalAveragePool", "GlobalMaxPool"]), [x], x.shape[:2] + (1,) * (x.rank - 2))
    kind = g.pick(["MaxPool", "AveragePool"])
    dims = []
    for d in x.shape[2:]:
        k = min(g.pick([1, 2, 2, 3, 3, 5]), d)
        dims.append((k, g.pick([1, 2, 2, 3]), g.integer(0, (k - 1) // 2), g.integer(0, (k - 1) // 2)))
    attrs = {"kernel_shape": [w[0] for w in dims], "strides": [w[1] for w in dims]}
    ceil = 1 if g.chance(0.3) else 0
    if ceil:
        attrs["ceil_mode"] = 1
    if kind == "AveragePool" and g.chance(0.4):
        attrs["count_include_pad"] = 1
    spatial = [pooled(d, *w, ceil) for d, w in zip(x.shape[2:], dims)]
    if None in spatial:
        return None
    if g.chance(0.15) and not ceil and all(w[0] >= w[1] for w in dims):  # ONNX Runtime refuses what would be a negative padding
        attrs["auto_pad"] = g.pick(["SAME_UPPER", "SAME_LOWER"])
        spatial = [-(-d // w[1]) for d, w in zip(x.shape[2:], dims)]
    else:
        attrs["pads"] = [w[2] for w in dims] + [w[3] for w in dims]
    return g.node(kind, [x], (*x.shape[:2], *spatial), **attrs)


def norm(g, x=None):
    x = x or g.image((2, 3, 4, 5))
    if x is None:
        return None
    c = x.shape[1]
    attrs = {"epsilon": 1e-3} if g.chance(0.3) else {}
    return g.node("BatchNormalization", [x, g.floats(c, low=0.3), g.floats(c), g.floats(c), g.floats(c, low=0.5, high=2)],
                  x.shape, **attrs)


# ---- elements --------------------------------------------------------------------------------------------


def any_value(g):
    return g.find(lambda v: True)


def activation(g, x=None):
    x = x or any_value(g)
    kind = g.pick(["Relu", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Selu", "Celu", "Softplus",
                   "Softsign", "Clip", "Clip", "Abs", "Neg", "Erf", "Mish", "Gelu", "PRelu", "Identity", "Dropout",
                   "Cast", "Sqrt", "Exp", "Sin"])
    if kind == "HardSwish" and g.opset < 14 or kind == "Mish" and g.opset < 18 or kind == "Gelu" and g.opset < 20 or kind == "Celu" and g.opset < 12:
        kind = "Relu"
    if kind == "Clip":
        low, high = sorted(np.float32(v) for v in g.rng.uniform(-1, 3, 2))
        a = g.weight(np.array(low)) if g.chance(0.8) else ""
        b = g.weight(np.array(high)) if g.chance(0.8) else ""
        return g.node("Clip", [x, a, b], x.shape)
    if kind == "PRelu":
        shape = (x.shape[1], *[1] * (x.rank - 2)) if x.rank > 2 else (1,)
        return g.node("PRelu", [x, g.floats(*shape)], x.shape)
    if kind == "Cast":
        return g.node("Cast", [x], x.shape, to=TensorProto.FLOAT)
    if kind == "Dropout":
        return g.node("Dropout", [x], x.shape)
    if kind == "Sqrt" and x.rank > 2 and g.chance(0.7):  # real channels stay above 1/2; what fills up a block would not
        y = g.node("Add", [g.node("Abs", [x], x.shape), g.floats(x.shape[1], *[1] * (x.rank - 2), low=1, high=2)], x.shape)
        return g.node("Sqrt", [g.node("Sub", [y, g.weight(np.array(0.5, np.float32))], x.shape)], x.shape)
    if kind == "Sqrt":
        y = g.node("Sigmoid", [x], x.shape)
        y = g.node("Add", [y, g.weight(np.array(1.5, np.float32))], x.shape)
        y = g.node("Sub", [y, g.weight(np.array(1.0, np.float32))], x.shape)
        return g.node("Sqrt", [y], x.shape)
    if kind == "Exp":
        return g.node("Exp", [g.node("Tanh", [x], x.shape)], x.shape)
    attrs = {}
    if kind in ("LeakyRelu", "Elu") and g.chance(0.6):
        attrs["alpha"] = float(np.float32(g.rng.uniform(0.05, 1.5)))
    if kind == "HardSigmoid" and g.chance(0.7):
        attrs = {"alpha": g.pick([1 / 6, 0.25]), "beta": 0.5}
    return g.node(kind, [x], x.shape, **attrs)


def pieces(g, x=None):
    """Activations as exporters write them, and near misses."""
    x = x or any_value(g)
    scalar = lambda v: g.weight(np.full(g.pick([(), (1,), (1,) * max(1, x.rank)]), v, np.float32))  # noqa: E731
    op = lambda kind, *inputs, **attrs: g.node(kind, inputs, x.shape, **attrs)  # noqa: E731
    swap = lambda a, b: (a, b) if g.chance(0.5) else (b, a)  # noqa: E731
    if x.rank == 0:
        return None
    kind = g.pick(["silu", "hardswish", "hardswish", "gelu", "gelu", "mish", "hardsigmoid"])
    between = []
    if kind == "silu":
        gate = op("Sigmoid", x)
        between.append(gate)
        y = op("Mul", *swap(x, gate))
    elif kind == "mish":
        soft = op("Softplus", x)
        gate = op("Tanh", soft)
        between += [soft, gate]
        y = op("Mul", *swap(x, gate))
    elif kind == "hardsigmoid":
        y = op("Mul", *swap(x, op("HardSigmoid", x, alpha=g.pick([1 / 6, 0.2]), beta=0.5)))
    elif kind == "hardswish":
        shifted = op("Add", *swap(x, scalar(g.pick([3.0, 3.0, 2.0]))))
        gate = op("Clip", shifted, g.weight(np.array(0, np.float32)), g.weight(np.array(6, np.float32)))
        between += [shifted, gate]
        six = ("Div", 6.0) if g.chance(0.5) else ("Mul", 1 / 6)
        if g.chance(0.5):
            y = op(six[0], op("Mul", *swap(x, gate)), scalar(six[1]))
        else:
            y = op("Mul", *swap(x, op(six[0], gate, scalar(six[1]))))
    else:
        inner = op("Div", x, scalar(np.sqrt(2))) if g.chance(0.5) else op("Mul", *swap(x, scalar(np.sqrt(0.5))))
        core = op("Add", *swap(op("Erf", inner), scalar(1.0)))
        between.append(core)
        form = g.integer(0, 2)
        if form == 0:
            y = op("Mul", *swap(op("Mul", *swap(x, core)), scalar(0.5)))
        elif form == 1:
            y = op("Mul", *swap(x, op("Mul", *swap(core, scalar(0.5)))))
        else:
            y = op("Mul", *swap(op("Mul", *swap(x, scalar(0.5))), core))
    if g.chance(0.15):
        g.add(g.pick(between)) if between else None
    return y


def broadcast(a, b):
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None


def arithmetic(g):
    a = any_value(g)
    kind = g.pick(["Add", "Add", "Mul", "Sub", "Div", "Max", "Min", "Sum", "Mean", "Where", "Pow"])
    b = None
    if g.chance(0.6):
        b = g.find(lambda v: broadcast(a.shape, v.shape) is not None and (v.name != a.name or g.chance(0.2)))
    if kind == "Div" or b is None:
        shape = [d if g.chance(0.6) else 1 for d in a.shape]
        if g.chance(0.3) and a.rank:
            shape = shape[g.integer(0, a.rank - 1):]
        elif g.chance(0.15):
            shape = [1] * a.rank
        b = Value(g.floats(*shape, low=0.5 if kind == "Div" else -1, high=2), shape)
    out = broadcast(a.shape, b.shape)
    if np.prod(out) > 100000:
        return None
    if kind == "Pow":
        return g.node("Pow", [a, g.weight(np.array(2.0, np.float32))], a.shape)
    if kind == "Where":
        if g.chance(0.5):
            condition = g.weight(g.rng.random(a.shape) < 0.5)
        else:
            return None
        return g.node("Where", [condition, a, b], out)
    pair = [b, a] if g.chance(0.4) and kind != "Div" else [a, b]
    if kind == "Mul":
        pair = [p if isinstance(p, Value) and p is not a else squash(g, p) for p in pair]
    return g.node(kind, pair, out)


def squash(g, x):
    return g.node("Tanh", [x], x.shape)


def residual(g):
    x = any_value(g)
    y = activation(g, x)
    if y is None:
        return None
    if g.chance(0.4):
        y = norm(g, y) if y.rank > 1 and y.shape[1] > 0 else y
    z = g.node("Add", [x, y], x.shape)
    return activation(g, z) if g.chance(0.5) else z


def repeated(g):
    """A shared subexpression: the same twice, and again."""
    x = any_value(g)
    kind = g.pick(["Sigmoid", "Tanh", "Relu", "Abs"])
    a, b = g.node(kind, [x], x.shape), g.node(kind, [x], x.shape)
    if g.chance(0.5):
        a, b = g.node("Neg", [a], x.shape), g.node("Neg", [b], x.shape)
    if g.chance(0.3):
        g.add(a)
    return g.node(g.pick(["Add", "Sub", "Max"]), [a, b], x.shape)


# ---- products --------------------------------------------------------------------------------------------


def product(g):
    x = g.find(lambda v: v.rank >= 2 and 1 <= v.shape[-1] <= 2000)
    if x is None:
        return None
    k, n = x.shape[-1], g.pick([1, 2, 7, 8, 16, 17, 31, 32, 64, 130])
    reach = 2 / np.sqrt(k)
    g.sums = max(g.sums, k)
    if x.rank == 2 and g.chance(0.5):
        a, b = int(g.chance(0.2)), int(g.chance(0.5))
        if a:
            k = x.shape[0]
        rows = x.shape[1] if a else x.shape[0]
        attrs = {"transA": a, "transB": b}
        if g.chance(0.2):
            attrs.update(alpha=0.5, beta=g.pick([1.0, 2.0]))
        w = g.floats(*((n, k) if b else (k, n)), low=-reach, high=reach)
        shape = g.pick([(n,), (1, n), (1,), (), (rows, 1), (1, 1), (rows, n)])
        c = [g.floats(*shape)] if g.chance(0.7) and not (g.dynamic and rows in shape[:1]) else []
        y = g.node("Gemm", [x, w, *c], (rows, n), **attrs)
    else:
        if g.chance(0.2) and not g.dynamic:  # two values of the graph
            y = g.node("MatMul", [x, g.node("Transpose", [x], (*x.shape[:-2], k, x.shape[-2]),
                                            perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])],
                       (*x.shape[:-1], x.shape[-2]))
            y = g.node("Mul", [y, g.weight(np.array(1 / k, np.float32))], y.shape)
        elif g.chance(0.15):
            w = g.floats(k, low=-reach, high=reach)
            y = g.node("MatMul", [x, w], x.shape[:-1])
        else:
            y = g.node("MatMul", [x, g.floats(k, n, low=-reach, high=reach)], (*x.shape[:-1], n))
    for _ in range(g.integer(0, 3)):
        if y.rank < 2:
            break
        what = g.pick(["bias", "activation", "residual", "pieces"])
        if g.chance(0.2):
            g.add(y)
        if what == "bias":
            shape = g.pick([(y.shape[-1],), (1, y.shape[-1]), (1,) * y.rank, ()])
            c = g.floats(*shape)
            y = g.node("Add", [y, c] if g.chance(0.6) else [c, y], y.shape)
        elif what == "activation":
            y = activation(g, y) or y
        elif what == "pieces":
            y = pieces(g, y) or y
        else:
            other = g.find(lambda v: v.shape == y.shape)
            if other:
                y = g.node("Add", [y, other], y.shape)
    return y


# ---- shapes ----------------------------------------------------------------------------------------------


def concat(g):
    x = g.find(lambda v: v.rank > 0)
    if x is None:
        return None
    axis = 1 if x.rank > 1 and g.chance(0.7) else g.integer(0, x.rank - 1)
    alike = lambda v: v.rank == x.rank and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis)  # noqa: E731
    parts = [x] + [g.find(alike) for _ in range(g.integer(0, 2))]
    if g.chance(0.5):
        parts.reverse()
    shape = list(x.shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    if np.prod(shape) > 100000:
        return None
    return g.node("Concat", parts, shape, axis=axis - (x.rank if g.chance(0.2) else 0))


def split(g):
    x = g.find(lambda v: v.rank > 0 and max(v.shape) >= 2)
    if x is None:
        return None
    axis = g.pick([i for i, d in enumerate(x.shape) if d >= 2])
    if g.dynamic and axis == 0:
        return None
    cut = g.integer(1, x.shape[axis] - 1)
    sizes = [cut, x.shape[axis] - cut]
    shapes = [[s if i == axis else d for i, d in enumerate(x.shape)] for s in sizes]
    if g.opset >= 13:
        a, b = g.node("Split", [x, g.ints(*sizes)], shapes, n_outputs=2, axis=axis)
    else:
        a, b = g.node("Split", [x], shapes, n_outputs=2, axis=axis, split=sizes)
    g.add(a)
    return b


def slice_(g):
    x = g.find(lambda v: v.rank > 0)
    if x is None:
        return None
    axis, step = g.integer(0, x.rank - 1), g.pick([1, 1, 2, -1])
    d = x.shape[axis]
    if d == 0:
        return None
    start = g.integer(0, d - 1)
    if step > 0:
        stop = g.pick([g.integer(start + 1, d), 2**31])
        size = len(range(d)[start:min(stop, d):step])
        begin = start - d if g.chance(0.3) else start
    else:
        stop, size, begin = -(2**31), start + 1, start
    shape = list(x.shape)
    shape[axis] = size
    return g.node("Slice", [x, g.ints(begin), g.ints(stop), g.ints(axis), g.ints(step)], shape)


def transpose(g):
    x = g.find(lambda v: v.rank >= 2)
    if x is None:
        return None
    for _ in range(g.pick([1, 1, 2, 3])):
        perm = [int(i) for i in g.rng.permutation(x.rank)]
        y = g.node("Transpose", [x], [x.shape[i] for i in perm], perm=perm)
        if g.chance(0.2):
            g.add(y)
        if g.chance(0.3):  # and back
            y = g.node("Transpose", [y], x.shape, perm=[int(i) for i in np.argsort(perm)])
        x = y
    return x


def reshape(g):
    x = any_value(g)
    total, kind = int(np.prod(x.shape)), g.pick(["flatten", "reshape", "shape", "squeeze", "unsqueeze", "same", "expand"])
    if kind == "flatten" and x.rank >= 2:
        return g.node("Flatten", [x], (x.shape[0], int(np.prod(x.shape[1:]))), axis=1)
    if kind == "same":
        return g.node("Reshape", [x, g.ints(*[0] * x.rank)], x.shape) if x.rank else None
    if kind == "squeeze":
        ones = [i for i, d in enumerate(x.shape) if d == 1 and not (g.dynamic and i == 0)]
        if not ones:
            return None
        axis = g.pick(ones)
        shape = x.shape[:axis] + x.shape[axis + 1:]
        return g.node("Squeeze", [x, g.ints(axis)], shape) if g.opset >= 13 else g.node("Squeeze", [x], shape, axes=[axis])
    if kind == "unsqueeze" and x.rank < 5:
        axis = g.integer(0, x.rank)
        shape = x.shape[:axis] + (1,) + x.shape[axis:]
        return g.node("Unsqueeze", [x, g.ints(axis)], shape) if g.opset >= 13 else g.node("Unsqueeze", [x], shape, axes=[axis])
    if x.rank < 2 or total == 0:
        return None
    if kind == "shape":  # as exporters write it: sizes gathered from the shape, computed with, and put together
        rest = total // x.shape[0]
        d = g.pick([d for d in range(1, rest + 1) if rest % d == 0])
        dims = Value(g.name("s"), (x.rank,))
        g.nodes.append(helper.make_node("Shape", [x.name], [dims.name], name=g.name("n")))
        first = g.name("s")
        g.nodes.append(helper.make_node("Gather", [dims.name, g.weight(np.array([0], np.int64))], [first], name=g.name("n"), axis=0))
        if g.chance(0.5):
            doubled, back = g.name("s"), g.name("s")
            two = g.ints(2)
            g.nodes.append(helper.make_node("Mul", [first, two], [doubled], name=g.name("n")))
            g.nodes.append(helper.make_node("Div", [doubled, two], [back], name=g.name("n")))
            first = back
        target = g.name("s")
        g.nodes.append(helper.make_node("Concat", [first, g.ints(d), g.ints(-1)], [target], name=g.name("n"), axis=0))
        g.consumed.add(x.name)
        return g.node("Reshape", [x, target], (x.shape[0], d, rest // d))
    if kind == "expand":
        shape = [d if d != 1 else g.pick([1, 2, 3]) for d in x.shape]
        if g.dynamic or np.prod(shape) > 50000:
            return None
        return g.node("Expand", [x, g.ints(*shape)], shape)
    rest = total // x.shape[0]
    d = g.pick([d for d in range(1, rest + 1) if rest % d == 0])
    e = g.pick([e for e in range(1, rest // d + 1) if (rest // d) % e == 0])
    shape = (x.shape[0], d, e, rest // d // e) if g.chance(0.6) else (x.shape[0], d, rest // d)
    return g.node("Reshape", [x, g.ints(0, *shape[1:-1], -1)], shape)


def reduce(g):
    x = g.find(lambda v: v.rank > 0 and 0 < np.prod(v.shape))
    if x is None:
        return None
    kind = g.pick(["ReduceMean", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2"])
    axes = sorted(int(a) for a in g.rng.choice(x.rank, g.integer(1, x.rank), replace=False))
    if x.rank == 4 and g.chance(0.4):
        axes = [2, 3]
    keep = int(g.chance(0.7))
    shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes]
    said = [a - x.rank if g.chance(0.3) else a for a in axes]
    g.sums = max(g.sums, int(np.prod([x.shape[a] for a in axes])))
    as_input = g.opset >= (13 if kind == "ReduceSum" else 18)
    y = g.node(kind, [x, g.ints(*said)] if as_input else [x], shape, keepdims=keep, **({} if as_input else {"axes": said}))
    if kind == "ReduceSum":
        y = g.node("Mul", [y, g.weight(np.array(1 / max(1, np.prod([x.shape[a] for a in axes])), np.float32))], shape)
    return y


def normalized(g):
    x = g.find(lambda v: v.rank >= 2 and np.prod(v.shape) > 0 and v.shape[-1] >= 4)
    if x is None:
        return None
    kind = g.pick(["Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization", "LpNormalization"])
    if kind in ("Softmax", "LogSoftmax"):
        return g.node(kind, [x], x.shape, axis=g.pick([-1, 1, x.rank - 1]))
    if kind == "LayerNormalization" and g.opset >= 17:
        n = x.shape[-1]
        return g.node(kind, [x, g.floats(n), g.floats(n)], x.shape, axis=-1, epsilon=0.05)
    if kind == "InstanceNormalization" and x.rank >= 3 and np.prod(x.shape[2:]) >= 4:
        return g.node(kind, [x, g.floats(x.shape[1]), g.floats(x.shape[1])], x.shape, epsilon=0.05)
    return None


def scalar(g, value):
    return g.weight(np.array(value, np.float32))


def reduced(g, kind, x, axis):
    shape = [1 if i == axis % x.rank else d for i, d in enumerate(x.shape)]
    as_input = g.opset >= (13 if kind == "ReduceSum" else 18)
    return g.node(kind, [x, g.ints(axis)] if as_input else [x], shape, keepdims=1, **({} if as_input else {"axes": [axis]}))


def norm_in_pieces(g):
    """Layer norm or RMS norm as exporters write it, or something close to it that is neither."""
    x = g.find(lambda v: v.rank >= 2 and 0 < np.prod(v.shape) < 40000 and v.shape[-1] >= 4)
    if x is None:
        return None
    axis, rms = g.pick([-1, -1, -1, x.rank - 1, 1]), g.chance(0.3)
    d = x if rms else g.node("Sub", [x, reduced(g, "ReduceMean", x, axis)], x.shape)
    square = g.node("Pow", [d, scalar(g, 2.0)], x.shape) if g.chance(0.5) else g.node("Mul", [d, d], x.shape)
    mean = reduced(g, "ReduceMean", square, axis if g.chance(0.9) else 0)
    e = g.node("Add", [mean, scalar(g, 0.05)] if g.chance(0.7) else [scalar(g, 0.05), mean], mean.shape)
    s = g.node("Sqrt", [e], e.shape)
    if g.chance(0.1):
        g.add(g.pick([s, mean, d]))
    way = g.pick(["Div", "Div", "Reciprocal", "one over"])
    if way == "Div":
        y = g.node("Div", [d, s], x.shape)
    else:
        r = g.node("Reciprocal", [s], s.shape) if way == "Reciprocal" else g.node("Div", [scalar(g, 1.0), s], s.shape)
        y = g.node("Mul", [d, r] if g.chance(0.5) else [r, d], x.shape)
    if g.chance(0.7):
        w = g.floats(x.shape[-1]) if g.chance(0.8) else scalar(g, 0.7)
        y = g.node("Mul", [y, w] if g.chance(0.6) else [w, y], x.shape)
    if g.chance(0.7):
        y = g.node("Add", [y, g.floats(*(x.shape[-2:] if g.chance(0.2) else x.shape[-1:]))], x.shape)
    return y


def softmax_in_pieces(g):
    x = g.find(lambda v: v.rank >= 1 and 0 < np.prod(v.shape) < 40000)
    if x is None:
        return None
    axis = g.integer(0, x.rank - 1)
    s = g.node("Sub", [x, reduced(g, "ReduceMax", x, axis)], x.shape)
    e = g.node("Exp", [s], x.shape)
    total = reduced(g, "ReduceSum", e, axis if g.chance(0.85) else 0)
    if g.chance(0.1):
        g.add(e)
    g.sums = max(g.sums, int(x.shape[axis]))
    if g.chance(0.3):
        return g.node("Sub", [s, g.node("Log", [total], total.shape)], x.shape)
    return g.node("Div", [e, total], x.shape)


def attention(g):
    """Heads of one value attend to those of the same or another one, with the scales, masks and turns of exporters."""
    x = g.find(lambda v: v.rank == 3 and 0 < np.prod(v.shape) < 20000 and v.shape[2] >= 2)
    if x is None:
        x = g.find(lambda v: v.rank == 4 and 0 < np.prod(v.shape) < 20000 and v.shape[2] * v.shape[3] >= 2)
        if x is None:
            return None
        n, a, b, c = x.shape
        x = g.node("Reshape", [x, g.ints(0, a, -1)], (n, a, b * c))
    n, t, width = x.shape
    if g.dynamic and g.chance(0.5):
        return None
    h = g.pick([1, 2, 3])
    d = g.pick([2, 5, 8, 16])
    packed = g.chance(0.3)
    g.sums = max(g.sums, width, t, d)

    def projected(cols):
        y = g.node("MatMul", [x, g.weight(g.rng.uniform(-1, 1, (width, cols)).astype(np.float32) / width**0.5)], (n, t, cols))
        return g.node("Tanh", [y], y.shape)

    def turned(y, perm):
        return g.node("Transpose", [y], [y.shape[i] for i in perm], perm=perm)

    if packed:
        y = turned(g.node("Reshape", [projected(3 * h * d), g.ints(0, t, 3, h, d)], (n, t, 3, h, d)), [2, 0, 3, 1, 4])
        q, k, v = (g.node("Gather", [y, g.weight(np.array(i, np.int64))], (n, h, t, d), axis=0) for i in range(3))
    else:
        q, k, v = (turned(g.node("Reshape", [projected(h * d), g.ints(0, t, h, d)], (n, t, h, d)), [0, 2, 1, 3]) for _ in range(3))
    k = turned(k, [0, 1, 3, 2])
    if g.chance(0.3):
        q = g.node("Mul", [q, scalar(g, d**-0.25)], q.shape)
        k = g.node("Mul", [k, scalar(g, d**-0.25)], k.shape)
    s = g.node("MatMul", [q, k], (n, h, t, t))
    if g.chance(0.3):
        s = g.node("Div", [s, scalar(g, d**0.5)], s.shape)
    if g.chance(0.3):
        condition = g.weight(g.rng.random((t, t)) < 0.7)
        s = g.node("Where", [condition, s, scalar(g, -20.0)] if g.chance(0.5) else [condition, scalar(g, -20.0), s], s.shape)
    for _ in range(g.pick([0, 1, 1, 2])):
        mask = g.floats(*g.pick([(t, t), (1, 1, 1, t), (1, h, t, t), (t,), (1, 1, t, 1)]), low=-2, high=2)
        s = g.node("Add", [s, mask] if g.chance(0.7) else [mask, s], s.shape)
    if g.chance(0.1):
        s = g.node("Mul", [s, scalar(g, 0.5)], s.shape)
    axis = g.pick([-1, -1, -1, -1, 3, 2]) if g.opset >= 13 else 3
    p = g.node("Softmax", [s], s.shape, axis=axis)
    if g.chance(0.3):
        p = g.node("Where", [g.node("IsNaN", [p], p.shape), scalar(g, 0.0), p], p.shape)
    if g.chance(0.05):
        g.add(p)
    y = g.node("MatMul", [p, v], (n, h, t, d))
    return turned(y, g.pick([[0, 2, 1, 3], [0, 2, 1, 3], [0, 1, 2, 3], [2, 0, 1, 3]]))


def resize(g):
    x = g.image((4,))
    if x is None or np.prod(x.shape) > 8000 or g.opset < 13:
        return None
    mode = g.pick(["nearest", "linear"])
    attrs = {"mode": mode, "coordinate_transformation_mode": g.pick(["asymmetric", "half_pixel"])}
    if mode == "nearest":
        attrs.update(nearest_mode="floor", coordinate_transformation_mode="asymmetric")
    scale = g.pick([1, 2, 2])
    return g.node("Resize", [x, "", g.weight(np.array([1, 1, scale, scale], np.float32))],
                  (*x.shape[:2], x.shape[2] * scale, x.shape[3] * scale), **attrs)


def pad(g):
    x = g.find(lambda v: v.rank > 0 and np.prod(v.shape) < 30000 and all(v.shape))
    if x is None:
        return None
    mode = g.pick(["constant", "constant", "reflect", "edge"])
    before, after = [0] * x.rank, [0] * x.rank
    for axis in range(1 if x.rank > 1 else 0, x.rank):
        most = 2 if mode != "reflect" else min(2, x.shape[axis] - 1)
        before[axis], after[axis] = g.integer(0, most), g.integer(0, most)
    shape = [a + d + b for a, d, b in zip(before, x.shape, after)]
    value = [g.weight(np.array(g.pick([0.0, 0.0, 1.5]), np.float32))] if mode == "constant" and g.chance(0.7) else []
    return g.node("Pad", [x, g.ints(*before, *after), *value], shape, mode=mode)


def branch(g):
    """If with captured values, decided by a constant or by a size."""
    x = g.find(lambda v: v.rank > 0 and 0 < np.prod(v.shape))
    if x is None:
        return None
    extra = g.floats(x.shape[-1])
    g.consumed.add(x.name)
    inner = []
    for kind in ("then", "else"):
        a, b, out = g.name("b"), g.name("b"), g.name("b")
        inner.append(helper.make_graph(
            [helper.make_node(g.pick(["Sigmoid", "Relu", "Tanh"]), [x.name], [a], name=g.name("n")),
             helper.make_node("Add", [a, extra], [b], name=g.name("n")),
             helper.make_node("Identity", [b], [out], name=g.name("n")) if g.chance(0.5)
             else helper.make_node("Mul", [b, a], [out], name=g.name("n"))],
            kind, [], [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)]))
    if g.chance(0.3):
        condition = g.weight(np.array(g.chance(0.5)))
    else:
        size, condition, first = g.name("s"), g.name("c"), g.name("s")
        g.nodes.append(helper.make_node("Shape", [x.name], [size], name=g.name("n")))
        g.nodes.append(helper.make_node("Gather", [size, g.weight(np.array(0, np.int64))], [first], name=g.name("n"), axis=0))
        g.nodes.append(helper.make_node("Greater", [first, g.weight(np.array(g.pick([0, 100]), np.int64))], [condition], name=g.name("n")))
    return g.node("If", [condition], x.shape, then_branch=inner[0], else_branch=inner[1])


TABLE = [(conv, 6), (conv_transpose, 1), (pool, 2), (norm, 1), (activation, 3), (pieces, 2), (arithmetic, 4),
         (residual, 2), (repeated, 1), (product, 3), (concat, 2), (split, 1), (slice_, 1), (transpose, 1), (reshape, 3), (reduce, 1),
         (normalized, 1), (norm_in_pieces, 0.8), (softmax_in_pieces, 0.5), (attention, 0.8), (resize, 0.6), (pad, 1), (branch, 0.7)]


def make(seed, table=TABLE):
    """(model, inputs by name, additions of the largest sum)."""
    g = Graph(seed)
    weights = np.array([w for _, w in table], float)
    channels = g.pick([1, 3, 4, 8, 16, 16, 17, 32])
    style = g.pick(["image", "image", "image", "image", "row", "line", "volume"])
    n = g.pick([1, 1, 2, 3])
    big = g.chance(0.15)
    if style == "image":
        size = (g.integer(14, 30), g.integer(14, 30)) if big else (g.integer(1, 12), g.integer(3, 12))
        g.input((n, channels, *size))
        if g.chance(0.2):
            g.input((n, channels, *size))
    elif style == "row":
        g.input((n * (40 if big else 3), g.pick([4, 16, 33, 64, 200])))
    elif style == "line":
        g.input((n, channels, g.integer(3, 60)))
    else:
        g.input((n, channels, g.integer(2, 5), g.integer(2, 5), g.integer(2, 5)))
    wanted, tries = g.integer(5, 25), 0
    while len(g.nodes) < wanted and tries < 200:
        tries += 1
        f = table[g.rng.choice(len(table), p=weights / weights.sum())][0]
        before = (len(g.nodes), len(g.weights), len(g.pool), set(g.consumed))
        y = f(g)
        if y is None:  # what it began stays out
            del g.nodes[before[0]:], g.weights[before[1]:], g.pool[before[2]:]
            g.consumed = before[3]
            continue
        g.add(y)
    made = [v for v in g.pool if v.name not in g.feeds]
    outputs = [v for v in made if v.name not in g.consumed] or made[-1:]
    outputs += [v for v in made if v.name in g.consumed and g.chance(0.1)]
    return g.model(list({v.name: v for v in outputs}.values())), g.feeds, g.sums
