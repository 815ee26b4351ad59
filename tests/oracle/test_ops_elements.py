"""Elementwise operators and reductions: every version of the schema, every type that it allows, against numpy in
double precision rounded once."""

import math

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import onnx_suite  # noqa: E402
from onnx_suite import DTYPES, FLOATS, schemas, types, values  # noqa: E402

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


UNARY = {
    "Abs": np.abs, "Neg": np.negative, "Sign": np.sign, "Ceil": np.ceil, "Floor": np.floor, "Round": np.rint,
    "Sqrt": np.sqrt, "Reciprocal": lambda x: 1 / x, "Exp": np.exp, "Log": np.log, "Sin": np.sin, "Cos": np.cos,
    "Tan": np.tan, "Asin": np.arcsin, "Acos": np.arccos, "Atan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh,
    "Tanh": np.tanh, "Asinh": np.arcsinh, "Acosh": np.arccosh, "Atanh": np.arctanh, "Erf": erf,
    "Relu": lambda x: np.maximum(x, 0), "LeakyRelu": lambda x: np.where(x < 0, np.float32(0.01) * x, x),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x), "Celu": lambda x: np.where(x < 0, np.expm1(x), x),
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0), "Sigmoid": sigmoid,
    "HardSigmoid": lambda x: np.clip(np.float32(0.2) * x + 0.5, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "Swish": lambda x: x * sigmoid(x),
    "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "Gelu": lambda x: x / 2 * (1 + erf(x / math.sqrt(2))),
    "Softplus": lambda x: np.log1p(np.exp(x)), "Softsign": lambda x: x / (1 + np.abs(x)),
    "Shrink": lambda x: np.where(x < -0.5, x, np.where(x > 0.5, x, 0)),
}  # fmt: skip
# What a reduced-precision result may differ by: one unit of its last place.
LOOSE = {"bfloat16": 9e-3, "float16": 1.1e-3}


def split(tmp_path):
    return onnx_suite.Suite(tmp_path / "exact"), onnx_suite.Suite(tmp_path / "half")


def pick(suites, kind):
    return suites[1] if kind in LOOSE else suites[0]


def check(suites, churon):
    faults = []
    for suite, options in zip(suites, ([], ["--rtol", "9e-3", "--atol", "1e-3"])):
        if suite.names:
            faults += suite.run(churon, *options)
    assert not faults, "\n".join(faults[:40])


def as_double(x):
    return x.astype(np.float64) if x.dtype.kind not in "iu" else x


def test_unary(churon, tmp_path):
    suites = split(tmp_path)
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        for op, f in UNARY.items():
            for s in schemas(op):
                for kind in types(s):
                    x = values(kind, (3, 1, 37), rng)
                    y = f(x if x.dtype.kind in "iu" and op not in ("Erf", "Shrink") else x.astype(np.float64))
                    y = np.asarray(y).astype(x.dtype)
                    pick(suites, kind).add(f"{op}_{s.since_version}_{kind}", op, s.since_version, [x], [y])
        for version, alpha, gamma in ((1, 1.6732, 1.0507), (6, 1.67326319217681884765625, 1.05070102214813232421875)):
            x = values("double", (40,), rng)
            y = np.float32(gamma) * np.where(x > 0, x, np.float32(alpha).astype(np.float64) * np.expm1(x))
            suites[0].add(f"Selu_{version}", "Selu", version, [x], [y])
        x = values("float", (40,), rng)
        y = np.where(x < -1.5, x + 0.25, np.where(x > 1.5, x - 0.25, 0)).astype(np.float32)
        suites[0].add("Shrink_bias", "Shrink", 9, [x], [y], lambd=1.5, bias=0.25)
        x64 = x.astype(np.float64)
        y = (x64 / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x64 + 0.044715 * x64**3)))).astype(np.float32)
        suites[0].add("Gelu_tanh", "Gelu", 20, [x], [y], approximate="tanh")
        for kind in FLOATS:
            a, b = values(kind, (5, 9), rng), values(kind, (5, 9), rng)
            y = (a.astype(np.float64) * sigmoid(2 * a.astype(np.float64)) * b.astype(np.float64)).astype(a.dtype)
            pick(suites, kind).add(f"SwiGLU_{kind}", "SwiGLU", 28, [a, b], [y], alpha=2.0)
    check(suites, churon)


def test_special_values(churon, tmp_path):
    """NaN and infinities go through, or are told."""
    suite = onnx_suite.Suite(tmp_path)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, 3.4e38, -3.4e38], dtype=np.float32)
    with np.errstate(all="ignore"):
        for op, f in UNARY.items():
            if op in ("Sign", "Shrink", "Relu", "Mish", "Gelu", "Softplus", "Softsign", "HardSwish", "Swish", "Erf"):
                continue
            x = special[:5] if op != "Exp" else special[:6]
            suite.add(f"{op}", op, schemas(op)[-1].since_version, [x], [f(x.astype(np.float64)).astype(np.float32)])
        suite.add("Relu", "Relu", 14, [special], [np.where(special < 0, 0, special).astype(np.float32)])
        tiny = np.abs(special) < np.finfo(np.float32).tiny  # subnormal numbers count as zero
        suite.add("Sign", "Sign", 13, [special], [np.sign(np.where(tiny, 0, special))])
        suite.add("Max", "Max", 13, [special, np.float32([0])], [np.maximum(special, 0)])
        suite.add("Min", "Min", 13, [np.float32([0]), special], [np.minimum(0, special)])
        suite.add("Clip", "Clip", 13, [special, np.float32(-1), np.float32(1)], [np.clip(special, -1, 1)])
        for kind in types(schemas("IsNaN")[-1], "T1"):
            x = special.astype(DTYPES[kind])
            suite.add(f"IsNaN_{kind}", "IsNaN", 20, [x], [np.isnan(x.astype(np.float32))])
            f32 = x.astype(np.float32)
            suite.add(f"IsInf_{kind}", "IsInf", 20, [x], [np.isinf(f32) & (f32 < 0)], detect_positive=0)
    faults = suite.run(churon)
    assert not faults, "\n".join(faults)


def wrap(f):
    def g(a, b):
        with np.errstate(all="ignore"):
            return f(a, b)

    return g


BINARY = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply,
    "Div": lambda a, b: a / b if a.dtype.kind not in "iu" else np.trunc(a.astype(np.float64) / b).astype(a.dtype),
    "Pow": lambda a, b: np.power(a, b), "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal, "Equal": np.equal, "And": np.logical_and, "Or": np.logical_or,
    "Xor": np.logical_xor, "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
    "PRelu": lambda a, b: np.where(a < 0, a * b, a), "Mod": lambda a, b: np.mod(a, b),
    "Max": np.maximum, "Min": np.minimum, "Sum": np.add, "Mean": lambda a, b: (a + b) / 2,
}  # fmt: skip


def operands(op, kind, shape_a, shape_b, rng):
    a, b = values(kind, shape_a, rng), values(kind, shape_b, rng)
    if kind not in ("string", "bool"):
        zero = b == np.zeros((), b.dtype)
        b[zero] = np.ones((), b.dtype)
    if op == "Pow":
        a, b = np.abs(a), np.abs(b)
        if a.dtype.kind in "iu":
            a, b = a % 4, b % 3
    return a, b


def compute(op, kind, a, b):
    f = wrap(BINARY[op])
    if kind in ("float16", "bfloat16"):
        y = np.asarray(f(a.astype(np.float64), b.astype(np.float64)))
        return y if y.dtype == bool else y.astype(a.dtype)
    y = np.asarray(f(a, b))
    return y.astype(bool) if y.dtype == object else y


PAIRS = [((3, 4, 5), (3, 4, 5)), ((3, 4, 5), (5,)), ((3, 4, 5), (3, 1, 1)), ((1, 5), (4, 1)), ((), (2, 3)),
         ((2, 1, 3, 1), (2, 1, 7)), ((0, 3), (1, 3)), ((1,), (1, 1))]  # fmt: skip


def test_binary(churon, tmp_path):
    suites = split(tmp_path)
    rng = np.random.default_rng(2)
    for op in BINARY:
        for s in schemas(op):
            v = s.since_version
            letter = "T"
            for kind in types(s, letter):
                old = v < 7 and op not in ("PRelu", "Max", "Min", "Sum", "Mean") or v < 8 and op in ("Max", "Min", "Sum", "Mean")
                for n, (sa, sb) in enumerate(PAIRS):
                    if old and sa != sb:
                        continue
                    if kind not in ("float", "int64", "bfloat16") and n % 4 != v % 4:
                        continue
                    if op == "PRelu" and (np.broadcast_shapes(sa, sb) != sa or v < 7):
                        continue
                    a, b = operands(op, kind, sa, sb, rng)
                    if op == "Pow" and v >= 12 and kind not in types(s, "T1"):
                        continue  # the mixed ones are tested below
                    if op == "Mod" and a.dtype.kind not in "iu":
                        continue
                    pick(suites, kind).add(f"{op}_{v}_{kind}_{n}", op, v, [a, b], [compute(op, kind, a, b)])
    check(suites, churon)


def test_limited_broadcast(churon, tmp_path):
    """Operator sets before 7: the second operand, from an axis, only if asked for."""
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(3)
    shapes = [((5,), None), ((4, 5), None), ((3, 4), 1), ((2,), 0), ((), None), ((1, 1), None), ((3,), -3), ((4,), 2)]
    for version in (1, 6):
        for op in ("Add", "Sub", "Mul", "Div"):
            for n, (shape, axis) in enumerate(shapes):
                a, b = operands(op, "float", (2, 3, 4, 5), shape, rng)
                at = len(a.shape) - b.ndim if axis is None else axis % 4
                wide = b if b.size == 1 else b.reshape(b.shape + (1,) * (a.ndim - at - b.ndim))
                y = BINARY[op](a, wide.reshape(()) if b.size == 1 else wide)
                attributes = {"broadcast": 1} if axis is None else {"broadcast": 1, "axis": axis}
                suite.add(f"{op}_{version}_{n}", op, version, [a, b], [y], **attributes)
    a, b = values("float", (2, 3, 4), rng), values("float", (3,), rng)
    for op in ("Less", "Greater"):
        y = BINARY[op](a, b.reshape(3, 1))
        suite.add(op, op, 1, [a, b], [y], broadcast=1, axis=1)
    suite.add("Pow", "Pow", 1, [np.abs(a), np.abs(b)], [np.abs(a) ** np.abs(b).reshape(3, 1)], broadcast=1, axis=1)
    suite.add("Equal", "Equal", 1, [np.int32([[1, 2], [3, 1]]), np.int32([1, 2])],
              [np.array([[True, True], [False, False]])], broadcast=1)  # fmt: skip
    suite.add("And", "And", 1, [np.array([[True, False]]), np.array([True])], [np.array([[True, False]])], broadcast=1)
    for version in (1, 6):  # one slope a channel
        y = np.where(a < 0, a * b.reshape(1, 3, 1), a)
        suite.add(f"PRelu_{version}", "PRelu", version, [a, b], [y])
        suite.add(f"PRelu_{version}_one", "PRelu", version, [a, b[:1]], [np.where(a < 0, a * b[0], a)])
    faults = suite.run(churon)
    assert not faults, "\n".join(faults)


def test_mixed_and_odd(churon, tmp_path):
    suite = onnx_suite.Suite(tmp_path)
    rng = np.random.default_rng(4)
    for s in schemas("Pow")[2:]:
        for base in types(s):
            for exponent in types(s, "T1"):
                a, b = np.abs(values(base, (2, 3), rng)), np.abs(values(exponent, (3,), rng))
                if a.dtype.kind in "iu":
                    a = (a % 5).astype(a.dtype)
                b = (b % 3).astype(b.dtype) if b.dtype.kind in "iu" else np.round(b.astype(np.float32)).astype(b.dtype)
                y = (a.astype(np.float64) ** b.astype(np.float64)).astype(a.dtype)
                suite.add(f"Pow_{s.since_version}_{base}_{exponent}", "Pow", s.since_version, [a, b], [y])
    i32, least = np.int32, np.iinfo(np.int32).min
    suite.add("Div_least", "Div", 14, [i32([least, 7, -7]), i32([-1, 2, 2])], [i32([least, 3, -3])])
    suite.add("Mod_least", "Mod", 13, [i32([least, 7, -7]), i32([-1, -2, 2])], [i32([0, -1, 1])])
    suite.add("Fmod_least", "Mod", 13, [i32([least, 7, -7]), i32([-1, -2, 2])], [i32([0, 1, -1])], fmod=1)
    suite.add("Pow_wraps", "Pow", 15, [i32([3, -2, 2]), i32([40, 31, -1])],
              [i32([(3**40 + 2**31) % 2**32 - 2**31, least, 0])])  # fmt: skip
    suite.add("Pow_negative", "Pow", 15, [np.int64([1, -1, -1, 5]), np.int64([-3, -3, -4, -1])], [np.int64([1, -1, 1, 0])])
    suite.add("Add_wraps", "Add", 14, [np.int8([127, -128]), np.int8([1, -1])], [np.int8([-128, 127])])
    suite.add("Mul_wraps", "Mul", 14, [np.uint16([65535]), np.uint16([65535])], [np.uint16([1])])
    suite.add("Neg_least", "Neg", 13, [i32([least])], [i32([least])])
    suite.add("Abs_least", "Abs", 13, [np.int8([-128, -3])], [np.int8([-128, 3])])
    x = [values("float", s, rng) for s in ((3, 1), (1, 4), (4,), (2, 1, 1))]
    suite.add("Sum_4", "Sum", 13, x, [x[0] + x[1] + x[2] + x[3]])
    suite.add("Max_4", "Max", 13, x, [np.maximum(np.maximum(x[0], x[1]), np.maximum(x[2], x[3]))])
    suite.add("Mean_3", "Mean", 13, x[:3], [((x[0] + x[1] + x[2]) / 3).astype(np.float32)])
    suite.add("Sum_ones_first", "Sum", 13, [np.float32([1]), np.float32([2]), np.float32([1, 2, 3])], [np.float32([4, 5, 6])])
    suite.add("Max_same_twice", "Max", 13, [x[2], x[1], x[2]], [np.maximum(x[1], x[2])])
    for kind in types(schemas("Where")[-1]):
        c = rng.random((4, 1)) < 0.5
        a, b = values(kind, (4, 5), rng), values(kind, (5,), rng)
        suite.add(f"Where_{kind}", "Where", 16, [c, a, b], [np.where(c, a, b)])
    c = rng.random((2, 300)) < 0.5
    suite.add("Where_scalars", "Where", 9, [c, np.float32(1), np.float32(2)], [np.where(c, 1, 2).astype(np.float32)])
    suite.add("Clip_1", "Clip", 1, [x[0]], [np.clip(x[0], -1, 1)], min=-1.0, max=1.0)
    suite.add("Clip_6", "Clip", 6, [x[0].astype(np.float16)], [np.clip(x[0], None, 1).astype(np.float16)], max=1.0)
    suite.add("Clip_11", "Clip", 11, [x[0], None, np.float32(1)], [np.clip(x[0], None, 1)])
    for kind in types(schemas("Clip")[-1]):
        a = values(kind, (50,), rng)
        low, high = np.ones((), a.dtype), (np.ones((), a.dtype) + np.ones((), a.dtype)).astype(a.dtype)
        y = np.minimum(np.maximum(a, low), high)
        suite.add(f"Clip_{kind}", "Clip", 13, [a, low, high], [y])
    faults = suite.run(churon)
    assert not faults, "\n".join(faults)


def log_sum_exp(x, **k):
    with np.errstate(all="ignore"):
        return np.log(np.sum(np.exp(x), **k))


REDUCE = {
    "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min,
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k), "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)), "ReduceLogSumExp": log_sum_exp,
}  # fmt: skip
AXES = [None, (0,), (1,), (-1,), (0, 2), (1, 2), (0, 1), (0, -1), (0, 1, 2, 3), (1, 3)]


def test_reduce(churon, tmp_path):
    suites = split(tmp_path)
    rng = np.random.default_rng(5)
    for op, f in REDUCE.items():
        for s in schemas(op):
            v = s.since_version
            by_input = any(i.name == "axes" for i in s.inputs)
            for kind in types(s):
                for n, axes in enumerate(AXES):
                    if kind not in ("float", "int64", "bfloat16") and n % 5 != v % 5:
                        continue
                    x = values(kind, (2, 3, 4, 5), rng)
                    if op in ("ReduceProd", "ReduceLogSumExp") and x.dtype.kind in "iu":
                        x = (x % 3).astype(x.dtype) if op == "ReduceLogSumExp" else np.sign(x)
                    if op == "ReduceLogSum":
                        x = (np.abs(x) + np.ones((), x.dtype)).astype(x.dtype)
                    wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
                    if x.dtype.kind in "iu" and op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"):
                        wide = x.astype(np.float64)
                    keep = n % 2
                    y = np.asarray(f(wide, axis=axes, keepdims=bool(keep))).astype(x.dtype)
                    attributes, inputs = {"keepdims": keep}, [x]
                    if axes is not None:
                        if by_input:
                            inputs.append(np.int64(axes))
                        else:
                            attributes["axes"] = axes
                    pick(suites, kind).add(f"{op}_{v}_{kind}_{n}", op, v, inputs, [y], **attributes)
    x = values("float", (3, 700), rng)
    suites[0].add("noop", "ReduceSumSquare", 18, [x], [x * x], noop_with_empty_axes=1)
    suites[0].add("long_rows", "ReduceMean", 18, [x, np.int64([1])], [x.mean(axis=1, keepdims=True)])
    suites[0].add("wide_columns", "ReduceMax", 18, [x, np.int64([0])], [x.max(axis=0, keepdims=True)])
    big = np.float32([[1000, 1001], [-np.inf, -np.inf], [np.inf, 0]])
    y = np.float32([1001.3132617, -np.inf, np.inf])
    suites[0].add("log_sum_exp_big", "ReduceLogSumExp", 18, [big, np.int64([1])], [y], keepdims=0)
    check(suites, churon)


def test_refused(churon, tmp_path):
    """Divisions by zero, shapes that do not fit, indexes of axes: one line that names the node."""
    suite = onnx_suite.Suite(tmp_path)
    one = np.int64([1])
    suite.add("div_zero", "Div", 14, [np.int64([4, 5]), np.int64([2, 0])], [np.int64([0, 0])])
    suite.add("mod_zero", "Mod", 13, [np.int8([4]), np.int8([0])], [np.int8([0])])
    suite.add("shapes", "Add", 14, [np.float32([1, 2]), np.float32([1, 2, 3])], [np.float32([0, 0])])
    suite.add("slope", "PRelu", 16, [np.float32([1]), np.float32([1, 2])], [np.float32([0, 0])])
    suite.add("axis", "ReduceSum", 13, [np.float32([1]), np.int64([3])], [np.float32([0])])
    suite.add("clip", "Clip", 13, [one, np.int64([1, 2])], [one])
    suite.add("old_broadcast", "Add", 6, [np.float32([[1, 2]]), np.float32([1, 2])], [np.float32([0, 0])])
    expected = {
        "div_zero": "element 1 is 0", "mod_zero": "element 0 is 0", "shapes": "expected dimensions that are equal or 1",
        "slope": "slope: expected a shape", "axis": "axes: expected -1 to 0, got 3", "clip": "min: expected one element, got 2",
        "old_broadcast": "expected rank 2",
    }  # fmt: skip
    faults = suite.run(churon)
    assert len(faults) == len(expected)
    for line in faults:
        assert expected[line.split(":")[0]] in line
