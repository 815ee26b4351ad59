#!/usr/bin/env python3
"""Writes the seeds of fuzz_onnx: small models and value files that together use every part of the format."""

import importlib
import pathlib
import sys
import warnings

import numpy as np
from onnx import TensorProto, helper, numpy_helper

warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).resolve().parent
MODULES = ("loop", "if_", "scan", "sequence_map", "optionalgetelement", "stringnormalizer", "ai_onnx_ml.label_encoder",
           "ai_onnx_ml.tree_ensemble", "swish")
TYPES = ("FLOAT", "DOUBLE", "INT64", "UINT32", "INT8", "BOOL", "COMPLEX64", "FLOAT16", "INT4", "UINT2", "FLOAT6E2M3")


def encodings():
    tensors = []
    for name in TYPES:
        kind = getattr(TensorProto, name)
        array = np.ones(3).astype(helper.tensor_dtype_to_np_dtype(kind))
        tensors += [numpy_helper.from_array(array, name), helper.make_tensor(name + "_l", kind, [3], array.tolist())]
    tensors.append(helper.make_tensor("s", TensorProto.STRING, [2], ["a", ""]))
    g = helper.make_graph([], "g", [], [], tensors)
    s = g.sparse_initializer.add(dims=[3, 2])
    s.values.CopyFrom(helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0]))
    s.indices.CopyFrom(helper.make_tensor("i", TensorProto.INT64, [2, 2], [0, 1, 2, 0]))
    return helper.make_model(g)


def functions():
    body = helper.make_node("Selu", ["x"], ["y"])
    body.attribute.add(name="alpha", ref_attr_name="a", type=1)
    f = helper.make_function("local", "F", ["x"], ["y"], [body], [helper.make_opsetid("", 21)], ["a"],
                             [helper.make_attribute("b", 1.5)])
    attrs = {"ints": [1, 2], "strings": ["a"], "floats": [0.5], "t": helper.make_tensor("t", 1, [1], [1.0]),
             "type": helper.make_map_type_proto(8, helper.make_tensor_type_proto(1, ["N"]))}
    g = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="local", **attrs)], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", None, 3])], [])
    return helper.make_model(g, functions=[f])


def main():
    from onnx.backend.test.case import node
    folder = HERE / "seeds" / "onnx"
    folder.mkdir(parents=True, exist_ok=True)
    for make in (encodings, functions):
        (folder / f"{make.__name__}.onnx").write_bytes(make().SerializeToString())
    for name in MODULES:
        first = len(node._NodeTestCases)
        importlib.import_module(f"onnx.backend.test.case.node.{name}")
        for case in node._NodeTestCases[first:first + 3]:
            (folder / f"{case.name}.onnx").write_bytes(case.model.SerializeToString())
    arrays = [np.arange(3, dtype=np.float32), np.ones(2, np.float32)]
    (folder / "tensor.pb").write_bytes(numpy_helper.from_array(arrays[0]).SerializeToString())
    (folder / "sequence.pb").write_bytes(numpy_helper.from_list(arrays).SerializeToString())
    (folder / "map.pb").write_bytes(numpy_helper.from_dict({1: np.float32(2), 3: np.float32(4)}).SerializeToString())
    (folder / "optional.pb").write_bytes(numpy_helper.from_optional(arrays).SerializeToString())


if __name__ == "__main__":
    sys.exit(main())
