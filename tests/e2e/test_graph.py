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
        ('{"X": [[1, 2, 3], 4]}', "input 'X': expected lists of the same depth, got 4 beside a list"),
        ('{"X": [[1, 2, [3]]]}', "input 'X': element 2: expected a number (float32), got a list"),
        ('{"X": [[1, null, 3]]}', "input 'X': element 1: expected a number (float32), got null"),
        ('{"X": [[1, true, 3]]}', "input 'X': element 1: expected a number (float32), got true"),
        ('{"X": [[1, 1e39, 3]]}', "input 'X': element 1: expected a number in the range of float32 (at most 3.40282347e+38), got 1e+39"),
        ('{"X": [[1, 1e999, 3]]}', "expected JSON: real number overflow"),
        ('{"X": [[1, 16777217, 3]]}', "element 1: expected an integer that float32 holds exactly, or a number with a point, got 16777217"),
        ('{"X": {"b64": "AACAPw==", "shape": ["1"]}}', "dimension 0: expected 0 or more, got -1"),
        ('{"X": {"b64": "AACAPw=", "shape": [1]}}', "expected base64, got a character or padding that is none"),
        ('{"X": {"b64": "AACAPw==", "shape": [1], "dtype": "float32"}}', 'expected {"b64": text, "shape": [...]} of numbers, got another object'),
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


def identity(path, dtype, opset=17):
    x, y = (helper.make_tensor_value_info(n, dtype, ["N"]) for n in "xy")
    return save(path, [helper.make_node("Identity", ["x"], ["y"])], [x], [y], opset=opset)


@pytest.mark.parametrize("dtype, good, bad", [
    ("FLOAT16", [65504, -65504, 0.1], [65520, 1e39, 2049]),
    ("BFLOAT16", [3e38, 256], [3.4e38, 257]),
    ("DOUBLE", [1e308, 9007199254740992], [9007199254740993]),
    ("FLOAT8E4M3FN", [448, "NaN"], [480, "Infinity", 17]),
    ("FLOAT8E5M2", [57344, "-Infinity", "NaN"], [65536]),
    ("COMPLEX64", [[1, -2.5]], [[1e39, 0], [1], 1]),
    ("UINT8", [0, 255], [-1, 256, 1.5, "1", True]),
    ("INT4", [-8, 7], [8, -9]),
    ("INT64", [-(2**63), 2**63 - 1], [1.5, None]),
    ("UINT64", [2**63 - 1], [-1]),
    ("BOOL", [True, False], [1, 0, "true"]),
    ("STRING", ["a", ""], [1, None]),
])
def test_every_type_holds_what_it_was_given(churon, tmp_path, dtype, good, bad):
    """As a record, and (numbers of types that NumPy lacks) from .npy."""
    m = identity(tmp_path / "m.onnx", getattr(TensorProto, dtype), 21 if dtype in ("INT4", "FLOAT8E4M3FN", "FLOAT8E5M2") else 17)
    got = run(churon, "run", m, "--record", json.dumps({"x": good}), "--json")["outputs"]["y"]
    assert len(got) == len(good) and all(g == w or abs(g - w) < 0.01 * abs(w) for g, w in zip(got, good)), got
    for b in bad:
        told = run(churon, "run", m, "--record", json.dumps({"x": [good[0], b]}), ok=2)
        assert "input 'x': element 1: expected " in told or "expected lists of the same" in told, (b, told)
    if dtype in ("BFLOAT16", "FLOAT8E4M3FN", "INT4"):
        wide = {"BFLOAT16": np.array([1, 3.4e38], np.float32), "FLOAT8E4M3FN": np.array([1, 1000], np.float32),
                "INT4": np.array([1, 8], np.int8)}[dtype]
        np.save(tmp_path / "x.npy", wide)
        assert "element 1: expected a number that" in run(churon, "run", m, "-i", tmp_path / "x.npy", ok=2)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """c = a + b"""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N"]) for n in "abc"]
    return save(tmp_path_factory.mktemp("graph") / "two.onnx", [helper.make_node("Add", ["a", "b"], ["c"])], ports[:2], ports[2:])


@pytest.mark.parametrize("text, part", [
    ("a,b,z\n1,2,3\n", "column 'z': expected inputs of the model (a, b), got another"),
    ("a\n1\n", "expected a column 'b', got none"),
    ("a,b\n1,\n", "line 2, column 'b': expected a number (float32), or NaN where none is known, got nothing"),
    ("a,b\n1,\"\"\n", "line 2, column 'b': expected a number"),
    ("a,b\n\n1,2\n1,0x10\n", "line 4, column 'b': expected a number (float32), got '0x10'"),
    ("a,b\n1,1e39\n", "line 2, column 'b': expected a number in the range of float32"),
    ("a,b\n1,1e999\n", "line 2, column 'b': expected a number in the range of float32"),
    ("a,b\n1,2,3\n", "line 2: expected 2 cells, got 3"),
    ("a,b\n1,\"2\n", "line 2: expected a cell whose quotes are closed"),
    ("a,a\n1,2\n", "expected each column once, got 'a' again"),
    ("", "expected a header line, got nothing"),
])
def test_tables_are_read_whole_or_not_at_all(churon, two, tmp_path, text, part):
    (tmp_path / "x.csv").write_text(text)
    assert part in run(churon, "run", two, "-i", tmp_path / "x.csv", ok=2)


def test_tables_and_what_stands_beside_them(churon, two, linear, tmp_path):
    (tmp_path / "x.csv").write_text('\ufeffb,a\r\n NaN ,"1"\r\n-inf,2\r\n')
    assert run(churon, "run", two, "-i", tmp_path / "x.csv", "--json")["outputs"] == {"c": ["NaN", "-Infinity"]}
    np.save(tmp_path / "a.npy", np.array([1, 2], np.float32))
    told = run(churon, "run", two, "-i", tmp_path / "x.csv", "--input", f"a={tmp_path}/a.npy", ok=2)
    assert "column 'a': expected the input once, got --input beside it" in told
    told = run(churon, "run", two, "--record", '{"a": [1], "b": [2]}', "--input", f"a={tmp_path}/a.npy", ok=2)
    assert "input 'a': expected it once, got --input and the record" in told
    (tmp_path / "flags.csv").write_text("x\nTrue\nfalse\n1\n0\n")
    flags = identity(tmp_path / "flags.onnx", TensorProto.BOOL)
    assert run(churon, "run", flags, "-i", tmp_path / "flags.csv", "--json")["outputs"] == {"y": [True, False, True, False]}
    (tmp_path / "big.csv").write_text(f"x\n{2**64 - 1}\n")
    big = identity(tmp_path / "big.onnx", TensorProto.UINT64)
    assert run(churon, "run", big, "-i", tmp_path / "big.csv", "--json")["outputs"] == {"y": [2**64 - 1]}
    (tmp_path / "big.csv").write_text(f"x\n{2**64}\n")
    assert f"expected 0 to {2**64 - 1}, got '{2**64}'" in run(churon, "run", big, "-i", tmp_path / "big.csv", ok=2)


@pytest.mark.parametrize("name, text", [("x.csv", "a,b\n"), ("x.json", "[]"), ("x.jsonl", "\n\n")])
def test_no_records_are_said_to_be_none(churon, two, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    p = subprocess.run([churon, "run", two, "-i", tmp_path / name, "--json"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0 and "0 records" in p.stderr and json.loads(p.stdout)["outputs"] in ([], {"c": []})
    p = subprocess.run([churon, "run", two, "-i", tmp_path / name, "--quiet"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0 and not p.stderr


def test_faults_of_lines_say_which(churon, linear, tmp_path):
    (tmp_path / "x.jsonl").write_text('{"X": [[1, 2, 3]]}\n\n{"X": [[1, 2]]}\n')
    assert "x.jsonl:3: input 'X': expected dimension 1" in run(churon, "run", linear, "-i", tmp_path / "x.jsonl", ok=2)
    (tmp_path / "x.jsonl").write_text('{"X": [[1, 2, 3]]}\n{"X": [[1, 2\n')
    assert "x.jsonl:2: line 1: expected JSON" in run(churon, "run", linear, "-i", tmp_path / "x.jsonl", ok=2)
    (tmp_path / "x.jsonl").write_text('[{"X": [[1, 2, 3]]}]\n')
    assert "x.jsonl:1: record: expected an object of inputs, got a list" in run(churon, "run", linear, "-i", tmp_path / "x.jsonl", ok=2)
    told = run(churon, "run", linear, "--record", '[{"X": [[1, 2, 3]]}, {"X": [[1, 2]]}]', ok=2)
    assert "field --record: record 2: input 'X'" in told


def test_files_of_several_records_have_numbers(churon, tmp_path):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N"]) for n in ("a/b", "a:b")]
    nodes = [helper.make_node("Identity", ["x"], ["a/b"]), helper.make_node("Neg", ["x"], ["a:b"])]
    m = save(tmp_path / "m.onnx", nodes, [x], outs)
    one = run(churon, "run", m, "--record", '{"x": [1]}', "--output-dir", tmp_path / "one", "--json")["outputs"]
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == ["a_b.npy", "a_b_1.npy"]
    assert np.load(one["a/b"]["file"]).tolist() == [1] and np.load(one["a:b"]["file"]).tolist() == [-1]
    (tmp_path / "x.jsonl").write_text('{"x": [1]}\n{"x": [2]}\n')
    for source in (["--record", '[{"x": [1]}, {"x": [2]}]'], ["-i", tmp_path / "x.jsonl"]):
        folder = tmp_path / f"several{len(source[1:])}{source[0]}"
        run(churon, "run", m, *source, "--output-dir", folder, "--json")
        assert sorted(p.name for p in folder.iterdir()) == ["0_a_b.npy", "0_a_b_1.npy", "1_a_b.npy", "1_a_b_1.npy"]
        assert np.load(folder / "1_a_b.npy").tolist() == [2]


def test_wrong_options_are_wrong_usage_everywhere(churon, linear, two, tmp_path):
    record = ["--record", '{"X": [[1, 2, 3]]}']
    assert "field --no-pass: expected a pass or 'all', got 'softmx'. Did you mean 'softmax'?" in \
        run(churon, "run", linear, *record, "--no-pass", "softmx", ok=2)
    assert "field --no-pass" in run(churon, "verify", "--onnx-suite", tmp_path, "--no-pass", "x", ok=2)
    for command in (["run", linear, *record], ["inspect", linear], ["verify", linear], ["bench", linear], ["serve", linear]):
        assert "provider: expected cpu" in run(churon, *command, "--provider", "tpu", ok=2), command
    for shape, part in [("X=2x", "got '' as dimension 1"), ("X=" + "9" * 20 + "x3", "got '99999999999999999999' as dimension 0"),
                        ("Q=1", "with the name of an input"), ("X=1x-3", "got '-3' as dimension 1")]:
        for command in ("bench", "verify"):
            assert part in run(churon, command, linear, "--shape", shape, ok=2)
    assert "each input once" in run(churon, "bench", linear, "--shape", "X=1x3", "--shape", "X=2x3", ok=2)
    # a model that does not run is refused (1), whatever the command
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    other = save(tmp_path / "other.onnx", [helper.make_node("Frobnicate", ["x"], ["y"])], [x], [y])
    for command in (["run", other, "--record", '{"x": [1]}'], ["verify", other], ["bench", other], ["serve", two, other],
                    ["verify", two, "--against", other]):
        told = run(churon, *command, ok=1)
        assert "Frobnicate" in told and ("other.onnx" in told) == (two in command), told


def test_open_dimensions_are_asked_for(churon, tmp_path):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    m = save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"])], [x], [y],
             [numpy_helper.from_array(np.ones((4, 3, 5, 5), np.float32), "w")])
    for command in ("bench", "verify"):
        assert "say them with --shape x=1x3xNxN" in run(churon, command, m, ok=2)
        run(churon, command, m, "--shape", "x=1x3x8x8", "--json", *(["--reps", "3"] if command == "bench" else []))


def test_sums_over_the_addend_of_many_channels(churon, tmp_path):
    """x + conv(relu(conv(x))): the product of 600 channels is added up in pieces, where x must stay until the end."""
    rng = np.random.default_rng(3)
    w1, w2, w3 = (rng.normal(0, 0.1, s).astype(np.float32) for s in ((600, 96, 1, 1), (96, 600, 1, 1), (96, 96, 3, 3)))
    nodes = [helper.make_node("Conv", ["i", "w3"], ["x"], pads=[1] * 4), helper.make_node("Conv", ["x", "w1"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Conv", ["b", "w2"], ["c"]), helper.make_node("Add", ["x", "c"], ["d"]),
             helper.make_node("Conv", ["d", "w3"], ["y"], pads=[1] * 4)]
    i, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 96, 9, 17]) for n in "iy")
    m = save(tmp_path / "m.onnx", nodes, [i], [y], [numpy_helper.from_array(w, n) for w, n in ((w1, "w1"), (w2, "w2"), (w3, "w3"))])
    assert run(churon, "verify", m, "--passes", "--json")["same"]


def test_random_operators_draw_alike_where_asked(churon, tmp_path):
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N"]) for n in "xyz"]
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("RandomUniformLike", ["x"], ["u"]),
             helper.make_node("Add", ["x", "r"], ["y"]), helper.make_node("Add", ["r", "u"], ["z"])]
    m = save(tmp_path / "m.onnx", nodes, ports[:1], ports[1:])
    record = ["--record", '[{"x": [0, 0]}, {"x": [0, 0]}]', "--json"]
    seen = [json.dumps(run(churon, "run", m, *record, "--seed", s)["outputs"]) for s in (7, 7, 8)]
    first, second = json.loads(seen[0])
    assert seen[0] == seen[1] != seen[2] and first != second and first["y"] != first["z"]
    assert run(churon, "run", m, *record, "--seed", 7)["provenance"]["seed"] == 7
    free = [json.dumps(run(churon, "run", m, *record)["outputs"]) for _ in range(2)]
    assert free[0] != free[1]
    told = run(churon, "verify", m, "--passes", "--nodes", "--json")
    assert told["same"] and all(o["max_abs"] == 0 for o in told["outputs"] + told["passes"])


def ill_conditioned(path, before, gain):
    """y = x (before W) gain; z = 1 / (variance of y's nearly equal numbers): what roundings move by far."""
    w = np.linspace(0.1, 0.1003, 4, dtype=np.float32) * np.linspace(1, 1.5, 8, dtype=np.float32)[:, None] * np.float32(before)
    constants = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array(1e-9, np.float32), "e"),
                 numpy_helper.from_array(np.array([gain], np.float32), "g")]
    nodes = [helper.make_node("MatMul", ["x", "w"], [f"t{before}"]), helper.make_node("Mul", [f"t{before}", "g"], ["y"]),
             helper.make_node("Mul", ["y", "y"], ["yy"]), helper.make_node("ReduceMean", ["yy"], ["m2"], axes=[1], keepdims=1),
             helper.make_node("ReduceMean", ["y"], ["m"], axes=[1], keepdims=1), helper.make_node("Mul", ["m", "m"], ["mm"]),
             helper.make_node("Sub", ["m2", "mm"], ["v"]), helper.make_node("Abs", ["v"], ["v0"]), helper.make_node("Add", ["v0", "e"], ["v1"]),
             helper.make_node("Reciprocal", ["v1"], ["z"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])
    out = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yz"]
    return save(path, nodes, [x], out, constants)


def test_roundings_are_no_difference_and_differences_are(churon, tmp_path):
    a, b, c = (ill_conditioned(tmp_path / f"{n}.onnx", *g) for n, g in (("a", (1, 0.7)), ("b", (0.7, 1)), ("c", (1, 0.707))))
    told = run(churon, "verify", a, "--against", b, "--batch", 64, "--json")
    z = told["outputs"][1]
    assert told["same"] and z["ok"] and z["max_rel"] > 1e-3 and "roundings alone move it by" in z["why"]
    p = subprocess.run([churon, "verify", a, "--against", c, "--json"], capture_output=True, text=True, timeout=60)
    told = json.loads(p.stdout)
    assert p.returncode == 1 and not told["same"] and not told["outputs"][0]["ok"]


@pytest.mark.parametrize("content, seems", [
    (b"hello, world\n", "a text file"), (b'{"a": 1}', "JSON text"), (b"PK\x03\x04\0\0archive/data.pkl", "a PyTorch checkpoint"),
    (b"\x89HDF\r\n\x1a\n\0\0", "an HDF5 file"), (b"\x80\x04\x95\0\0", "a Python pickle"), (b"", "an empty file"),
    (b"\x1c\0\0\0TFL3\0\0", "a TensorFlow Lite model")])
def test_files_that_are_no_models_are_told_what_they_are(churon, tmp_path, content, seems):
    for name in ("m.onnx", "m.bin"):
        (tmp_path / name).write_bytes(content)
        for command in ("run", "inspect", "bench", "serve") + (("verify",) if name == "m.onnx" else ()):
            told = run(churon, command, tmp_path / name, ok=1)
            assert name in told and (seems in told or (name == "m.bin" and not content)), (command, told)


def test_a_file_that_is_not_there_is_said_not_to_be(churon, two):
    for command in (["run", "nosuch.onnx", "--record", "{}"], ["inspect", "nosuch.onnx", "--passes"], ["verify", "nosuch.onnx", "--nodes"],
                    ["bench", "nosuch.onnx", "--batch", "2"], ["serve", two, "nosuch.onnx"], ["verify", two, "--against", "nosuch.onnx"],
                    ["run", "nosuch.churon", "--record", "{}"]):
        told = run(churon, *command, ok=0 if command[1:] == ["nosuch.onnx", "--passes"] else 1, text=True)
        assert "nosuch" in told or "--passes" in command, told


def test_nodes_without_a_name_are_called_by_what_they_make(churon, tmp_path):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    for nodes, part in [([helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["x"], ["y"])], "the second time by node 'y' (Relu)"),
                        ([helper.make_node("Relu", ["z"], ["y"])], "node 'y' (Relu): input 0 'z' is made by no node"),
                        ([helper.make_node("Frobnicate", ["x"], ["y"])], "at 'y'")]:
        told = run(churon, "run", save(tmp_path / "m.onnx", nodes, [x], [y]), "--record", '{"x": [1]}', ok=1)
        assert part in told and "''" not in told, told


def test_what_numpy_writes_is_read_and_else_nothing(churon, tmp_path):
    m, s = identity(tmp_path / "m.onnx", TensorProto.FLOAT), identity(tmp_path / "s.onnx", TensorProto.STRING)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for version in ((1, 0), (2, 0), (3, 0)):
        for a in (x[:, 1], x.astype(">f4")[1], np.asfortranarray(x)[0]):
            with open(tmp_path / "x.npy", "wb") as f:
                np.lib.format.write_array(f, a, version)
            assert run(churon, "run", m, "-i", tmp_path / "x.npy", "--json")["outputs"]["y"] == a.tolist()
    np.save(tmp_path / "x.npy", np.array(["é", "", "two words"]))
    assert run(churon, "run", s, "-i", tmp_path / "x.npy", "--json")["outputs"]["y"] == ["é", "", "two words"]
    good = x[0].copy()
    np.save(tmp_path / "good.npy", good)
    whole = (tmp_path / "good.npy").read_bytes()
    np.save(tmp_path / "o.npy", np.array(["a"], dtype=object), allow_pickle=True)
    np.save(tmp_path / "f8.npy", good.astype(np.float64))
    np.save(tmp_path / "t.npy", np.array(["2024-01-01"], "datetime64[D]"))
    np.savez(tmp_path / "z.npz", good)
    (tmp_path / "z.npy").write_bytes((tmp_path / "z.npz").read_bytes())
    (tmp_path / "more.npy").write_bytes(whole + b"\0")
    (tmp_path / "twice.npy").write_bytes(whole * 2)
    (tmp_path / "less.npy").write_bytes(whole[:-1])
    for name, part in [("o", "got descr '|O' (Python objects"), ("f8", "expected elements of float32, got float64"),
                       ("t", "got descr '<M8[D]'"), ("z", "a zip archive"), ("more", "behind the header, got 13 bytes"),
                       ("twice", "behind the header, got"), ("less", "behind the header, got 11 bytes")]:
        p = subprocess.run([churon, "run", m, "-i", tmp_path / f"{name}.npy"], capture_output=True, text=True, timeout=60)
        assert p.returncode and part in p.stderr and p.stderr.count("\n") == 1, p.stderr


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
    told = run(churon, "bench", linear, "--batch", 4, "--reps", 20, "--threads", 1, "--json")
    row = told["rows"][0]
    assert told["machine"]["threads"] == 1 and told["machine"]["isa"] and len(told["digest"]) == 64 and told["version"]
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
    (tmp_path / "nothing").mkdir()
    assert "expected folders with model.onnx" in run(churon, "verify", "--onnx-suite", tmp_path / "nothing", ok=1)


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
