"""Graphs (ONNX) through the program: run, inspect, bench and verify."""

import json
import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def run(churon, *args, ok=0, text=False, stdin=None):
    p = subprocess.run([churon, *map(str, args)], capture_output=True, text=True, input=stdin, timeout=60)
    assert p.returncode == ok, p.stderr
    if ok:
        assert p.stderr.startswith("churon: error: ") and p.stderr.count("\n") == 1
        return p.stderr
    return p.stdout if text else json.loads(p.stdout)


def save(path, nodes, inputs, outputs, initializers=(), opset=17, **more):
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **more)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """Y = relu(X W + B), Z = shape(X)."""
    w = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "W")
    b = numpy_helper.from_array(np.array([1, -1], dtype=np.float32), "B")
    nodes = [
        helper.make_node("MatMul", ["X", "W"], ["t"]),
        helper.make_node("Add", ["t", "B"], ["u"]),
        helper.make_node("Relu", ["u"], ["Y"]),
        helper.make_node("Shape", ["X"], ["Z"]),
    ]
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", 3])
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)
    z = helper.make_tensor_value_info("Z", TensorProto.INT64, None)
    return save(tmp_path_factory.mktemp("graph") / "linear.onnx", nodes, [x], [y, z], [w, b])


def test_a_record_from_the_command_line(churon, linear):
    answer = run(churon, "run", linear, "--record", '{"X": [[1, 2, 3]]}', "--json")
    assert answer["outputs"] == {"Y": [[17, 21]], "Z": [1, 3]}
    assert answer["provenance"]["version"] and answer["timing"]["records"] == 1
    text = run(churon, "run", linear, "--record", '{"X": [[1, 2, 3]]}', text=True)
    assert text == "Y: float32 [1, 2] [[17,21]]\nZ: int64 [2] [1,3]\n"


def test_every_form_of_a_file(churon, linear, tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    want = {"Y": [[11, 12], [29, 39]], "Z": [2, 3]}
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "f.npy", np.asfortranarray(x))
    np.save(tmp_path / "big.npy", x.astype(">f4"))
    (tmp_path / "x.json").write_text(json.dumps({"X": x.tolist()}))
    (tmp_path / "x.csv").write_text('a,b,c\n0,1,2\n"3",4,5\n')
    for name in ("x.npy", "f.npy", "big.npy", "x.json", "x.csv"):
        assert run(churon, "run", linear, "-i", tmp_path / name, "--json")["outputs"] == want, name
    assert run(churon, "run", linear, "--input", f"X={tmp_path}/x.npy", "--json")["outputs"] == want
    assert run(churon, "run", linear, "-i", "-", "--json", stdin=json.dumps({"X": x.tolist()}))["outputs"] == want
    # {"file": …} is relative to the file that says it
    (tmp_path / "x.jsonl").write_text('{"X": {"file": "x.npy"}}\n\n{"X": [[1, 2, 3]]}\n')
    answers = run(churon, "run", linear, "-i", tmp_path / "x.jsonl", "--json")["outputs"]
    assert answers == [want, {"Y": [[17, 21]], "Z": [1, 3]}]


def test_outputs_as_files(churon, linear, tmp_path):
    answer = run(churon, "run", linear, "--record", '{"X": [[1, 2, 3]]}', "--output-dir", tmp_path / "out", "--json")
    y = np.load(answer["outputs"]["Y"]["file"])
    assert y.dtype == np.float32 and y.tolist() == [[17, 21]]
    assert np.load(tmp_path / "out" / "Z.npy").tolist() == [1, 3]


@pytest.mark.parametrize(
    "record, part",
    [
        ('{"X": [[1, 2]]}', "input 'X': expected dimension 1 to be 3, got 2"),
        ('{"x": [[1, 2, 3]]}', "expected inputs X, got 'x'"),
        ("{}", "expected input 'X', got none"),
        ('{"X": [[1, "a", 3]]}', "input 'X': element 1: expected a number"),
        ('{"X": [[1, 2, 3], [4, 5]]}', "lists of the same length"),
        ('{"X": [1, 2, 3]}', "input 'X': expected rank 2, got 1"),
        ("{", "expected JSON"),
    ],
)
def test_wrong_records_are_refused(churon, linear, record, part):
    assert part in run(churon, "run", linear, "--record", record, ok=2)


def test_strings_numbers_and_their_ranges(churon, tmp_path):
    ports = [helper.make_tensor_value_info(n, t, None) for n, t in (("s", TensorProto.STRING), ("i", TensorProto.INT8))]
    out = [helper.make_tensor_value_info(n, t, None) for n, t in (("t", TensorProto.STRING), ("j", TensorProto.INT8))]
    nodes = [helper.make_node("Identity", ["s"], ["t"]), helper.make_node("Identity", ["i"], ["j"])]
    model = save(tmp_path / "m.onnx", nodes, ports, out)
    record = {"s": ["ä", "", "x\n"], "i": [-128, 127]}
    answer = run(churon, "run", model, "--record", json.dumps(record), "--json")
    assert answer["outputs"] == {"t": record["s"], "j": record["i"]}
    assert "expected -128 to 127, got 128" in run(churon, "run", model, "--record", '{"s": [], "i": [128]}', ok=2)
    assert "expected an integer" in run(churon, "run", model, "--record", '{"s": [], "i": [1.5]}', ok=2)


def test_inspect(churon, linear):
    told = run(churon, "inspect", linear, "--json")
    assert told["runs"] and told["why_not"] is None
    assert told["operators"] == {"Add": 1, "MatMul": 1, "Relu": 1, "Shape": 1}
    assert told["inputs"] == [{"name": "X", "dtype": "float32", "shape": ["N", 3]}]
    assert told["outputs"] == [
        {"name": "Y", "dtype": "float32", "shape": ["N", 2]},
        {"name": "Z", "dtype": "int64", "shape": [2]},
    ]
    assert told["opset"] == 17 and told["parameters"] == 8 and told["weights_bytes"] == 32
    assert told["types"] == {"float32": 2} and told["memory"]["weights"] == (3 + 1) * 16 * 4, "packed: columns in groups of 16"


def test_what_cannot_run_is_still_inspected(churon, tmp_path):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    nodes = [helper.make_node("Frobnicate", ["x"], ["a"], name="first"), helper.make_node("Frobnicate", ["a"], ["y"])]
    model = save(tmp_path / "m.onnx", nodes, [x], [y])
    told = run(churon, "inspect", model, "--json")
    assert not told["runs"] and "Frobnicate (ai.onnx 17) at 'first', 'y'" in told["why_not"]
    assert "Frobnicate" in run(churon, "run", model, "--record", '{"x": [1]}', ok=1)


def test_bench(churon, linear):
    row = run(churon, "bench", linear, "--batch", 4, "--reps", 20, "--threads", 1, "--json")["rows"][0]
    assert row["runs"] == 20 and 0 < row["ms_median"] <= row["ms_p99"]
    assert row["gflop"] == pytest.approx(2 * 4 * 3 * 2 / 1e9)
    assert {n["op"] for n in row["slowest"]} <= {"Product", "Shape"}


def test_verify_of_a_case(churon, linear, tmp_path):
    case = tmp_path / "case"
    data = case / "test_data_set_0"
    data.mkdir(parents=True)
    (case / "model.onnx").write_bytes(linear.read_bytes())
    x = np.array([[1, 2, 3]], dtype=np.float32)
    answers = [np.array([[17, 21]], dtype=np.float32), np.array([1, 3], dtype=np.int64)]
    (data / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    for i, a in enumerate(answers):
        (data / f"output_{i}.pb").write_bytes(numpy_helper.from_array(a).SerializeToString())
    assert run(churon, "verify", "--data", case, "--json")["passed"] == 1
    assert run(churon, "verify", "--onnx-suite", tmp_path, "--json")["cases"][0]["ok"]
    answers[0][0, 1] = 21.1
    (data / "output_0.pb").write_bytes(numpy_helper.from_array(answers[0]).SerializeToString())
    p = subprocess.run([churon, "verify", "--data", case, "--json"], capture_output=True, text=True, timeout=60)
    told = json.loads(p.stdout)
    assert p.returncode == 1 and told["failed"] == 1
    assert told["cases"][0]["why"] == "Y: element 1 of [1, 2] float32: expected 21.1000004, got 21"
    assert run(churon, "verify", "--data", case, "--rtol", "0.01", "--json")["passed"] == 1


def test_a_model_is_told_by_its_content(churon, linear, tmp_path):
    copy = tmp_path / "model.bin"
    copy.write_bytes(linear.read_bytes())
    assert run(churon, "run", copy, "--record", '{"X": [[1, 2, 3]]}', "--json")["outputs"]["Z"] == [1, 3]


def test_two_ways_of_computing(churon, linear, tmp_path):
    told = run(churon, "verify", linear, "--passes", "--nodes", "--json")
    names = [p["name"] for p in run(churon, "inspect", "--passes", linear, "--json")["passes"]]
    assert told["same"] and [p["name"] for p in told["passes"]] == names and len(names) > 3
    assert [o["name"] for o in told["outputs"]] == ["Y", "Z"]
    model = onnx.load(linear)
    bias = next(t for t in model.graph.initializer if t.name == "B")
    bias.CopyFrom(numpy_helper.from_array(np.array([1, -1.5], dtype=np.float32), "B"))
    onnx.save(model, tmp_path / "other.onnx")
    p = subprocess.run([churon, "verify", linear, "--against", tmp_path / "other.onnx"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1
    lines = p.stdout.splitlines()
    assert lines[0].startswith("DIFFERENT Y: ") and lines[1].startswith("same      Z")
    assert "(Product)" in lines[2], "the first node that differs has the bias in it"
