"""A record's answer never depends on the records that came with it: in one request, from other clients, or alone."""

import concurrent.futures
import json

import numpy as np
import pytest
from serve_helper import Server

onnx = pytest.importorskip("onnx")
from onnx import TensorProto as T  # noqa: E402
from onnx import helper  # noqa: E402


def write(path, nodes, x, y):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", T.FLOAT, x)],
                              [helper.make_tensor_value_info("y", T.FLOAT, y)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return str(path)


def softmax(path, axis, x=("n", 2)):
    return write(path, [helper.make_node("Softmax", ["x"], ["y"], axis=axis)], list(x), list(x))


def predict(s, name, x):
    status, _, raw = s.request(f"/v1/models/{name}:predict", {"instances": [{"x": v} for v in x]})
    assert status == 200, raw
    return [p["y"] if isinstance(p, dict) else p for p in json.loads(raw)["predictions"]]


def test_records_of_one_request_keep_apart(churon, tmp_path):
    with Server(churon, softmax(tmp_path / "over.onnx", 0)) as s:
        alone = [predict(s, "over", [v])[0] for v in ([1, 2], [3, 1])]
        assert alone == [[1, 1], [1, 1]]
        assert predict(s, "over", [[1, 2], [3, 1]]) == alone
        tensor = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 1]}]}
        status, _, raw = s.request("/v2/models/over/infer", tensor)  # a client's own tensor stays as it is
        got = np.array(json.loads(raw)["outputs"][0]["data"])
        assert status == 200 and got == pytest.approx([0.119203, 0.731059, 0.880797, 0.268941], abs=1e-5)


def test_records_of_many_clients_keep_apart(churon, tmp_path):
    with Server(churon, softmax(tmp_path / "over.onnx", 0), "--threads", "1") as s:
        predict(s, "over", [[0, 0]])
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(lambda i: predict(s, "over", [[i, -i]]), range(600)))
        assert all(a == [[[1, 1]]] or a == [[1, 1]] for a in answers)


def test_a_manifest_of_a_graph_that_mixes(churon, tmp_path):
    folder = tmp_path / "bundle"
    folder.mkdir()
    softmax(folder / "over.onnx", 0)
    (folder / "bundle.yaml").write_text(
        "churon: 1\nname: over\nversion: 1\ntask: graph\nmodel: {file: over.onnx}\n"
        "inputs:\n  x: {type: tensor, dtype: float32, shape: [2]}\n")
    with Server(churon, str(folder)) as s:
        assert predict(s, "over", [[1, 2], [3, 1]]) == [[1, 1], [1, 1]]


def test_a_vector_is_one_record(churon, tmp_path):
    with Server(churon, softmax(tmp_path / "vector.onnx", -1, ("n",))) as s:
        a, b = predict(s, "vector", [[1, 2, 3], [1, 1]])
        assert a == pytest.approx([0.0900306, 0.244728, 0.665241], abs=1e-5) and b == pytest.approx([0.5, 0.5])


def test_a_decision_over_all_records(churon, tmp_path):
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["a"])], "t", [], [helper.make_tensor_value_info("a", T.FLOAT, ["n", 2])])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "e", [],
                              [helper.make_tensor_value_info("b", T.FLOAT, ["n", 2])])
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Cast", ["s"], ["c"], to=T.BOOL),
             helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    with Server(churon, write(tmp_path / "if.onnx", nodes, ["n", 2], ["n", 2])) as s:
        record = {"x": [[1, 2]]}
        status, _, raw = s.request("/v1/models/if:predict", {"instances": [record, {"x": [[-1, 1]]}]})
        if status != 200:  # records have their row alone
            status, _, raw = s.request("/v1/models/if:predict", {"instances": [{"x": [1, 2]}, {"x": [-1, 1]}]})
        assert status == 200, raw
        answers = [np.array(p["y"] if isinstance(p, dict) else p).ravel().tolist() for p in json.loads(raw)["predictions"]]
        assert answers == [[-1, -2], [-1, 1]]


def test_what_keeps_apart_still_runs_together(churon, tmp_path):
    rows = softmax(tmp_path / "rows.onnx", 1)
    with Server(churon, rows) as s:
        both = predict(s, "rows", [[1, 2], [3, 1]])
        assert both == [predict(s, "rows", [v])[0] for v in ([1, 2], [3, 1])]
        assert both[0] == pytest.approx([0.268941, 0.731059], abs=1e-5)


def test_an_answer_too_large_for_json_is_refused_before_it_is_written(churon, tmp_path):
    scalar = [helper.make_tensor_value_info(n, T.INT64, []) for n in "abs"]
    graph = helper.make_graph([helper.make_node("Range", ["a", "b", "s"], ["y"])], "g", scalar,
                              [helper.make_tensor_value_info("y", T.INT64, ["n"])])
    path = tmp_path / "range.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    with Server(churon, str(path)) as s:
        def inputs(end):
            return [{"name": n, "datatype": "INT64", "shape": [], "data": [v]} for n, v in zip("abs", (0, end, 1))]
        many, few = (1 << 24) + 1, 1000
        message = "output 'y': expected at most 16777216 elements in JSON, got 16777217"
        status, _, raw = s.request("/v2/models/range/infer", {"inputs": inputs(many)})
        assert status == 400 and message in json.loads(raw)["error"]
        status, _, raw = s.request("/v1/models/range:predict", {"instances": [{"a": 0, "b": many, "s": 1}]})
        assert status == 400 and message in json.loads(raw)["error"]
        binary = {"inputs": inputs(many), "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}
        status, _, raw = s.request("/v2/models/range/infer", binary)
        assert status == 200 and len(raw) > many * 8
        status, _, raw = s.request("/v2/models/range/infer", {"inputs": inputs(few)})
        assert status == 200 and json.loads(raw)["outputs"][0]["data"] == list(range(few))
