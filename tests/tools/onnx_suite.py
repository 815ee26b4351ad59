"""Single-node ONNX models with inputs and expected outputs, in the layout of the ONNX backend tests, so that
`churon verify --onnx-suite` runs them all in one process."""

import json
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

DTYPES = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
    "string": np.dtype(object),
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
    "float8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "float8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "float4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "float6e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "float6e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "int4": np.dtype(ml_dtypes.int4),
    "uint4": np.dtype(ml_dtypes.uint4),
    "int2": np.dtype(ml_dtypes.int2),
    "uint2": np.dtype(ml_dtypes.uint2),
}
ELEM = {
    "float": T.FLOAT, "double": T.DOUBLE, "float16": T.FLOAT16, "bfloat16": T.BFLOAT16, "int8": T.INT8,
    "int16": T.INT16, "int32": T.INT32, "int64": T.INT64, "uint8": T.UINT8, "uint16": T.UINT16,
    "uint32": T.UINT32, "uint64": T.UINT64, "bool": T.BOOL, "string": T.STRING, "complex64": T.COMPLEX64,
    "complex128": T.COMPLEX128, "float8e4m3fn": T.FLOAT8E4M3FN, "float8e4m3fnuz": T.FLOAT8E4M3FNUZ,
    "float8e5m2": T.FLOAT8E5M2, "float8e5m2fnuz": T.FLOAT8E5M2FNUZ, "float8e8m0": T.FLOAT8E8M0,
    "float4e2m1": T.FLOAT4E2M1, "int4": T.INT4, "uint4": T.UINT4, "int2": T.INT2, "uint2": T.UINT2,
    "float6e2m3": getattr(T, "FLOAT6E2M3", 0), "float6e3m2": getattr(T, "FLOAT6E3M2", 0),
}  # fmt: skip
NAME_OF = {d: n for n, d in DTYPES.items()}
FLOATS = ("float", "double", "float16", "bfloat16")


def as_object(a):
    a = np.asarray(a)
    return a.astype(object) if a.dtype.kind in "US" else a


def values(kind, shape, rng):
    """Numbers that every type holds exactly where it can: small, with signs and halves."""
    n = int(np.prod(shape, dtype=np.int64))
    dtype = DTYPES[kind]
    if kind == "string":
        words = ["", "a", "of", "tensor", "한국어", "A", "zebra"]
        return np.array([words[i] for i in rng.integers(0, len(words), n)], dtype=object).reshape(shape)
    if kind == "bool":
        return (rng.random(n) < 0.5).reshape(shape)
    if kind.startswith("complex"):
        return (rng.integers(-8, 8, n) + 1j * rng.integers(-8, 8, n)).astype(dtype).reshape(shape)
    if kind == "float8e8m0":
        return np.exp2(rng.integers(-6, 6, n)).astype(np.float32).astype(dtype).reshape(shape)
    if kind == "int2":
        return rng.integers(-2, 2, n).astype(np.int8).astype(dtype).reshape(shape)
    if kind == "uint2":
        return rng.integers(0, 4, n).astype(np.int8).astype(dtype).reshape(shape)
    if kind in ("uint4", "int4"):
        low = 0 if kind == "uint4" else -8
        return rng.integers(low, low + 16, n).astype(np.int8).astype(dtype).reshape(shape)
    if dtype.kind == "u":
        return rng.integers(0, 100, n).astype(dtype).reshape(shape)
    if dtype.kind == "i":
        return rng.integers(-50, 50, n).astype(dtype).reshape(shape)
    return (rng.integers(-24, 24, n) / 8).astype(np.float32).astype(dtype).reshape(shape)


def proto(array, name):
    array = as_object(array)
    if array.dtype == object:
        t = helper.make_tensor(name, T.STRING, array.shape, [str(s).encode() for s in array.ravel()])
        return t
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


class Suite:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.names = []

    def add(self, name, op, opset, inputs, outputs, constant=(), **attributes):
        """inputs: arrays or None (absent); outputs: arrays or None (not asked for). Inputs whose numbers are in
        `constant` are initializers."""
        assert name not in self.names, name
        self.names.append(name)
        in_names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
        out_names = ["" if a is None else f"y{i}" for i, a in enumerate(outputs)]
        protos = [None if a is None else proto(a, f"x{i}") for i, a in enumerate(inputs)]
        given = [(i, p) for i, p in enumerate(protos) if p is not None and i not in constant]
        wanted = [(i, proto(a, f"y{i}")) for i, a in enumerate(outputs) if a is not None]
        node = helper.make_node(op, in_names, out_names, **attributes)
        graph = helper.make_graph(
            [node],
            name,
            [helper.make_tensor_value_info(p.name, p.data_type, list(p.dims)) for _, p in given],
            [helper.make_tensor_value_info(p.name, p.data_type, None) for _, p in wanted],
            [protos[i] for i in constant],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        model.ir_version = 10
        data = self.folder / name / "test_data_set_0"
        data.mkdir(parents=True)
        (self.folder / name / "model.onnx").write_bytes(model.SerializeToString())
        for k, (_, p) in enumerate(given):
            (data / f"input_{k}.pb").write_bytes(p.SerializeToString())
        for k, (_, p) in enumerate(wanted):
            (data / f"output_{k}.pb").write_bytes(p.SerializeToString())

    def run(self, churon, *options):
        done = subprocess.run(
            [churon, "verify", "--onnx-suite", str(self.folder), "--json", *options],
            capture_output=True, text=True, timeout=170, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        cases = {c["name"]: c for c in json.loads(done.stdout)["cases"]}
        assert set(cases) == set(self.names)
        return [f"{n}: {c.get('why')}" for n, c in sorted(cases.items()) if not c["ok"]]


def schemas(op):
    """Every version of an operator, oldest first."""
    found = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == ""]
    return sorted((s for s in found if not s.deprecated), key=lambda s: s.since_version)


def types(schema, letter="T"):
    """Names of the tensor types that a type variable allows."""
    for c in schema.type_constraints:
        if c.type_param_str == letter:
            return [t[7:-1] for t in c.allowed_type_strs if t.startswith("tensor(") and t[7:-1] in DTYPES]
    raise KeyError(letter)
