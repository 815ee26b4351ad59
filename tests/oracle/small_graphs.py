"""Small models, each of which leads through another part of the library: passes, control flow, functions, sequences, strings,
trees. They are swept with failing allocations and seed the fuzzer. build() gives {name: bytes}."""

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

F, I64, S, B = T.FLOAT, T.INT64, T.STRING, T.BOOL
ML = "ai.onnx.ml"


def weights(name, *shape, dtype=np.float32, scale=0.3):
    n = int(np.prod(shape))
    values = (np.arange(n) * 7 % 11 - 5).reshape(shape)
    return nh.from_array((values * scale).astype(dtype) if dtype == np.float32 else values.astype(dtype), name)


def const(name, value):
    return nh.from_array(np.asarray(value), name)


def node(op, inputs, outputs, domain="", **attributes):
    return h.make_node(op, [""  if i == "-" else i for i in inputs.split()], outputs.split(), domain=domain, **attributes)


def model(nodes, inputs, outputs, constants=(), opset=21, functions=(), domains=()):
    def port(name, kind, shape):
        return h.make_tensor_value_info(name, kind, shape)

    graph = h.make_graph(
        nodes, "g", [port(*i) for i in inputs], [o if not isinstance(o, tuple) else port(*o) for o in outputs], list(constants)
    )
    opsets = [h.make_opsetid("", opset)] + [h.make_opsetid(d, v) for d, v in domains]
    return h.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10).SerializeToString()


def vision():
    image = ("x", F, [1, 3, 9, 9])
    relu = [node("Conv", "x w b", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "c"), node("Conv", "c v", "d", pads=[1, 1, 1, 1])]
    yield "winograd", model(
        relu + [node("Add", "d c", "e"), node("Relu", "e", "y")], [image], [("y", F, None)],
        [weights("w", 16, 3, 3, 3), weights("b", 16), weights("v", 16, 16, 3, 3)],
    )  # fmt: skip
    yield "blocked", model(
        [
            node("Conv", "x w", "a", strides=[2, 2], pads=[1, 1, 1, 1]),
            node("BatchNormalization", "a s b m q", "n"),
            node("HardSigmoid", "n", "k"),
            node("Mul", "n k", "c"),
            node("Conv", "c dw", "d", group=8, pads=[1, 1, 1, 1]),
            node("Clip", "d lo hi", "e"),
            node("MaxPool", "e", "p", kernel_shape=[2, 2], strides=[2, 2]),
            node("ConvTranspose", "p t", "u", strides=[2, 2]),
            node("Resize", "u - sc", "r", mode="nearest"),
            node("GlobalAveragePool", "r", "y"),
        ],
        [image], [("y", F, None)],
        [weights("w", 8, 3, 3, 3), const("s", np.ones(8, np.float32)), weights("b", 8), weights("m", 8), const("q", np.ones(8, np.float32)),
         weights("dw", 8, 1, 3, 3), const("lo", np.float32(0)), const("hi", np.float32(6)), weights("t", 8, 5, 2, 2),
         const("sc", np.float32([1, 1, 2, 2]))],
    )  # fmt: skip
    yield "grouped", model(
        [node("Conv", "x w", "a", pads=[0, 0, 1, 1]), node("Conv", "a v", "c", group=2), node("LRN", "c", "y", size=3)],
        [("x", F, ["n", 3, 6, 7])], [("y", F, None)], [weights("w", 4, 3, 2, 2), weights("v", 6, 2, 3, 3)],
    )  # fmt: skip


def language():
    qkv = [node("MatMul", f"x w{i}", f"p{i}") for i in "qkv"]
    split = [node("Reshape", f"p{i} shape", f"r{i}") for i in "qkv"]
    turn = [node("Transpose", f"r{i}", f"t{i}", perm=[0, 2, 3, 1] if i == "k" else [0, 2, 1, 3]) for i in "qkv"]
    yield "attention", model(
        qkv + split + turn + [
            node("MatMul", "tq tk", "scores"), node("Div", "scores root", "scaled"), node("Add", "scaled mask", "masked"),
            node("Softmax", "masked", "weights", axis=-1), node("MatMul", "weights tv", "heads"),
            node("Transpose", "heads", "back", perm=[0, 2, 1, 3]), node("Reshape", "back flat", "joined"),
            node("MatMul", "joined wo", "out"), node("Add", "out x", "sum"),
            node("LayerNormalization", "sum gain shift", "y", axis=-1),
        ],
        [("x", F, [1, "s", 8]), ("mask", F, [1, 1, 1, "s"])], [("y", F, None)],
        [weights(f"w{i}", 8, 8, scale=0.1) for i in "qkvo"] + [const("shape", np.int64([0, -1, 2, 4])), const("flat", np.int64([0, -1, 8])),
         const("root", np.float32(2)), const("gain", np.ones(8, np.float32)), weights("shift", 8)],
    )  # fmt: skip
    yield "norm_pieces", model(
        [
            node("ReduceMean", "x last", "mean", keepdims=1), node("Sub", "x mean", "d"), node("Pow", "d two", "sq"),
            node("ReduceMean", "sq last", "var", keepdims=1), node("Add", "var eps", "ve"), node("Sqrt", "ve", "sd"),
            node("Div", "d sd", "n"), node("Mul", "n gain", "g"), node("Add", "g shift", "ln"),
            node("Div", "ln rt2", "e0"), node("Erf", "e0", "e1"), node("Add", "e1 one", "e2"), node("Mul", "ln e2", "e3"), node("Mul", "e3 half", "gelu"),
            node("Sigmoid", "gelu", "sg"), node("Mul", "gelu sg", "y"),
        ],
        [("x", F, ["n", 6])], [("y", F, None)],
        [const("last", np.int64([-1])), const("two", np.float32(2)), const("eps", np.float32(1e-5)), const("gain", np.ones(6, np.float32)),
         weights("shift", 6), const("rt2", np.float32(2**0.5)), const("one", np.float32(1)), const("half", np.float32(0.5))],
    )  # fmt: skip
    for op, gates in ("LSTM", 4), ("GRU", 3), ("RNN", 1):
        yield op.lower(), model(
            [node("Transpose", "x", "t", perm=[1, 0, 2]), node(op, "t w r b", "y0 y1", hidden_size=3, direction="bidirectional"), node("Squeeze", "y1", "y")],
            [("x", F, [1, "s", 2])], [("y", F, None)],
            [weights("w", 2, gates * 3, 2), weights("r", 2, gates * 3, 3), weights("b", 2, gates * 6)],
        )  # fmt: skip


def quantized():
    s, z, zi = const("s", np.float32(0.05)), const("z", np.uint8(128)), const("zi", np.int8(0))
    yield "qdq", model(
        [
            node("QuantizeLinear", "x s z", "xq"), node("DequantizeLinear", "xq s z", "xd"), node("DequantizeLinear", "wq s zi", "wd"),
            node("Conv", "xd wd", "c", pads=[1, 1, 1, 1]), node("QuantizeLinear", "c s z", "cq"), node("DequantizeLinear", "cq s z", "cd"),
            node("Add", "cd cd", "a"), node("QuantizeLinear", "a s z", "aq"), node("DequantizeLinear", "aq s z", "y"),
        ],
        [("x", F, [1, 4, 5, 5])], [("y", F, None)], [s, z, zi, weights("wq", 8, 4, 3, 3, dtype=np.int8)],
    )  # fmt: skip
    yield "dynamic", model(
        [
            node("DynamicQuantizeLinear", "x", "q sx zx"), node("MatMulInteger", "q w zx zw", "i"), node("Cast", "i", "f", to=F),
            node("Mul", "sx sw", "sc"), node("Mul", "f sc", "m"), node("Add", "m b", "y"),
        ],
        [("x", F, ["n", 8])], [("y", F, None)],
        [weights("w", 8, 6, dtype=np.int8), const("zw", np.int8(0)), const("sw", np.float32(0.02)), weights("b", 6)],
    )  # fmt: skip
    yield "fold", model(
        [node("MatMul", "a a", "b"), node("Transpose", "b", "c", perm=[1, 0]), node("Gemm", "x c d", "e"), node("Relu", "e", "y"),
         node("Shape", "x", "sh"), node("Gather", "sh zero", "g"), node("Unsqueeze", "g zero1", "u"), node("ConstantOfShape", "u", "z")],
        [("x", F, ["n", 4])], [("y", F, None), ("z", F, None)],
        [weights("a", 4, 4), weights("d", 4), const("zero", np.int64(0)), const("zero1", np.int64([0]))],
    )  # fmt: skip


def body(name, nodes, inputs, outputs, constants=()):
    return h.make_graph(
        nodes, name, [h.make_tensor_value_info(*i) for i in inputs], [h.make_tensor_value_info(*o) for o in outputs], list(constants)
    )


def control():
    loop = body(
        "loop", [node("Add", "v x", "v1"), node("Identity", "v1", "item"), node("Less", "i most", "go")],
        [("i", I64, []), ("c", B, []), ("v", F, None)], [("go", B, []), ("v1", F, None), ("item", F, None)], [const("most", np.int64(3))],
    )  # fmt: skip
    yes = body("yes", [node("Mul", "last x", "o")], [], [("o", F, None)])
    no = body("no", [node("Neg", "x", "o")], [], [("o", F, None)])
    yield "loop_if", model(
        [node("Loop", "trips true x", "last all", body=loop), node("ReduceMax", "x", "m", keepdims=0), node("Greater", "m zero", "c"),
         node("If", "c", "y", then_branch=yes, else_branch=no)],
        [("x", F, ["n"])], [("y", F, None), ("all", F, None)], [const("trips", np.int64(5)), const("true", np.bool_(True)), const("zero", np.float32(0))],
    )  # fmt: skip
    scan = body("scan", [node("Add", "s e", "s1"), node("Mul", "s1 e", "o")], [("s", F, [2]), ("e", F, [2])], [("s1", F, [2]), ("o", F, [2])])
    yield "scan", model([node("Scan", "start x", "y all", body=scan, num_scan_inputs=1)], [("x", F, ["n", 2])], [("y", F, None), ("all", F, None)], [weights("start", 2)])
    grow = body(
        "grow", [node("SequenceInsert", "q e", "q1"), node("Identity", "c", "c1")],
        [("i", I64, []), ("c", B, [])], [("c1", B, [])],
    )  # fmt: skip
    kind = h.make_sequence_type_proto(h.make_tensor_type_proto(F, None))
    grow.input.append(h.make_value_info("q", kind))
    grow.output.append(h.make_value_info("q1", kind))
    item = body("item", [node("Exp", "e", "o")], [("e", F, None)], [("o", F, None)])
    yield "sequences", model(
        [node("SplitToSequence", "x", "parts", axis=0), node("SequenceMap", "parts", "mapped", body=item), node("SequenceEmpty", "", "empty"),
         node("SequenceAt", "mapped zero", "e"), node("Loop", "three true empty", "grown", body=grow), node("ConcatFromSequence", "grown", "y", axis=0),
         node("Optional", "x", "o"), node("OptionalHasElement", "o", "z")],
        [("x", F, [3, 2])], [("y", F, None), ("z", B, None)], [const("zero", np.int64(0)), const("three", np.int64(3)), const("true", np.bool_(True))],
    )  # fmt: skip
    opsets = [h.make_opsetid("", 21), h.make_opsetid("own", 1)]
    inner = h.make_function("own", "Half", ["x"], ["y"], [node("Constant", "", "c", value_float=0.5), node("Mul", "x c", "y")], opsets)
    outer = h.make_function("own", "Twice", ["x"], ["y"], [node("Half", "x", "t", domain="own"), node("Half", "t", "u", domain="own"), node("LeakyRelu", "u", "y")], opsets)
    yield "functions", model([node("Twice", "x", "a", domain="own"), node("Half", "a", "y", domain="own")], [("x", F, ["n"])], [("y", F, None)], functions=[inner, outer], domains=[("own", 1)])


def text_and_trees():
    yield "strings", model(
        [node("StringNormalizer", "x", "a", case_change_action="UPPER"), node("StringConcat", "a suffix", "b"),
         node("StringSplit", "b", "y n", delimiter="A"), node("RegexFullMatch", "x", "m", pattern="[a-z]+")],
        [("x", S, ["n"])], [("y", S, None), ("n", I64, None), ("m", B, None)], [nh.from_array(np.array(["-end"], object), "suffix")],
    )  # fmt: skip
    yield "encoders", model(
        [node("LabelEncoder", "x", "k", ML, keys_strings=["a", "b"], values_floats=[1.0, 2.0], default_float=-1.0), node("Reshape", "k col", "c"),
         node("OneHotEncoder", "x", "h", ML, cats_strings=["a", "b", ""]), node("Scaler", "c", "sc", ML, offset=[0.5], scale=[2.0]),
         node("TfIdfVectorizer", "x", "t", mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0, ngram_counts=[0], ngram_indexes=[0, 1], pool_strings=["a", "b"]),
         node("FeatureVectorizer", "sc sc", "y", ML, inputdimensions=[1, 1])],
        [("x", S, ["n"])], [("y", F, None), ("h", F, None), ("t", F, None)], [const("col", np.int64([-1, 1]))], domains=[(ML, 3)],
    )  # fmt: skip
    tree = dict(
        nodes_falsenodeids=[2, 0, 0] * 3, nodes_featureids=[0, 0, 0, 1, 0, 0, 2, 0, 0], nodes_hitrates=[1.0] * 9, nodes_missing_value_tracks_true=[0] * 9,
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * 3, nodes_nodeids=[0, 1, 2] * 3, nodes_treeids=[0] * 3 + [1] * 3 + [2] * 3,
        nodes_truenodeids=[1, 0, 0] * 3, nodes_values=[0.5, 0.0, 0.0] * 3,
    )  # fmt: skip
    yield "forest", model(
        [node("TreeEnsembleClassifier", "x", "y p", ML, class_ids=[0, 1] * 3, class_nodeids=[1, 2] * 3, class_treeids=[0, 0, 1, 1, 2, 2], class_weights=[0.2, 0.8] * 3,
              classlabels_strings=["no", "yes"], post_transform="NONE", **tree),
         node("ZipMap", "p", "z", ML, classlabels_strings=["no", "yes"])],
        [("x", F, ["n", 3])],
        [("y", S, None), h.make_value_info("z", h.make_sequence_type_proto(h.make_map_type_proto(S, h.make_tensor_type_proto(F, []))))],
        domains=[(ML, 3)],
    )  # fmt: skip
    yield "svm", model(
        [node("SVMClassifier", "x", "y p", ML, classlabels_ints=[0, 1], coefficients=[0.5, -0.5], kernel_params=[0.3, 0.0, 3.0], kernel_type="RBF", post_transform="LOGISTIC",
              rho=[0.1], support_vectors=[1.0, 2.0, 3.0, 4.0], vectors_per_class=[1, 1]),
         node("Normalizer", "x", "z", ML, norm="L2")],
        [("x", F, ["n", 2])], [("y", I64, None), ("z", F, None)], domains=[(ML, 3)],
    )  # fmt: skip


def build():
    out = {}
    for group in vision, language, quantized, control, text_and_trees:
        for name, data in group():
            out[name] = data
    return out
