"""Operators of networks against ONNX Runtime: versions and domains that the node cases of onnx do not have.

Every case is a model of one node with random inputs and fixed seeds. All of them are written as a suite folder and run
by one `churon verify --onnx-suite`; a case passes if its outputs agree within its tolerance.
"""

import json
import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime", reason="skip: onnxruntime is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

CASES = {}
RNG = np.random.default_rng(7)


def f32(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def u8(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def case(name, op, version, inputs, outputs=1, domain="", constant=(), behind=False, **attributes):
    """inputs: arrays, or None where absent. constant: numbers of inputs that are initializers. behind: input 0 is what another
    node made, so that the operator may write over it."""
    assert name not in CASES, name
    inputs = [None if x is None else np.asarray(x) for x in inputs]
    CASES[name] = (op, domain, version, inputs, outputs, tuple(constant), behind, attributes)


def ms(name, op, inputs, outputs=1, **attributes):
    case(name, op, 1, inputs, outputs, domain="com.microsoft", **attributes)


def model_of(op, domain, opset, inputs, outputs, constant, behind, attributes):
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    out = [f"y{i}" for i in range(outputs)]
    nodes = [helper.make_node(op, ["made"] + names[1:] if behind else names, out, domain=domain, **attributes)]
    if behind:
        nodes.insert(0, helper.make_node("Neg", [names[0]], ["made"]))
    feeds, inits, infos = {}, [], []
    for i, (name, x) in enumerate(zip(names, inputs)):
        if x is None:
            continue
        if i in constant:
            inits.append(numpy_helper.from_array(x, name))
        else:
            infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
            feeds[name] = x
    outs = [helper.make_empty_tensor_value_info(o) for o in out if o]
    graph = helper.make_graph(nodes, "g", infos, outs, inits)
    opsets = [helper.make_opsetid("", opset if domain == "" else 17)]
    if domain:
        opsets.append(helper.make_opsetid(domain, opset))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8 if opset < 21 else 10)
    return model, feeds


def write_case(folder, spec):
    model, feeds = model_of(*spec)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, feeds)
    del model.graph.output[:]
    for o, r in zip(session.get_outputs(), results):
        model.graph.output.append(helper.make_tensor_value_info(o.name, helper.np_dtype_to_tensor_dtype(r.dtype), r.shape))
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for i, x in enumerate(feeds.values()):
        (data / f"input_{i}.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    for i, y in enumerate(results):
        (data / f"output_{i}.pb").write_bytes(numpy_helper.from_array(y).SerializeToString())


# ---- old versions -------------------------------------------------------------------------------------

for v in (1, 11):
    for axis in (0, 1, 2, -1):
        case(f"softmax_{v}_axis{axis}".replace("-", "m"), "Softmax", max(v, 7), [f32(2, 3, 4)], axis=axis)
        case(f"logsoftmax_{v}_axis{axis}".replace("-", "m"), "LogSoftmax", max(v, 7), [f32(2, 3, 4)], axis=axis)
case("batchnorm_7", "BatchNormalization", 7, [f32(2, 3, 4, 5), f32(3), f32(3), f32(3), abs(f32(3))], epsilon=0.01)
case("batchnorm_9", "BatchNormalization", 9, [f32(2, 3, 4), f32(3), f32(3), f32(3), abs(f32(3))])
case("batchnorm_14", "BatchNormalization", 14, [f32(2, 3), f32(3), f32(3), f32(3), abs(f32(3))])
case("upsample_7_nearest", "Upsample", 7, [f32(1, 2, 3, 4)], scales=[1.0, 1.0, 2.0, 3.0])
case("upsample_7_linear", "Upsample", 7, [f32(1, 2, 3, 4)], scales=[1.0, 1.0, 2.0, 3.0], mode="linear")
case("upsample_9_linear", "Upsample", 9, [f32(1, 2, 3, 4), np.float32([1, 1, 2, 1.5])], constant=[1], mode="linear")
case("resize_10_nearest_down", "Resize", 10, [f32(1, 2, 7, 9), np.float32([1, 1, 0.6, 0.7])], mode="nearest")
case("resize_10_nearest_up", "Resize", 10, [f32(1, 2, 7, 9), np.float32([1, 1, 1.6, 2.3])], mode="nearest")
for _t in ("half_pixel", "align_corners", "asymmetric"):
    case(f"resize_13_wide_{_t}", "Resize", 13, [f32(2, 3, 5, 200), None, np.float32([1, 1, 2, 2.5])], mode="linear", coordinate_transformation_mode=_t)
case("resize_10_linear", "Resize", 10, [f32(1, 2, 7, 9), np.float32([1, 1, 0.6, 1.7])], mode="linear")
for mode in ("nearest", "linear", "cubic"):
    for t in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
        case(f"resize_13_{mode}_{t}", "Resize", 13, [f32(1, 2, 7, 9), None, None, np.int64([1, 2, 5, 14])], mode=mode, coordinate_transformation_mode=t)
        if mode == "nearest":
            for nearest in ("floor", "ceil", "round_prefer_ceil"):
                case(f"resize_11_{nearest}_{t}", "Resize", 11, [f32(1, 1, 7, 9), np.float32([]), np.float32([1, 1, 2, 3] if t == "align_corners" else [1, 1, 1.7, 0.7])], mode=mode, coordinate_transformation_mode=t, nearest_mode=nearest)
case("averagepool_7_pads", "AveragePool", 7, [f32(1, 2, 9, 9)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
case("averagepool_11_ceil", "AveragePool", 11, [f32(1, 2, 9, 8)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
case("averagepool_19_dilated", "AveragePool", 19, [f32(1, 2, 9, 8)], kernel_shape=[3, 2], dilations=[2, 2], pads=[1, 0, 1, 0])
case("maxpool_8_column_major", "MaxPool", 8, [f32(1, 2, 6, 5)], 2, kernel_shape=[2, 2], strides=[2, 2], storage_order=1)
case("maxpool_12_3d", "MaxPool", 12, [f32(1, 2, 5, 6, 7)], 2, kernel_shape=[2, 3, 2], strides=[2, 1, 2], pads=[1, 1, 0, 0, 1, 1])
case("lppool_2", "LpPool", 2, [f32(1, 2, 9, 8)], kernel_shape=[3, 3], p=3)
case("maxroipool", "MaxRoiPool", 1, [f32(2, 3, 9, 9), np.float32([[0, 1, 1, 6, 7], [1, 0, 2, 8, 5]])], pooled_shape=[2, 3], spatial_scale=0.9)
case("roialign_10", "RoiAlign", 10, [f32(2, 3, 9, 9), np.float32([[1, 1, 6, 7], [0, 2, 8, 5]]), np.int64([0, 1])], output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.8)
case("instancenorm", "InstanceNormalization", 6, [f32(2, 3, 8), f32(3), f32(3)])
case("lrn", "LRN", 1, [f32(1, 7, 4, 4)], size=4, alpha=0.01, beta=0.6, bias=1.5)
case("gemm_6", "Gemm", 7, [f32(3, 4), f32(5, 4), f32(3, 1)], transB=1, alpha=0.5, beta=2.0)
case("gemm_int", "Gemm", 9, [RNG.integers(-9, 9, (3, 4)).astype(np.int32), RNG.integers(-9, 9, (4, 5)).astype(np.int32), RNG.integers(-9, 9, (5,)).astype(np.int32)])
case("matmul_int64", "MatMul", 9, [RNG.integers(-9, 9, (2, 3, 4)), RNG.integers(-9, 9, (4, 5))])
case("matmul_large", "MatMul", 13, [f32(70, 300), f32(300, 130)], constant=[1])
case("matmul_f64", "MatMul", 13, [RNG.standard_normal((2, 5, 6)), RNG.standard_normal((6, 7))])
for g, c in ((1, 6), (2, 6), (6, 6)):
    case(f"conv_group{g}", "Conv", 11, [f32(2, c, 13, 12), f32(12, c // g, 3, 3), f32(12)], group=g, strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2])
case("conv_1d", "Conv", 11, [f32(2, 5, 40), f32(7, 5, 5)], pads=[2, 2], strides=[3])
case("conv_3d", "Conv", 11, [f32(1, 3, 6, 7, 8), f32(4, 3, 2, 3, 3), f32(4)], pads=[1, 0, 1, 0, 1, 1])
case("conv_same_lower", "Conv", 11, [f32(1, 3, 7, 8), f32(4, 3, 2, 4)], auto_pad="SAME_LOWER", strides=[2, 3])
case("conv_f64", "Conv", 11, [RNG.standard_normal((1, 2, 6, 6)), RNG.standard_normal((3, 2, 3, 3))])
case("convtranspose_group", "ConvTranspose", 11, [f32(1, 4, 5, 6), f32(4, 3, 3, 2), f32(6)], group=2, strides=[2, 3], pads=[1, 0, 0, 1], output_padding=[1, 2])
case("convtranspose_1d", "ConvTranspose", 11, [f32(2, 4, 9), f32(4, 3, 4)], strides=[2], dilations=[2])
case("convinteger", "ConvInteger", 10, [u8(1, 3, 7, 7), u8(4, 3, 3, 3), np.uint8(9), np.uint8(120)], pads=[1, 1, 1, 1])
case("qlinearconv", "QLinearConv", 10, [u8(1, 3, 7, 7), np.float32(0.02), np.uint8(128), i8(4, 3, 3, 3), np.float32([0.01, 0.02, 0.015, 0.011]), np.int8([0, 0, 0, 0]), np.float32(0.05), np.uint8(100), RNG.integers(-99, 99, 4).astype(np.int32)], constant=[3, 4, 5], pads=[1, 1, 1, 1])
case("convinteger_group", "ConvInteger", 10, [u8(2, 8, 9, 11), i8(12, 4, 3, 2), np.uint8(77)], constant=[1], group=2, strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2])
case("convinteger_depthwise", "ConvInteger", 10, [u8(1, 6, 9, 9), u8(6, 1, 3, 3), np.uint8(3), np.uint8(99)], group=6)
case("convinteger_free", "ConvInteger", 10, [u8(1, 5, 20, 21), u8(19, 5, 3, 3), np.uint8(255), np.uint8(1)], pads=[1, 1, 1, 1])
Q_ARGS = [np.float32(0.02), np.int8(-5)]
case("qlinearconv_signed", "QLinearConv", 10, [i8(2, 16, 14, 13), *Q_ARGS, i8(33, 16, 1, 1), np.float32(0.01), np.int8(0), np.float32(0.09), np.int8(7), RNG.integers(-999, 999, 33).astype(np.int32)], constant=[1, 2, 3, 4, 5, 6, 7])
case("qlinearconv_group", "QLinearConv", 10, [u8(1, 12, 9, 9), np.float32(0.02), np.uint8(3), u8(16, 6, 3, 3), np.float32(0.01), np.uint8(130), np.float32(0.2), np.uint8(128)], constant=[3, 4, 5], group=2, pads=[2, 2, 0, 1], strides=[2, 2])
case("qlinearconv_line", "QLinearConv", 10, [u8(2, 3, 40), np.float32(0.02), np.uint8(3), i8(20, 3, 5), np.float32(0.01), np.int8(0), np.float32(0.2), np.uint8(128)], pads=[2, 2])
case("qlinearmatmul_batches", "QLinearMatMul", 10, [u8(3, 2, 7, 9), np.float32(0.02), np.uint8(128), i8(2, 9, 18), np.float32(0.03), np.int8(-3), np.float32(0.9), np.uint8(90)])
case("qlinearmatmul_constant", "QLinearMatMul", 10, [u8(3, 7, 33), np.float32(0.02), np.uint8(9), i8(33, 18), np.float32(0.003), np.int8(0), np.float32(0.09), np.uint8(90)], constant=[3])
case("matmulinteger_batches", "MatMulInteger", 10, [u8(2, 3, 5), u8(2, 5, 4), np.uint8(200), np.uint8(7)])
case("matmulinteger_one_matrix", "MatMulInteger", 10, [u8(2, 3, 4, 5), u8(5, 17), np.uint8(200), np.uint8(7)], constant=[1])
case("qlinearmatmul", "QLinearMatMul", 10, [u8(2, 3, 4), np.float32(0.02), np.uint8(128), u8(4, 5), np.float32(0.03), np.uint8(100), np.float32(0.1), np.uint8(90)])
case("matmulinteger", "MatMulInteger", 10, [u8(3, 5), i8(5, 4), np.uint8(3), np.int8([1, 2, 3, 4])], constant=[1, 3])
case("dequantize_13_axis", "DequantizeLinear", 13, [i8(2, 3, 4), np.float32([0.1, 0.2, 0.3]), np.int8([1, 2, 3])], axis=1)
case("quantize_13_axis", "QuantizeLinear", 13, [f32(2, 3, 4, scale=20), np.float32([0.1, 0.2, 0.3]), np.uint8([1, 128, 3])], axis=1)
case("dynamicquantize", "DynamicQuantizeLinear", 11, [f32(4, 5)], 3)
for d in ("forward", "reverse", "bidirectional"):
    n = 2 if d == "bidirectional" else 1
    lens = np.int32([5, 2, 3])
    case(f"lstm_{d}", "LSTM", 7, [f32(5, 3, 4), f32(n, 24, 4), f32(n, 24, 6), f32(n, 48), lens, f32(n, 3, 6), f32(n, 3, 6), f32(n, 18)], 3, constant=[1, 2], hidden_size=6, direction=d)
    case(f"gru_{d}", "GRU", 7, [f32(5, 3, 4), f32(n, 18, 4), f32(n, 18, 6), f32(n, 36), lens, f32(n, 3, 6)], 2, hidden_size=6, direction=d)
    case(f"gru_lbr_{d}", "GRU", 14, [f32(5, 3, 4), f32(n, 18, 4), f32(n, 18, 6), f32(n, 36)], 2, constant=[1, 2], hidden_size=6, direction=d, linear_before_reset=1)
    case(f"rnn_{d}", "RNN", 7, [f32(5, 3, 4), f32(n, 6, 4), f32(n, 6, 6), f32(n, 12), lens], 2, hidden_size=6, direction=d, activations=["Relu", "Tanh"][:n], clip=0.7)
case("lstm_activations", "LSTM", 7, [f32(5, 2, 4), f32(1, 24, 4), f32(1, 24, 6)], 3, hidden_size=6, activations=["HardSigmoid", "Softsign", "Elu"], activation_alpha=[0.3, 0.9], activation_beta=[0.4], clip=2.0)
case("lstm_input_forget", "LSTM", 7, [f32(5, 2, 4), f32(1, 24, 4), f32(1, 24, 6)], 3, hidden_size=6, input_forget=1)
case("gridsample_16_bicubic", "GridSample", 16, [f32(1, 2, 6, 7), f32(1, 4, 5, 2, scale=0.8)], mode="bicubic", padding_mode="reflection")
case("gridsample_16_border", "GridSample", 16, [f32(1, 2, 6, 7), f32(1, 4, 5, 2, scale=1.5)], mode="bilinear", padding_mode="border", align_corners=1)
case("nms", "NonMaxSuppression", 11, [abs(f32(2, 30, 4, scale=5)), f32(2, 3, 30), np.int64([6]), np.float32([0.3]), np.float32([0.1])])
case("dft_prime", "DFT", 17, [f32(2, 13, 1)], axis=1)
case("dft_inverse_length", "DFT", 17, [f32(2, 12, 2), np.int64(15)], axis=1, inverse=1)
case("stft_window", "STFT", 17, [f32(2, 64, 1), np.int64(7), f32(16), np.int64(16)])
case("det", "Det", 11, [f32(3, 5, 5)])
case("einsum_pairs", "Einsum", 12, [f32(2, 3, 4), f32(4, 5), f32(2, 5)], equation="bij,jk,bk->bi")
case("einsum_ellipsis", "Einsum", 12, [f32(2, 3, 4, 5), f32(5, 6)], equation="...ij,jk->...ki")
case("einsum_implied", "Einsum", 12, [f32(3, 4), f32(4, 5)], equation="ab, bc")
for _name, _a, _b, _equation in [
    ("transposed", (4, 5, 6), (4, 7, 6), "bij,bkj->bik"),
    ("turned", (4, 5, 6), (4, 7, 6), "bij,bkj->bki"),
    ("scores", (2, 5, 3, 4), (2, 6, 3, 4), "bqhd,bkhd->bhqk"),
    ("mixed", (2, 3, 5, 6), (2, 6, 3, 4), "bhqk,bkhd->bqhd"),
    ("mixed_turned", (2, 3, 5, 6), (2, 6, 3, 4), "bhqk,bkhd->bdhq"),
    ("torn", (3, 4, 5), (4, 6), "aib,ik->bak"),
    ("pair", (3, 4, 5), (6, 4, 5), "aij,bij->ab"),
    ("pair_torn", (3, 4, 5), (5, 6, 4), "aij,jbi->ab"),
    ("vector", (7, 5), (5,), "ij,j->i"),
    ("outer", (7,), (5,), "i,j->ij"),
    ("dot", (7,), (7,), "i,i->"),
    ("one", (2, 1, 5), (2, 3, 5), "bij,bkj->bik"),
    ("repeated", (1, 4, 6), (3, 5, 6), "bij,bkj->bik"),
    ("diagonal_pair", (4, 4, 3), (4, 3, 2), "iij,ijk->ik"),
    ("summed", (4, 5, 6), (6, 3), "bij,jk->bk"),
]:
    case(f"einsum_{_name}", "Einsum", 12, [f32(*_a), f32(*_b)], equation=_equation)
    case(f"einsum_{_name}_f64", "Einsum", 12, [f32(*_a).astype(np.float64), f32(*_b).astype(np.float64)], equation=_equation)
case("einsum_diagonal", "Einsum", 12, [f32(4, 4, 3)], equation="iij->j")
case("layernorm_17_broadcast", "LayerNormalization", 17, [f32(2, 3, 4), f32(4), f32(4)], 3, axis=-1)
case("nll_ignore", "NegativeLogLikelihoodLoss", 12, [f32(3, 5, 2), RNG.integers(0, 5, (3, 2)), abs(f32(5))], reduction="mean", ignore_index=1)

# ---- com.microsoft ------------------------------------------------------------------------------------

for act, params in (("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.2, 0.5]), ("Sigmoid", None), ("Tanh", None)):
    extra = {"activation_params": params} if params else {}
    ms(f"fusedconv_{act}", "FusedConv", [f32(1, 4, 6, 6), f32(8, 4, 3, 3), f32(8)], constant=[1, 2], activation=act, **extra)
ms("fusedmatmul", "FusedMatMul", [f32(2, 4, 3), f32(2, 5, 4)], transA=1, transB=1, alpha=0.5)
ms("fusedmatmul_batch", "FusedMatMul", [f32(4, 2, 3), f32(2, 3, 5)], transBatchA=1)
ms("fusedgemm", "FusedGemm", [f32(3, 4), f32(4, 5), f32(5)], activation="Relu")
ms("gelu", "Gelu", [f32(3, 4, scale=3)])
ms("quickgelu", "QuickGelu", [f32(3, 4, scale=3)])
ms("fastgelu", "FastGelu", [f32(3, 4, scale=3), f32(4)])
ms("biasgelu", "BiasGelu", [f32(3, 4, scale=3), f32(4)])
ms("skiplayernorm", "SkipLayerNormalization", [f32(2, 3, 8), f32(2, 3, 8), f32(8), f32(8), f32(8)])
ms("skipsimplified", "SkipSimplifiedLayerNormalization", [f32(2, 3, 8), f32(2, 3, 8), f32(8)], epsilon=1e-6)
case("simplifiedlayernorm", "SimplifiedLayerNormalization", 1, [f32(2, 3, 8), f32(8)], epsilon=1e-6, axis=-1)
ms("embedlayernorm", "EmbedLayerNormalization", [RNG.integers(0, 9, (2, 4)).astype(np.int32), RNG.integers(0, 2, (2, 4)).astype(np.int32), f32(9, 8), f32(6, 8), f32(2, 8), f32(8), f32(8), np.int32([[1, 1, 1, 0], [1, 1, 0, 0]])], 2, epsilon=1e-12)
hidden = [f32(2, 5, 8), f32(8, 24), f32(24)]
ms("attention", "Attention", hidden, num_heads=2)
ms("attention_causal", "Attention", hidden, num_heads=2, unidirectional=1)
ms("attention_lengths", "Attention", hidden + [np.int32([3, 5])], num_heads=2)
ms("attention_mask2", "Attention", hidden + [np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])], num_heads=2)
ms("attention_past", "Attention", hidden + [None, f32(2, 2, 2, 3, 4)], 2, num_heads=2, unidirectional=1)
ms("attention_bias", "Attention", hidden + [None, None, f32(1, 2, 5, 5)], num_heads=2)
ms("qattention", "QAttention", [u8(2, 5, 8), i8(8, 24), f32(24), np.float32(0.01), np.float32(0.02), None, np.uint8(128), np.int8(0)], num_heads=2, constant=[1])
ms("mha", "MultiHeadAttention", [f32(2, 5, 8), f32(2, 7, 8), f32(2, 7, 8), f32(24)], num_heads=2)
ms("mha_mask", "MultiHeadAttention", [f32(2, 5, 8), f32(2, 7, 8), f32(2, 7, 12), None, np.int32([[1] * 4 + [0] * 3, [1] * 7])], num_heads=2)
ms("mha_packed", "MultiHeadAttention", [f32(2, 5, 2, 3, 4)], num_heads=2)
ms("mha_packed_kv", "MultiHeadAttention", [f32(2, 5, 8), f32(2, 7, 2, 2, 4)], num_heads=2)
ms("mha_past", "MultiHeadAttention", [f32(2, 1, 8), f32(2, 1, 8), f32(2, 1, 8), None, None, None, f32(2, 2, 3, 4), f32(2, 2, 3, 4)], 3, num_heads=2)
ms("mha_attention_bias", "MultiHeadAttention", [f32(2, 5, 8), f32(2, 7, 8), f32(2, 7, 8), None, None, f32(1, 2, 5, 7)], num_heads=2)
ms("mha_causal", "MultiHeadAttention", [f32(2, 5, 8), f32(2, 5, 8), f32(2, 5, 8)], num_heads=2, unidirectional=1)
angles = f32(20, 8)
cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
gqa_prompt = [f32(2, 6, 64), f32(2, 6, 32), f32(2, 6, 32), None, None, np.int32([5, 5]), np.int32(6)]
for name, extra in (("", {}), ("_window", {"local_window_size": 3}), ("_softcap", {"softcap": 2.0}), ("_smooth", {"smooth_softmax": 1})):
    ms(f"gqa_prompt{name}", "GroupQueryAttention", gqa_prompt, 3, num_heads=4, kv_num_heads=2, **extra)
for inter in (0, 1):
    ms(f"gqa_rotary{inter}", "GroupQueryAttention", gqa_prompt + [cos, sin], 3, num_heads=4, kv_num_heads=2, do_rotary=1, rotary_interleaved=inter)
ms("gqa_decode", "GroupQueryAttention", [f32(2, 1, 64), f32(2, 1, 32), f32(2, 1, 32), f32(2, 2, 7, 16), f32(2, 2, 7, 16), np.int32([7, 7]), np.int32(8), cos, sin], 3, num_heads=4, kv_num_heads=2, do_rotary=1)
ms("gqa_packed", "GroupQueryAttention", [f32(2, 6, 128), None, None, None, None, np.int32([5, 5]), np.int32(6)], 3, num_heads=4, kv_num_heads=2)
ms("rotary", "RotaryEmbedding", [f32(2, 5, 32), RNG.integers(0, 20, (2, 5)), cos, sin])
ms("rotary_offset", "RotaryEmbedding", [f32(2, 5, 32), np.int64([3]), cos, sin], interleaved=1)
for bits in (4, 8):
    blob = 32 * bits // 8
    ms(f"matmulnbits_{bits}", "MatMulNBits", [f32(3, 70), u8(9, 3, blob), f32(27), None], K=70, N=9, bits=bits, block_size=32, constant=[1, 2])
ms("matmulnbits_zeros", "MatMulNBits", [f32(2, 3, 64), u8(9, 2, 16), f32(18), u8(9)], K=64, N=9, bits=4, block_size=32, constant=[1, 2, 3])
ms("matmulnbits_bias", "MatMulNBits", [f32(3, 64), u8(9, 2, 16), f32(18), None, None, f32(9)], K=64, N=9, bits=4, block_size=32, constant=[1, 2])
ms("dynamicquantizematmul", "DynamicQuantizeMatMul", [f32(3, 6), u8(6, 5), np.float32([0.02]), np.uint8([120]), f32(5)], constant=[1, 2, 3, 4])
ms("matmulintegertofloat", "MatMulIntegerToFloat", [u8(3, 6), i8(6, 5), np.float32(0.02), f32(5), np.uint8(100), np.int8([0] * 5), f32(5)], constant=[1])
ms("qgemm", "QGemm", [u8(3, 6), np.float32(0.02), np.uint8(100), i8(5, 6), np.float32(0.01), np.int8(3), RNG.integers(-99, 99, 5).astype(np.int32), np.float32(0.03), np.uint8(90)], constant=[3], transB=1, alpha=0.5)
ms("qlinearadd", "QLinearAdd", [u8(2, 3, 4), np.float32(0.0217), np.uint8(100), u8(3, 1), np.float32(0.0513), np.uint8(3), np.float32(0.0611), np.uint8(90)])
ms("qlinearmul", "QLinearMul", [i8(2, 3, 4), np.float32(0.02), np.int8(10), i8(4), np.float32(0.05), np.int8(3), np.float32(0.03), np.int8(-9)])
ms("qlinearsigmoid", "QLinearSigmoid", [u8(40), np.float32(0.03), np.uint8(128), np.float32(0.004), np.uint8(0)], constant=[1, 2, 3, 4])
ms("qlinearleakyrelu", "QLinearLeakyRelu", [i8(40), np.float32(0.03), np.int8(5), np.float32(0.02), np.int8(-5)], constant=[1, 2, 3, 4], alpha=0.3)
ms("qlinearconcat", "QLinearConcat", [np.float32(0.05), np.uint8(10), u8(2, 3), np.float32(0.02), np.uint8(100), u8(2, 4), np.float32(0.07), np.uint8(9)], axis=1)
ms("qlinearaveragepool", "QLinearAveragePool", [u8(1, 2, 6, 6), np.float32(0.02), np.uint8(100), np.float32(0.03), np.uint8(90)], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
ms("qlinearaveragepool_nhwc", "QLinearAveragePool", [u8(1, 6, 6, 2), np.float32(0.02), np.uint8(100), np.float32(0.03), np.uint8(90)], kernel_shape=[3, 3], channels_last=1)
ms("qlinearglobalaveragepool", "QLinearGlobalAveragePool", [u8(1, 6, 6, 2), np.float32(0.02), np.uint8(100), np.float32(0.03), np.uint8(90)], channels_last=1)
ms("qlinearsoftmax", "QLinearSoftmax", [u8(3, 9), np.float32(0.05), np.uint8(100), np.float32(1 / 256), np.uint8(0)], constant=[1, 2, 3, 4], axis=-1, opset=13)
ms("qlinearconv_nhwc", "QLinearConv", [u8(1, 7, 7, 3), np.float32(0.02), np.uint8(128), i8(4, 3, 3, 3), np.float32(0.01), np.int8(0), np.float32(0.05), np.uint8(100)], constant=[3, 4, 5], channels_last=1)
ms("inverse", "Inverse", [f32(2, 4, 4)])


# ---- written over their input --------------------------------------------------------------------------

for axis in (0, 1, 2):
    case(f"over_softmax{axis}", "Softmax", 13, [f32(3, 4, 5)], axis=axis, behind=True)
case("over_logsoftmax", "LogSoftmax", 11, [f32(3, 4, 5)], behind=True)
case("over_batchnorm", "BatchNormalization", 9, [f32(2, 3, 4), f32(3), f32(3), f32(3), abs(f32(3))], behind=True)
case("over_instancenorm", "InstanceNormalization", 6, [f32(2, 3, 8), f32(3), f32(3)], behind=True)
case("over_layernorm", "LayerNormalization", 17, [f32(2, 3, 8), f32(8), f32(8)], behind=True)
case("over_layernorm_broadcast", "LayerNormalization", 17, [f32(2, 3, 8), f32(3, 8)], behind=True, axis=1)
case("over_lpnorm", "LpNormalization", 1, [f32(2, 3, 8)], behind=True, axis=1, p=1)
case("over_mvn", "MeanVarianceNormalization", 9, [f32(2, 3, 4, 4)], behind=True)
case("over_lrn", "LRN", 1, [f32(1, 7, 4, 4)], size=5, behind=True)
ms("over_biasgelu", "BiasGelu", [f32(3, 4), f32(4)], behind=True)


@pytest.fixture(scope="session")
def results(churon, tmp_path_factory):
    top = tmp_path_factory.mktemp("suite")
    refused = {}
    for name, spec in CASES.items():
        try:
            write_case(top / name, spec)
        except Exception as e:  # ONNX Runtime lacks it: nothing to compare with
            refused[name] = str(e).splitlines()[0][:200]
    # Integers may differ by one step where a float lies between two of them.
    run = subprocess.run([churon, "verify", "--onnx-suite", str(top), "--rtol", "1e-3", "--atol", "2e-5", "--json"], capture_output=True, text=True, timeout=170)
    rows = {c["name"]: c for c in json.loads(run.stdout)["cases"]}
    return rows, refused


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(results, name):
    rows, refused = results
    if name in refused:
        pytest.skip(f"skip: onnxruntime: {refused[name]}")
    assert rows[name]["ok"], rows[name].get("why")
