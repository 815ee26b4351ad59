"""Every operator that changed its meaning, attributes or inputs over the operator sets, in each of its versions.

The oracle is ONNX Runtime (operator sets from 7 on), or the model in a newer form: by onnx's version converter, or, where that
has no adapter, by hand (`newer`, which ONNX Runtime answers, or `gives`, an array)."""

import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime", reason="skip: onnxruntime is not installed")

from onnx import numpy_helper, version_converter  # noqa: E402
from ort_case import Cases, model_of, write_case  # noqa: E402

C = Cases(9)
f, rng = C.f32, C.rng
NEWER, GIVES = {}, {}


def case(name, op, version, inputs, outputs=1, newer=None, gives=None, **attrs):
    C.case(f"{op}_{version}{'_' if name else ''}{name}", op, version, inputs, outputs, **attrs)
    if newer is not None:
        NEWER[list(C.specs)[-1]] = newer
    if gives is not None:
        GIVES[list(C.specs)[-1]] = gives


def ints(*values):
    return np.array(values, np.int64)


def spread(a, b, axis):
    """b as it lies along a from `axis` on."""
    return b.reshape((1,) * axis + b.shape + (1,) * (a.ndim - axis - b.ndim))


IMAGE = f(2, 3, 4, 5)

# ---- broadcasting by attribute, before 7 ----------------------------------------------------------------

ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
for op, function in ARITHMETIC.items():
    for v in (1, 6):
        for name, shape, axis in (("one", (1,), 0), ("suffix", (4, 5), 2), ("middle", (3, 4), 1), ("first", (2,), 0)):
            b = f(*shape)
            more = {} if name in ("one", "suffix") else {"axis": axis}
            case(name, op, v, [IMAGE, b], gives=function(IMAGE, b if name == "one" else spread(IMAGE, b, axis)), broadcast=1, **more)
        case("same", op, v, [f(2, 3), f(2, 3)])
    case("", op, 7, [f(2, 3, 1), f(3, 4)])
base, power = C.positive(2, 3, 4), f(3)
case("axis", "Pow", 1, [base, power], gives=base ** spread(base, power, 1), broadcast=1, axis=1)
for op, function in (("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor)):
    a, b = f(2, 3, 4) > 0, f(3) > 0
    case("axis", op, 1, [a, b], gives=function(a, spread(a, b, 1)), broadcast=1, axis=1)
for op, function in (("Greater", np.greater), ("Less", np.less)):
    a, b = f(2, 3, 4), f(3)
    case("axis", op, 1, [a, b], gives=function(a, spread(a, b, 1)), broadcast=1, axis=1)
a, b = rng.integers(0, 3, (2, 3, 4)), rng.integers(0, 3, 3)
case("axis", "Equal", 1, [a, b], gives=a == spread(a, b, 1), broadcast=1, axis=1)
for v in (1, 6):
    slope = f(3)
    case("channels", "PRelu", v, [IMAGE, slope], newer=("PRelu", 7, [IMAGE, slope.reshape(3, 1, 1)], {}))
    case("", "Gemm", v, [f(3, 4), f(4, 5), f(5)], broadcast=1, alpha=0.5, beta=2.0)
    case("full", "Gemm", v, [f(3, 4), f(4, 5), f(3, 5)])
    for op in ("Sum", "Max", "Min", "Mean"):
        case("", op, v, [f(2, 3), f(2, 3), f(2, 3)])
for op in ("Sum", "Max", "Min", "Mean"):
    case("", op, 8, [f(2, 3), f(3), f(2, 1)])

# ---- modes of training, in inference --------------------------------------------------------------------

for v in (1, 6, 7, 9, 14, 15):
    more = {"is_test": 1} if v < 7 else {}
    if v == 1:
        more["consumed_inputs"] = [0, 0, 0, 1, 1]
    case("", "BatchNormalization", v, [IMAGE, f(3), f(3), f(3), C.positive(3)], epsilon=0.01, **more)
case("each", "BatchNormalization", 7, [IMAGE, f(3, 4, 5), f(3, 4, 5), f(3, 4, 5), C.positive(3, 4, 5)], spatial=0)
for v in (1, 6, 7, 10, 12, 13, 22):
    case("", "Dropout", v, [IMAGE], gives=IMAGE, **({"is_test": 1} if v < 7 else {}))
for v in (12, 13, 22):
    case("mask", "Dropout", v, [IMAGE, np.float32(0.7), np.False_], 2)

# ---- attributes that became inputs ----------------------------------------------------------------------

for v in (1, 6):
    case("", "Clip", v, [IMAGE], min=-0.5, max=0.5)
    case("least", "Clip", v, [IMAGE], min=-0.5)
for v in (11, 12, 13):
    case("", "Clip", v, [IMAGE, np.float32(-0.5), np.float32(0.5)])
    case("most", "Clip", v, [IMAGE, None, np.float32(0.5)])
    case("crossed", "Clip", v, [IMAGE, np.float32(0.7), np.float32(-0.1)])
case("ints", "Clip", 12, [rng.integers(-9, 9, 12), np.int64(-2), np.int64(3)])
for v in (1, 11):
    case("", "Squeeze", v, [f(1, 3, 1, 5)], axes=[0, 2])
    case("", "Unsqueeze", v, [f(3, 5)], axes=[0, 2])
    case("all", "Squeeze", v, [f(1, 3, 1, 5)])
case("negative", "Squeeze", 11, [f(1, 3, 1, 5)], axes=[-2])
case("negative", "Unsqueeze", 11, [f(3, 5)], axes=[-1, 0])
for v in (13, 21, 23):
    case("", "Squeeze", v, [f(1, 3, 1, 5), ints(0, -2)])
    case("", "Unsqueeze", v, [f(3, 5), ints(-1, 0)])
    case("all", "Squeeze", v, [f(1, 3, 1, 5)])
x = f(6, 4)
case("", "Split", 1, [x], 2, newer=("Split", 11, [x], {"split": [2, 4]}), axis=0, split=[2, 4])
case("input", "Split", 1, [x, np.float32([2, 4])], 2, newer=("Split", 11, [x], {"split": [2, 4]}), axis=0, constant=[1])
for v in (2, 11):
    case("", "Split", v, [f(6, 4)], 2, axis=0, split=[2, 4])
    case("equal", "Split", v, [f(6, 4)], 3, axis=0)
case("", "Split", 13, [f(6, 4), ints(2, 4)], 2, axis=0)
case("equal", "Split", 13, [f(6, 4)], 2, axis=-1)
case("outputs", "Split", 18, [f(7, 4)], 3, axis=0, num_outputs=3)
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
for op in REDUCTIONS:
    for v in (1, 11, 13, 18):
        x = np.abs(IMAGE) + 0.1
        case("all", op, v, [x])
        if v < (13 if op == "ReduceSum" else 18):
            case("", op, v, [x], axes=[1, -1] if v >= 11 else [1, 3], keepdims=0)
        else:
            case("", op, v, [x, ints(1, -1)], keepdims=0)
            case("noop", op, v, [x, ints()], noop_with_empty_axes=1)
x = f(3, 4)
case("", "Pad", 1, [x], gives=np.pad(x, [(1, 2), (0, 1)], constant_values=1.5), paddings=[1, 0, 2, 1], value=1.5)
case("", "Pad", 2, [f(3, 4)], pads=[1, 0, 2, 1], value=1.5)
case("negative", "Pad", 2, [f(3, 4)], pads=[-1, 0, 2, -1])
for v in (2, 11, 13, 18, 19, 21):
    for mode in ("reflect", "edge"):
        case(mode, "Pad", v, [f(3, 4)] + ([ints(1, 0, 2, 1)] if v >= 11 else []), mode=mode, **({"pads": [1, 0, 2, 1]} if v < 11 else {}))
    if v >= 11:
        case("", "Pad", v, [f(3, 4), ints(1, 0, 2, 1), np.float32(1.5)])
case("axes", "Pad", 18, [f(3, 4), ints(1, 2), np.float32(1.5), ints(-1)])
case("wrap", "Pad", 19, [f(3, 4), ints(1, 0, 2, 1)], mode="wrap")
case("", "TopK", 1, [f(3, 7)], 2, k=3)
case("axis", "TopK", 1, [f(7, 3)], 2, k=3, axis=0)
case("", "TopK", 10, [f(3, 7), ints(3)], 2)
case("least", "TopK", 11, [f(3, 7), ints(3)], 2, largest=0, sorted=1, axis=-1)
case("", "Slice", 1, [IMAGE], starts=[0, 1], ends=[2, -1], axes=[0, 2])
case("first_axes", "Slice", 1, [IMAGE], starts=[0, 1], ends=[1000, 2])
case("", "Slice", 10, [IMAGE, ints(0, 1), ints(2, -1), ints(0, 2), ints(1, 2)])
case("back", "Slice", 13, [IMAGE, ints(-1, 3), ints(-100, 0), ints(1, 2), ints(-1, -1)])
case("", "Reshape", 1, [f(2, 3, 4)], shape=[4, -1])
case("zero", "Reshape", 1, [f(2, 3, 4)], shape=[0, -1])
case("", "Reshape", 5, [f(2, 3, 4), ints(0, -1)])
case("allow_zero", "Reshape", 14, [np.zeros((0, 3), np.float32), ints(3, 0)], allowzero=1)
x = f(2, 3)
case("", "Tile", 1, [x, np.float32(2), np.float32(1)], gives=np.tile(x, (1, 2)))
case("", "Tile", 6, [f(2, 3), ints(2, 2)])
for name, number in (("FLOAT", 1), ("INT32", 6), ("DOUBLE", 11), ("BOOL", 9)):
    x = f(2, 3, scale=3)
    case(name, "Cast", 1, [x], newer=("Cast", 9, [x], {"to": number}), to=name)
for v in (6, 9, 13, 19):
    case("", "Cast", v, [f(2, 3, scale=3)], to=6)
case("", "Concat", 1, [f(2, 3), f(2, 4)])  # along 1
case("axis", "Concat", 1, [f(2, 3), f(1, 3)], axis=0)
case("", "Concat", 4, [f(2, 3), f(2, 4)], axis=1)
case("negative", "Concat", 11, [f(2, 3), f(2, 4)], axis=-1)

# ---- windows ---------------------------------------------------------------------------------------------

for v in (1, 13):
    case("", "LRN", v, [f(1, 7, 4, 4)], size=3)
BASIC = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
for v in (1, 8, 10, 11, 12, 22):
    case("", "MaxPool", v, [f(1, 2, 7, 8)], **BASIC)
    if v >= 10:
        case("ceil", "MaxPool", v, [f(1, 2, 7, 8)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        case("ceil_in_padding", "MaxPool", v, [f(1, 1, 6, 6)], kernel_shape=[2, 2], strides=[3, 3], pads=[0, 0, 1, 1], ceil_mode=1)
        case("ceil_beyond", "MaxPool", v, [f(1, 1, 2, 2)], kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1)
        case("dilated", "MaxPool", v, [f(1, 2, 9, 9)], kernel_shape=[2, 3], dilations=[2, 2], strides=[2, 1])
for v in (1, 7, 10, 11, 19, 22):
    case("", "AveragePool", v, [f(1, 2, 7, 8)], **BASIC)
    for pad in (0, 1) if v >= 7 else ():
        case(f"pad{pad}", "AveragePool", v, [f(1, 2, 7, 8)], count_include_pad=pad, **BASIC)
        for name, size, window in (("ceil", (7, 8), BASIC), ("ceil_plain", (8, 8), BASIC | {"pads": [0, 0, 0, 0]}),
                                   ("ceil_in_padding", (6, 6), {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [0, 0, 1, 1]})) if v >= 10 else ():  # fmt: skip
            case(f"{name}_{pad}", "AveragePool", v, [f(1, 1, *size)], count_include_pad=pad, ceil_mode=1, **window)
    if v >= 19:
        case("dilated", "AveragePool", v, [f(1, 2, 9, 9)], dilations=[2, 2], **BASIC)
for v in (2, 11, 18, 22):
    case("", "LpPool", v, [f(1, 2, 7, 8)], p=3, **BASIC)
x = f(1, 2, 7, 8)
case("", "LpPool", 1, [x], newer=("LpPool", 2, [x], {"p": 3, **BASIC}), p=3.0, **BASIC)
case("", "GlobalLpPool", 1, [x], newer=("GlobalLpPool", 2, [x], {"p": 3}), p=3.0)
case("", "GlobalLpPool", 2, [x], p=3)
ROI = [f(2, 3, 9, 9), np.float32([[1, 1, 6, 7], [0, 2, 8, 5]]), ints(0, 1)]
for v in (10, 16):
    case("", "RoiAlign", v, ROI, output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.8)
    case("max", "RoiAlign", v, ROI, output_height=3, output_width=2, sampling_ratio=1, spatial_scale=0.8, mode="max")
case("as_before", "RoiAlign", 16, ROI, output_height=3, output_width=2, coordinate_transformation_mode="output_half_pixel")
for v, modes in ((16, ("bilinear", "nearest", "bicubic")), (20, ("linear", "nearest", "cubic"))):
    for mode in modes:
        for padding in ("zeros", "border", "reflection"):
            case(f"{mode}_{padding}", "GridSample", v, [f(1, 2, 6, 7), f(1, 4, 5, 2)], mode=mode, padding_mode=padding)
case("volume", "GridSample", 20, [f(1, 2, 4, 5, 6), f(1, 3, 4, 5, 3)], mode="linear")
for v in (1, 11, 22):
    for name, more in (("shape", {"output_shape": [9, 9]}), ("shape_8", {"output_shape": [8, 8]}), ("upper", {"auto_pad": "SAME_UPPER"}),
                       ("lower", {"auto_pad": "SAME_LOWER"}), ("shape_upper", {"output_shape": [8, 8], "auto_pad": "SAME_UPPER"}),
                       ("shape_lower", {"output_shape": [8, 8], "auto_pad": "SAME_LOWER"})):  # fmt: skip
        case(name, "ConvTranspose", v, [f(1, 2, 4, 4), f(2, 3, 3, 3)], strides=[2, 2], **more)

# ---- Resize and Upsample ---------------------------------------------------------------------------------

x = f(1, 1, 3, 4)
case("nearest", "Upsample", 1, [x], newer=("Upsample", 7, [x], {"scales": [1.0, 1.0, 2.0, 3.0]}), height_scale=2.0, width_scale=3.0, mode="nearest")
case("linear", "Upsample", 1, [x], newer=("Upsample", 7, [x], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}), height_scale=2.0, width_scale=3.0, mode="bilinear")
case("", "Upsample", 7, [x], scales=[1.0, 1.0, 2.0, 1.5])
case("", "Upsample", 9, [x, np.float32([1, 1, 2, 1.5])])
case("linear", "Upsample", 9, [x, np.float32([1, 1, 2, 1.5])], mode="linear")
x, scales = f(1, 2, 7, 9), np.float32([1, 1, 1.4, 0.6])
case("", "Resize", 10, [x, scales])
case("linear", "Resize", 10, [x, scales], mode="linear")
for v in (11, 13):
    none = None if v > 11 else np.float32([])
    case("crop", "Resize", v, [x, np.float32([0, 0, 0.1, 0.2, 1, 1, 0.8, 1.2]), none, ints(1, 2, 4, 6)], mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0)
    case("cubic_inside", "Resize", v, [x, np.float32([]), scales], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
case("tf", "Resize", 11, [x, np.float32([]), scales], coordinate_transformation_mode="tf_half_pixel_for_nn")
for v in (18, 19):
    case("axes", "Resize", v, [x, None, None, ints(5, 14)], axes=[2, 3], mode="linear")
    for mode in ("linear", "cubic"):
        case(f"antialias_{mode}", "Resize", v, [f(1, 1, 9, 9), None, np.float32([1, 1, 0.5, 0.4])], mode=mode, antialias=1)
    for policy in ("not_larger", "not_smaller"):
        case(policy, "Resize", v, [x, None, None, ints(5, 14)], axes=[2, 3], mode="linear", keep_aspect_ratio_policy=policy)
case("symmetric", "Resize", 19, [x, None, np.float32([1, 1, 1.3, 0.7])], mode="linear", coordinate_transformation_mode="half_pixel_symmetric")

# ---- axes and ranks --------------------------------------------------------------------------------------

case("", "DFT", 17, [f(2, 8, 1)], axis=1)
case("half", "DFT", 17, [f(2, 8, 1)], axis=1, onesided=1)
case("", "DFT", 20, [f(2, 8, 1), None, np.int64(1)])
case("half", "DFT", 20, [f(2, 8, 1), None, np.int64(-2)], onesided=1)
for op in ("ArgMax", "ArgMin"):
    for v in (1, 11, 12, 13):
        x = np.round(f(3, 5)).astype(np.float32)
        case("", op, v, [x], axis=1, keepdims=0)
        if v >= 12:
            case("last", op, v, [x], axis=1, select_last_index=1)
for v in (7, 11, 13):
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (None, 0, 1, 2) + ((-1, -2) if v > 7 else ()):
            case(f"axis{axis}", op, v, [f(2, 3, 4)], **({} if axis is None else {"axis": axis}))
for v in (1, 9, 11, 13, 21):
    for axis in (0, 1, 2, 3):
        case(f"axis{axis}", "Flatten", v, [f(2, 3, 4)], axis=axis)
case("negative", "Flatten", 11, [f(2, 3, 4)], axis=-1)
case("", "Shape", 1, [IMAGE])
case("part", "Shape", 15, [IMAGE], start=1, end=-1)
case("beyond", "Shape", 15, [IMAGE], start=-10, end=10)
case("end", "Shape", 19, [IMAGE], start=-2)
for v in (10, 13, 19, 21):
    case("", "QuantizeLinear", v, [f(3, 4, scale=20), np.float32(0.3), np.uint8(128)])
    case("", "DequantizeLinear", v, [C.u8(3, 4), np.float32(0.3), np.uint8(128)])
    if v >= 13:
        case("axis0", "QuantizeLinear", v, [f(3, 4, scale=20), C.positive(3), C.i8(3)], axis=0)
        case("axis-1", "QuantizeLinear", v, [f(3, 4, scale=20), C.positive(4), C.i8(4)], axis=-1)
        case("usual_axis", "DequantizeLinear", v, [C.u8(3, 4), C.positive(4), C.u8(4)])
case("blocks", "QuantizeLinear", 21, [f(3, 8, scale=20), C.positive(3, 4), C.i8(3, 4)], axis=1, block_size=2)
case("blocks", "DequantizeLinear", 21, [C.i8(3, 8), C.positive(3, 4), C.i8(3, 4)], axis=1, block_size=2)
case("int16", "QuantizeLinear", 21, [f(3, 8, scale=20), np.float32(0.001), np.int16(5)])

# ---- the rest of what changed -----------------------------------------------------------------------------

POSITIVE = ("Log", "Sqrt", "Reciprocal")
for op in ("Abs", "Ceil", "Elu", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Neg", "Relu", "Selu", "Sigmoid", "Tanh", *POSITIVE):
    for v in (1, 6):
        case("", op, v, [C.positive(2, 3) if op in POSITIVE else f(2, 3)], **({"consumed_inputs": [0]} if v == 1 else {}))
for v in (1, 6):
    case("", "InstanceNormalization", v, [IMAGE, f(3), f(3)], **({"consumed_inputs": [0, 0, 0]} if v == 1 else {}))
case("", "ThresholdedRelu", 9, [IMAGE], alpha=0.3)
for name, more in (("", {}), ("across", {"across_channels": 1}), ("mean", {"normalize_variance": 0})):
    case(name, "MeanVarianceNormalization", 8, [IMAGE], **more)
case("", "MeanVarianceNormalization", 9, [IMAGE], axes=[0, 2, 3])
case("usual", "MeanVarianceNormalization", 13, [IMAGE])
case("", "GroupNormalization", 21, [f(2, 4, 3, 3), f(4), f(4)], num_groups=2)
x, s, b = f(2, 4, 3, 3), f(2), f(2)
case("groups", "GroupNormalization", 18, [x, s, b], newer=("GroupNormalization", 21, [x, s.repeat(2), b.repeat(2)], {"num_groups": 2}), num_groups=2)
case("center", "NonMaxSuppression", 10, [C.positive(2, 20, 4) * 5, f(2, 3, 20), ints(4), np.float32([0.3]), np.float32([0.1])], center_point_box=1)
case("center", "NonMaxSuppression", 11, [C.positive(2, 20, 4) * 5, f(2, 3, 20), ints(4), np.float32([0.3])], center_point_box=1)
for v in (9, 11):
    case("", "OneHot", v, [rng.integers(0 if v < 11 else -4, 4, (2, 3)), np.float32(4), f(2)], axis=1)
case("", "Scatter", 9, [f(4, 5), rng.integers(0, 4, (2, 5)), f(2, 5)], axis=0)
for v in (11, 13):
    case("", "ScatterElements", v, [f(4, 5), rng.integers(-4, 4, (2, 5)), f(2, 5)], axis=0)
case("add", "ScatterElements", 16, [f(4, 5), rng.integers(0, 4, (4, 5)), f(4, 5)], reduction="add")
case("max", "ScatterElements", 18, [f(4, 5), rng.integers(0, 4, (4, 5)), f(4, 5)], reduction="max")
case("", "ScatterND", 11, [f(4, 5), ints([0], [2]), f(2, 5)])
case("add", "ScatterND", 16, [f(4, 5), ints([0], [2], [0]), f(3, 5)], reduction="add")
case("max", "ScatterND", 18, [f(4, 5), ints([0], [2], [0]), f(3, 5)], reduction="max")
for v in (1, 11, 13):
    case("", "DepthToSpace", v, [f(1, 8, 2, 3)], blocksize=2)
case("columns", "DepthToSpace", 11, [f(1, 8, 2, 3)], blocksize=2, mode="CRD")
for v in (10, 13):
    case("", "Mod", v, [rng.integers(-9, 9, 4), ints(3, -3, 4, 5)])
    case("float", "Mod", v, [f(5), C.positive(5)], fmod=1)
for v in (11, 14):
    case("", "CumSum", v, [f(3, 4), np.int64(1)], exclusive=1, reverse=1)
for v in (1, 11):
    case("", "Gather", v, [IMAGE, ints(0, 2)], axis=1)
case("negative", "Gather", 11, [IMAGE, ints(-1, 0)], axis=-1)
case("", "ReverseSequence", 10, [f(4, 3, 2), ints(1, 4, 2)])
case("", "IsInf", 10, [np.float32([1, np.inf, -np.inf])], detect_negative=0)
for v, forms in ((1, ("value",)), (11, ("value",)), (12, ("value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings"))):
    for form in forms:
        holds = {"value": numpy_helper.from_array(f(2, 3)), "value_float": 1.5, "value_floats": [1.5, 2.5], "value_int": 3, "value_ints": [3, 4],
                 "value_string": "ab", "value_strings": ["a", "bc"]}[form]  # fmt: skip
        case(form, "Constant", max(v, 7), [], **{form: holds}) if v != 1 else case("old", "Constant", 7, [], value=holds)


def answer(model, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [o.name for o in session.get_outputs()], session.run(None, feeds)


def converted(model, feeds, version):
    """By the version converter, to the next set that both it and ONNX Runtime know."""
    why = "no newer set"
    typed = onnx.shape_inference.infer_shapes(model)
    for target in (7, 8, 9, 11, 12, 13, 15, 17, 18, 19, 21):
        if target <= version:
            continue
        try:
            return answer(version_converter.convert_version(typed, target), feeds)
        except Exception as e:  # noqa: BLE001: the next set
            why = str(e).splitlines()[0][:200]
    raise LookupError(why)


def oracle(name):
    op, domain, version, inputs, outputs, constant, behind, beside, attrs = C.specs[name]
    model, feeds = model_of(*C.specs[name])
    if name in GIVES:
        return model, feeds, ["y0"], [np.asarray(GIVES[name])]
    if name in NEWER:
        newer_op, newer_version, newer_inputs, newer_attrs = NEWER[name]
        newer, newer_feeds = model_of(newer_op, domain, newer_version, [np.asarray(x) for x in newer_inputs], outputs, (), behind, beside, newer_attrs)
        return model, feeds, *answer(newer, newer_feeds)
    if version >= 7:
        try:
            return model, feeds, *answer(model, feeds)
        except Exception:  # noqa: BLE001: ONNX Runtime lacks this version
            pass
    return model, feeds, *converted(model, feeds, version)


@pytest.fixture(scope="module")
def results(churon, tmp_path_factory):
    top, missing = tmp_path_factory.mktemp("opsets"), {}
    for name in C.specs:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                write_case(top / name, *oracle(name))
        except Exception as e:  # noqa: BLE001
            missing[name] = f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"
    rows, _ = Cases(0).run(churon, top)
    return rows, missing


def test_every_case_has_an_oracle(results):
    assert not results[1], "\n".join(f"{k}: {v}" for k, v in results[1].items())


@pytest.mark.parametrize("op", sorted({spec[0] for spec in C.specs.values()}))
def test_old_versions_keep_their_meaning(results, op):
    rows = {name: row for name, row in results[0].items() if C.specs[name][0] == op}
    wrong = [f"{name}: {row['why']}" for name, row in rows.items() if not row["ok"]]
    assert rows and not wrong, "\n".join(wrong)
