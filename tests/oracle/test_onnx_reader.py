"""The ONNX reader against the onnx package: every node case of its own test-suite, written out, read by both."""

import json
import pathlib
import subprocess
import warnings
import zlib

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

warnings.filterwarnings("ignore")


def dump(churon, path, *files):
    tool = pathlib.Path(churon).parent / "tools" / "onnx_dump"
    done = subprocess.run([tool, path, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---- what the package read, in the tool's form ------------------------------------------------------------------


def elements(t):
    if t.data_type == TensorProto.STRING:
        return {"strings": [s.hex() for s in t.string_data]}
    array = numpy_helper.to_array(t)
    if array.dtype.name in ("int4", "int2"):
        array = array.astype(np.int8)
    elif array.dtype.name in ("uint4", "uint2"):
        array = array.astype(np.uint8)
    data = array.tobytes()
    return {"hex": data.hex()} if len(data) <= 4096 else {"crc": zlib.crc32(data)}


def contents(t):
    return {"type": t.data_type, "dims": list(t.dims), **elements(t)}


def tensor(t):
    return {"name": t.name, **contents(t)}


def sparse(s):
    return {"values": tensor(s.values), "indices": tensor(s.indices), "dims": list(s.dims)}


def shape(s):
    return [d.dim_param or -1 if d.HasField("dim_param") else d.dim_value if d.HasField("dim_value") else -1 for d in s.dim]


def value_type(t):
    kind = t.WhichOneof("value")
    if not kind:
        return {"kind": "unknown", "type": 0}
    v = getattr(t, kind)
    name = {"tensor_type": "tensor", "sparse_tensor_type": "sparse", "opaque_type": "opaque"}.get(kind, kind[:-5])
    out = {"kind": name, "type": 0}
    if name in ("tensor", "sparse"):
        out["type"] = v.elem_type
        if v.HasField("shape"):
            out["shape"] = shape(v.shape)
    elif name == "map":
        out |= {"type": v.key_type, "of": value_type(v.value_type)}
    elif name in ("sequence", "optional"):
        out["of"] = value_type(v.elem_type)
    return out


def infos(values):
    return [{"name": v.name, "type": value_type(v.type)} for v in values]


ITEMS = {
    AttributeProto.FLOAT: lambda a: [a.f], AttributeProto.INT: lambda a: [a.i], AttributeProto.STRING: lambda a: [a.s.hex()],
    AttributeProto.FLOATS: lambda a: list(a.floats), AttributeProto.INTS: lambda a: list(a.ints),
    AttributeProto.STRINGS: lambda a: [s.hex() for s in a.strings], AttributeProto.TENSOR: lambda a: [tensor(a.t)],
    AttributeProto.TENSORS: lambda a: [tensor(t) for t in a.tensors], AttributeProto.GRAPH: lambda a: [graph(a.g)],
    AttributeProto.GRAPHS: lambda a: [graph(g) for g in a.graphs],
    AttributeProto.SPARSE_TENSOR: lambda a: [sparse(a.sparse_tensor)],
    AttributeProto.SPARSE_TENSORS: lambda a: [sparse(s) for s in a.sparse_tensors],
    AttributeProto.TYPE_PROTO: lambda a: [value_type(a.tp)],
    AttributeProto.TYPE_PROTOS: lambda a: [value_type(t) for t in a.type_protos],
}


def attribute(a):
    if a.ref_attr_name:
        return {"name": a.name, "reference": a.ref_attr_name, "type": a.type, "items": []}
    return {"name": a.name, "type": a.type, "items": ITEMS[a.type](a)}


def domain(name):
    return "" if name == "ai.onnx" else name


def node(n):
    return {
        "op": n.op_type, "domain": domain(n.domain), "name": n.name, "overload": n.overload, "inputs": list(n.input),
        "outputs": list(n.output), "attrs": [attribute(a) for a in n.attribute],
    }


def graph(g):
    return {
        "name": g.name, "nodes": [node(n) for n in g.node], "inputs": infos(g.input), "outputs": infos(g.output),
        "values": infos(g.value_info), "initializers": [tensor(t) for t in g.initializer],
        "sparse": [sparse(s) for s in g.sparse_initializer],
    }


def opsets(imports):
    return [{"domain": domain(o.domain), "version": o.version} for o in imports]


def function(f):
    return {
        "name": f.name, "domain": domain(f.domain), "overload": f.overload, "inputs": list(f.input),
        "outputs": list(f.output), "attributes": list(f.attribute), "defaults": [attribute(a) for a in f.attribute_proto],
        "nodes": [node(n) for n in f.node], "opsets": opsets(f.opset_import),
    }


def model(m):
    return {
        "ir_version": m.ir_version, "model_version": m.model_version, "producer_name": m.producer_name,
        "producer_version": m.producer_version, "domain": m.domain, "opsets": opsets(m.opset_import),
        "metadata": [x for p in m.metadata_props for x in (p.key, p.value)], "graph": graph(m.graph),
        "functions": [function(f) for f in m.functions],
    }


def value(v):
    """A value of a test case: numpy array, list, dict, None, or a proto."""
    if v is None:
        return {"kind": "none", "items": []}
    if isinstance(v, (list, tuple)):
        return {"kind": "sequence", "items": [value(x) for x in v]}
    proto = v if isinstance(v, TensorProto) else numpy_helper.from_array(np.asarray(v))
    return {"kind": "tensor", **contents(proto), "items": []}


# ---- tests ------------------------------------------------------------------------------------------------------


def floats_as_f32(x):
    """JSON has decimal numbers: compare what they are as f32."""
    if isinstance(x, float):
        return float(np.float32(x)) if np.isfinite(x) else None
    if isinstance(x, list):
        return [floats_as_f32(i) for i in x]
    if isinstance(x, dict):
        return {k: floats_as_f32(i) for k, i in x.items()}
    return x


def same(got, want, what):
    assert floats_as_f32(got) == floats_as_f32(want), what


# Modules of the package's node cases that between them use every part of the format.
MODULES = (
    "loop", "if_", "scan", "constant", "conv", "gemm", "castlike", "dequantizelinear", "quantizelinear", "sequenceinsert",
    "sequence_map", "splittosequence", "optionalgetelement", "optionalhaselement", "identity", "stringnormalizer",
    "string_split", "tfidfvectorizer", "ai_onnx_ml.label_encoder", "ai_onnx_ml.tree_ensemble", "isnan", "det", "bitwiseand",
)


@pytest.fixture(scope="module")
def cases():
    import importlib

    from onnx.backend.test.case import node
    found = []
    for name in MODULES:
        importlib.import_module(f"onnx.backend.test.case.node.{name}")
    found += node._NodeTestCases
    return found


def proto_of(v, kind):
    """The file form of a value, and whether it is one of those that the test data have."""
    if kind == "sequence_type":
        return numpy_helper.from_list(v)
    if kind == "optional_type":
        return numpy_helper.from_optional(v)
    return v if isinstance(v, TensorProto) else numpy_helper.from_array(np.asarray(v))


def check_case(churon, case, folder):
    path = folder / "model.onnx"
    onnx.save(case.model, path)
    files, want = [], []
    for what, infos_, values in zip(("input", "output"), (case.model.graph.input, case.model.graph.output),
                                    case.data_sets[0]):
        for i, (info, v) in enumerate(zip(infos_, values)):
            proto = proto_of(v, info.type.WhichOneof("value"))
            file = folder / f"{what}_{i}.pb"
            file.write_bytes(proto.SerializeToString())
            files.append(f"{what}:{i}={file}")
            want.append(value(v))
    got = dump(churon, path, *files)
    same(got.pop("files"), want, case.name)
    same(got, model(case.model), case.name)


def test_node_cases(churon, cases, tmp_path):
    assert len(cases) > 150
    for case in cases:
        if case.model is not None and case.data_sets:
            check_case(churon, case, tmp_path)


TYPED = [
    (TensorProto.FLOAT, np.float32), (TensorProto.DOUBLE, np.float64), (TensorProto.INT32, np.int32),
    (TensorProto.INT64, np.int64), (TensorProto.UINT64, np.uint64), (TensorProto.UINT32, np.uint32),
    (TensorProto.INT8, np.int8), (TensorProto.UINT8, np.uint8), (TensorProto.INT16, np.int16), (TensorProto.UINT16, np.uint16),
    (TensorProto.BOOL, bool), (TensorProto.COMPLEX64, np.complex64), (TensorProto.COMPLEX128, np.complex128),
    (TensorProto.FLOAT16, np.float16), (TensorProto.BFLOAT16, None), (TensorProto.FLOAT8E4M3FN, None),
    (TensorProto.FLOAT8E5M2FNUZ, None), (TensorProto.INT4, None), (TensorProto.UINT4, None), (TensorProto.INT2, None),
    (TensorProto.UINT2, None), (TensorProto.FLOAT4E2M1, None), (TensorProto.FLOAT6E2M3, None), (TensorProto.FLOAT6E3M2, None),
]


def test_every_encoding(churon, tmp_path):
    """Each element type in its typed list and as raw data, of lengths that leave the last byte partly used."""
    rng = np.random.default_rng(7)
    tensors = []
    for data_type, dtype in TYPED:
        dtype = dtype or helper.tensor_dtype_to_np_dtype(data_type)
        for n in (0, 1, 3, 7, 2000):
            array = (rng.integers(0, 2, n) if dtype is bool else rng.integers(-2, 2, n) if "u" != np.dtype(dtype).kind
                     else rng.integers(0, 4, n)).astype(dtype)
            name = f"{data_type}_{n}"
            tensors.append(numpy_helper.from_array(array, name + "_raw"))
            tensors.append(helper.make_tensor(name, data_type, [n], array.tolist() if n else []))
    tensors.append(helper.make_tensor("s", TensorProto.STRING, [2, 1], ["a", "\u00fc"]))
    tensors.append(helper.make_tensor("scalar", TensorProto.FLOAT, [], [2.5]))
    g = helper.make_graph([], "g", [], [], tensors)
    m = helper.make_model(g)
    onnx.save(m, tmp_path / "m.onnx")
    got = dump(churon, tmp_path / "m.onnx")
    got.pop("files")
    same(got, model(m), "encodings")


def test_external_data(churon, tmp_path):
    rng = np.random.default_rng(8)
    arrays = [rng.standard_normal((3, 50)).astype(np.float32), rng.integers(0, 9, 1000), np.zeros(0, np.float32)]
    g = helper.make_graph([], "g", [], [], [numpy_helper.from_array(a, f"w{i}") for i, a in enumerate(arrays)])
    m = helper.make_model(g)
    want = model(m)
    for one_file in (True, False):
        folder = tmp_path / str(one_file)
        folder.mkdir()
        onnx.save(m, folder / "m.onnx", save_as_external_data=True, all_tensors_to_one_file=one_file, location="w.bin",
                  size_threshold=0)
        got = dump(churon, folder / "m.onnx")
        got.pop("files")
        same(got, want, "external")
        m = onnx.load(folder / "m.onnx")


def test_functions_and_references(churon, tmp_path):
    body = helper.make_node("Selu", ["x"], ["y"])
    body.attribute.add(name="alpha", ref_attr_name="a", type=AttributeProto.FLOAT)
    f = helper.make_function("local", "F", ["x"], ["y"], [body], [helper.make_opsetid("", 21)], ["a"],
                             [helper.make_attribute("b", 1.5)])
    g = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="local", a=0.25)], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", None, 3])], [])
    m = helper.make_model(g, functions=[f], opset_imports=[helper.make_opsetid("ai.onnx", 21)])
    helper.set_model_props(m, {"k": "v"})
    onnx.save(m, tmp_path / "m.onnx")
    got = dump(churon, tmp_path / "m.onnx")
    got.pop("files")
    same(got, model(m), "functions")


def test_sparse(churon, tmp_path):
    g = helper.make_graph([], "g", [], [])
    for indices in ([[0, 1], [2, 0]], [1, 4]):
        s = g.sparse_initializer.add()
        s.values.CopyFrom(helper.make_tensor("s", TensorProto.FLOAT, [2], [1.0, 2.0]))
        flat = np.asarray(indices, np.int64)
        s.indices.CopyFrom(helper.make_tensor("i", TensorProto.INT64, flat.shape, flat.ravel()))
        s.dims.extend([3, 2])
    m = helper.make_model(g)
    onnx.save(m, tmp_path / "m.onnx")
    got = dump(churon, tmp_path / "m.onnx")
    got.pop("files")
    same(got, model(m), "sparse")


def test_opens_fast(churon, tmp_path):
    """100,000 nodes well under a second, 200 MB of weights that lie aligned in milliseconds."""
    tool = pathlib.Path(churon).parent / "tools" / "onnx_dump"
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"relu_{i}") for i in range(100_000)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [], [])), tmp_path / "nodes.onnx")
    seconds = float(subprocess.run([tool, "--time", tmp_path / "nodes.onnx"], capture_output=True, text=True).stdout)
    assert seconds < 0.5, seconds
    g = helper.make_graph([], "g", [], [], [numpy_helper.from_array(np.ones(50_000_000, np.float32), "w")])
    onnx.save(helper.make_model(g), tmp_path / "big.onnx", save_as_external_data=True, location="w.bin")
    seconds = float(subprocess.run([tool, "--time", tmp_path / "big.onnx"], capture_output=True, text=True).stdout)
    assert seconds < 0.05, seconds
