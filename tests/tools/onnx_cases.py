"""The ONNX project's own test cases as folders that `churon verify --onnx-suite` reads.

Node cases are built in memory by the `onnx` package and written out; the others lie in the package as they are.
"""

import pathlib
import warnings

import onnx
from onnx import numpy_helper

OTHERS = ("simple", "pytorch-converted", "pytorch-operator")


def as_proto(value, kind):
    """The message that a value file holds, as the port's type says."""
    if hasattr(value, "SerializeToString"):
        return value
    if kind == "sequence_type":
        return numpy_helper.from_list(value)
    if kind == "optional_type":
        return numpy_helper.from_optional(value)
    return numpy_helper.from_array(value)


def write_case(case, folder):
    ports = {"input": case.model.graph.input, "output": case.model.graph.output}
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for i, values in enumerate(case.data_sets):
        data = folder / f"test_data_set_{i}"
        data.mkdir()
        for what, given in zip(("input", "output"), values):
            for k, value in enumerate(given):
                kind = ports[what][k].type.WhichOneof("value")
                (data / f"{what}_{k}.pb").write_bytes(as_proto(value, kind).SerializeToString())


def write_node_cases(folder):
    """Writes every node case that has a model and data below `folder`; returns their number."""
    from onnx.backend.test import loader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [c for c in loader.load_model_tests(kind="node") if c.model is not None and c.data_sets]
        for case in cases:
            write_case(case, pathlib.Path(folder) / case.name)
    return len(cases)


def packaged_cases(name):
    """The folder of the package's cases of this kind, one of OTHERS."""
    return pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / name
