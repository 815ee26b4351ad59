#!/usr/bin/env python3
"""Writes the seeds of fuzz_graph: the smallest node case of every operator that the cases use, and the small models of
tests/oracle/small_graphs.py, which lead through passes, control flow and functions."""

import pathlib
import sys
import warnings

warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).resolve().parent
MOST_BYTES = 1500


def main():
    from onnx.backend.test import loader

    folder = HERE / "seeds" / "graph"
    folder.mkdir(parents=True, exist_ok=True)
    smallest = {}
    for case in loader.load_model_tests(kind="node"):
        if case.model is None or len(case.model.graph.node) > 3:
            continue
        data = case.model.SerializeToString()
        op = case.model.graph.node[0].op_type
        if len(data) < min(MOST_BYTES, len(smallest.get(op, b" " * MOST_BYTES))):
            smallest[op] = data
    for op, data in smallest.items():
        (folder / f"{op}.onnx").write_bytes(data)
    sys.path.insert(0, str(HERE.parent / "oracle"))
    import small_graphs

    for name, data in small_graphs.build().items():
        (folder / f"small_{name}.onnx").write_bytes(data)


if __name__ == "__main__":
    main()
