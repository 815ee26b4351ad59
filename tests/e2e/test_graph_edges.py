"""Graphs through the program where input, options or names are at the edge of what is taken."""

import json
import os
import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

I64, F32, STRING = TensorProto.INT64, TensorProto.FLOAT, TensorProto.STRING
LEAST = -(2**63)


def call(churon, *args, stdin=None, env=None):
    return subprocess.run(
        [churon, *map(str, args)],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=60,
        env=None if env is None else {**os.environ, **env},
    )


def outputs(churon, *args, stdin=None):
    p = call(churon, *args, "--json", stdin=stdin)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)["outputs"]


def refused(churon, *args, stdin=None, code=2):
    p = call(churon, *args, stdin=stdin)
    assert p.returncode == code, p.stderr
    assert p.stderr.startswith("churon: error: ") and p.stderr.count("\n") == 1, p.stderr
    return p.stderr


def port(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def save(path, nodes, inputs, outs, constants=None, opset=17):
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", inputs, outs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


@pytest.fixture
def identity(tmp_path):
    return save(
        tmp_path / "identity.onnx",
        [helper.make_node("Identity", ["x"], ["y"])],
        [port("x", F32, ["n", "m"])],
        [port("y", F32, ["n", "m"])],
    )


# ---- numbers at the far end of int64 ----


def test_ranges_at_the_far_end_of_int64(churon, tmp_path):
    node = helper.make_node("Range", ["a", "b", "s"], ["y"])
    model = save(
        tmp_path / "m.onnx", [node], [port(k, I64, []) for k in "abs"], [port("y", I64, ["n"])]
    )
    record = json.dumps({"a": LEAST, "b": LEAST + 3, "s": 1})
    assert outputs(churon, "run", model, "--record", record)["y"] == [LEAST, LEAST + 1, LEAST + 2]
    fixed = save(
        tmp_path / "c.onnx",
        [node],
        [],
        [port("y", I64, ["n"])],
        {"a": np.int64(LEAST), "b": np.int64(LEAST + 3), "s": np.int64(1)},
    )
    assert outputs(churon, "run", fixed)["y"] == [LEAST, LEAST + 1, LEAST + 2]


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min"])
def test_arithmetic_of_constants_is_that_of_the_run(churon, tmp_path, op):
    """What is known of small integers at loading becomes constants: it must be what the run computes."""
    values = [LEAST, LEAST + 5, 2**62 + 1, 2**62 + 1, -(2**62) - 3, 2**61 + 7, 3]
    other = [1, 2, 2**61, -(2**62), 5, 2, 2**62]
    shape = [len(values)]
    nodes = [helper.make_node(op, ["a", "b"], ["y"]), helper.make_node(op, ["p", "b"], ["z"])]
    model = save(
        tmp_path / "m.onnx",
        nodes,
        [port("p", I64, shape)],
        [port("y", I64, shape), port("z", I64, shape)],
        {"a": np.array(values), "b": np.array(other)},
    )
    got = outputs(churon, "run", model, "--record", json.dumps({"p": values}))
    with np.errstate(over="ignore"):
        how = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum}
        want = how[op](np.array(values), np.array(other)).tolist()
    assert got["z"] == want
    assert got["y"] == want


def test_numbers_that_could_be_symbols_stay_numbers(churon, tmp_path):
    """Concat, Gather, Where, Slice and ConstantOfShape hand on what is known of their elements."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Concat", ["least", "s"], ["joined"], axis=0),
        helper.make_node("Gather", ["joined", "zero"], ["gathered"]),
        helper.make_node("Where", ["yes", "least", "s"], ["chosen"]),
        helper.make_node("Slice", ["joined", "from", "to", "zero", "step"], ["turned"]),
        helper.make_node(
            "ConstantOfShape", ["two"], ["filled"], value=numpy_helper.from_array(np.array([LEAST]))
        ),
    ]
    names = ["joined", "gathered", "chosen", "turned", "filled"]
    model = save(
        tmp_path / "m.onnx",
        nodes,
        [port("x", F32, ["n"])],
        [port(n, I64, None) for n in names],
        {
            "least": np.array([LEAST]),
            "zero": np.array([0]),
            "yes": np.array([True]),
            "from": np.array([-1]),
            "to": np.array([LEAST]),
            "step": np.array([-1]),
            "two": np.array([2]),
        },
    )
    got = outputs(churon, "run", model, "--record", '{"x": [1, 2, 3]}')
    assert got == {
        "joined": [LEAST, 3],
        "gathered": [LEAST],
        "chosen": [LEAST],
        "turned": [3, LEAST],
        "filled": [LEAST, LEAST],
    }


def test_an_index_is_reported_as_it_was_given(churon, tmp_path):
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Gather", ["t", "i"], ["y"])],
        [port("i", I64, ["n"])],
        [port("y", F32, None)],
        {"t": np.ones(4, np.float32)},
    )
    message = refused(churon, "run", model, "--record", json.dumps({"i": [LEAST]}))
    assert message.endswith(f"expected -4 to 3, got {LEAST}\n")


def test_the_limit_of_a_depth_is_named(churon, tmp_path):
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("OneHot", ["i", "d", "v"], ["y"])],
        [port("i", I64, ["n"]), port("d", I64, [])],
        [port("y", F32, None)],
        {"v": np.array([0, 1], np.float32)},
    )
    message = refused(churon, "run", model, "--record", '{"i": [1], "d": 99999999999999}', code=1)
    assert "depth: expected 0 or more and less than 1000000000000, got 99999999999999" in message


# ---- floats to integers that do not hold them ----

CAST_FROM = ["NaN", "Infinity", "-Infinity", 3e9, -3e9, 1e20, -1e20, 300.0, -1.0, -129.5, 5e9, 1e19]
LEAST_32, SIGN_64 = -(2**31), 2**63
CAST_TO = {
    "INT8": [0, 0, 0, 0, 0, 0, 0, 44, -1, 127, 0, 0],
    "UINT8": [0, 0, 0, 0, 0, 0, 0, 44, 255, 127, 0, 0],
    "INT16": [0, 0, 0, 0, 0, 0, 0, 300, -1, -129, 0, 0],
    "UINT16": [0, 0, 0, 0, 0, 0, 0, 300, 65535, 65407, 0, 0],
    "INT32": [LEAST_32] * 7 + [300, -1, -129] + [LEAST_32] * 2,
    "UINT32": [0, 0, 0, 3000000000, 1294967296, 0, 0, 300, 2**32 - 1, 2**32 - 129, 705032704, 0],
    "INT64": [LEAST] * 3 + [3000000000, -3000000000, LEAST, LEAST, 300, -1, -129, 5000000000, LEAST],
    "UINT64": [SIGN_64, 0, SIGN_64, 3000000000, 2**64 - 3000000000, 0, SIGN_64, 300, 2**64 - 1]
    + [2**64 - 129, 5000000000, 10**19],
}


@pytest.mark.parametrize("to", CAST_TO)
@pytest.mark.parametrize("cpu", ["ref", "avx2", "avx512"])
def test_casts_out_of_range_are_those_of_onnx_runtime(churon, tmp_path, to, cpu):
    kind = getattr(TensorProto, to)
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Cast", ["x"], ["y"], to=kind)],
        [port("x", TensorProto.DOUBLE, ["n"])],
        [port("y", kind, ["n"])],
    )
    for times in (1, 40):
        record = json.dumps({"x": CAST_FROM * times})
        p = call(churon, "run", model, "--record", record, "--json", env={"CHURON_CPU": cpu})
        if p.returncode and "of this processor" in p.stderr:
            pytest.skip(p.stderr)
        assert json.loads(p.stdout)["outputs"]["y"] == CAST_TO[to] * times


# ---- tables ----


def test_a_table_that_is_no_text_is_refused(churon, tmp_path):
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Identity", ["s"], ["y"])],
        [port("s", STRING, ["n"])],
        [port("y", STRING, ["n"])],
    )
    table = tmp_path / "t.csv"
    table.write_bytes(b"s\ngood\nb\xffd\n")
    assert "line 3, column 's': expected UTF-8 text, got byte 0xff at byte 2" in refused(
        churon, "run", model, "-i", table
    )
    table.write_bytes(b"s\xc3\ngood\n")
    assert "line 1, cell 1: expected UTF-8 text" in refused(churon, "run", model, "-i", table)
    table.write_bytes("s\nä€😀\n".encode())
    assert outputs(churon, "run", model, "-i", table)["y"] == ["ä€😀"]


def test_a_table_without_a_header_is_refused(churon, identity, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("5.1,3.5\n6.2,2.2\n")
    assert "line 1: expected a header of names, got the number '5.1'" in refused(
        churon, "run", identity, "-i", table
    )
    table.write_text("a,2\n6.2,2.2\n")
    assert np.allclose(outputs(churon, "run", identity, "-i", table)["y"], [[6.2, 2.2]])
    table.write_text("0,1\n6.2,2.2\n")  # columns that were counted
    assert np.allclose(outputs(churon, "run", identity, "-i", table)["y"], [[6.2, 2.2]])


# ---- options ----


@pytest.mark.parametrize(
    "option", [["--record", "{}"], ["-i", "a.json"], ["--output-dir", "a"], ["--threads", "1"], ["--seed", "1"]]
)
def test_an_option_with_one_value_is_taken_once(churon, identity, option):
    message = refused(churon, "run", identity, *option, *option)
    assert "expected it once, got it again" in message and ("--in" in message or option[0] in message)


def test_folders_of_outputs(churon, identity, tmp_path):
    folder = tmp_path / "a" / "b" / "c"
    record = '{"x": [[1, 2]]}'
    got = outputs(churon, "run", identity, "--record", record, "--output-dir", folder)
    assert got["y"] == {"file": f"{folder}/y.npy"} and np.load(folder / "y.npy").tolist() == [[1, 2]]
    assert "--output-dir: expected a folder, got nothing" in refused(
        churon, "run", identity, "--record", record, "--output-dir", ""
    )
    (tmp_path / "file").write_text("")
    assert "cannot make the folder" in refused(
        churon, "run", identity, "--record", record, "--output-dir", tmp_path / "file" / "x", code=1
    )


def test_a_sequence_goes_to_a_json_file(churon, tmp_path):
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("SequenceConstruct", ["x", "x"], ["y"])],
        [port("x", F32, ["n"])],
        [helper.make_tensor_sequence_value_info("y", F32, None)],
    )
    folder = tmp_path / "out"
    got = outputs(churon, "run", model, "--record", '{"x": [1, 2]}', "--output-dir", folder)
    assert got["y"] == {"file": f"{folder}/y.json"}
    assert json.loads((folder / "y.json").read_text()) == [[1, 2], [1, 2]]


def test_records_on_standard_input(churon, identity):
    record = '{"x": [[1, 2]]}'
    assert outputs(churon, "run", identity, "-i", "-", stdin=record)["y"] == [[1, 2]]
    assert outputs(churon, "run", identity, "-i", "-", stdin=json.dumps(json.loads(record), indent=1))
    assert len(outputs(churon, "run", identity, "-i", "-", stdin=f"[{record},\n{record}]")) == 2
    assert len(outputs(churon, "run", identity, "-i", "-", stdin=f"\n{record}\n\n{record}\n")) == 2
    assert "-:2: " in refused(churon, "run", identity, "-i", "-", stdin=f"{record}\n[1]\n")


def test_files_lie_beside_the_record_that_names_them(churon, identity, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1, 2), np.float32))
    (tmp_path / "sub").mkdir()
    for file in ("../x.npy", str(tmp_path / "x.npy")):
        (tmp_path / "sub" / "r.json").write_text(json.dumps({"x": {"file": file}}))
        assert outputs(churon, "run", identity, "-i", tmp_path / "sub" / "r.json")["y"] == [[1, 1]]


@pytest.mark.parametrize(
    "shape, expected",
    [
        ("-1x4", "input 'x': expected dimensions such as 1x3x224x224, each of 1 to 18 digits, got '-1'"),
        ("2xq", "got 'q' as dimension 1"),
        ("2x", "got '' as dimension 1"),
        ("4294967296x4294967296", "input 'x': "),
    ],
)
def test_a_shape_that_cannot_be_names_the_input(churon, identity, shape, expected):
    p = call(churon, "bench", identity, "--shape", f"x={shape}", "--reps", 1)
    assert p.returncode and expected in p.stderr


def test_an_empty_choice_of_instructions_is_none(churon, identity):
    args = ("run", identity, "--record", '{"x": [[1, 2]]}', "--json")
    plain, empty = call(churon, *args), call(churon, *args, env={"CHURON_CPU": ""})
    isa = [json.loads(p.stdout)["provenance"]["isa"] for p in (plain, empty)]
    assert isa[0] == isa[1] != ""


# ---- what files say ----


def test_declared_dimensions_that_are_wrong_are_noted(churon, tmp_path):
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])],
        [port("x", F32, [2])],
        [port("y", F32, [3]), port("z", F32, ["n"])],
    )
    note = "output 'y': the file declares float32 [3], it is float32 [2]\n"
    p = call(churon, "run", model, "--record", '[{"x": [1, 2]}, {"x": [1, 2]}]')
    assert p.returncode == 0 and p.stderr == f"note: run: {note}"
    p = call(churon, "inspect", model)
    assert p.returncode == 0 and p.stderr == f"note: inspect: {note}"
    assert call(churon, "run", model, "--record", '{"x": [1, 2]}', "--quiet").stderr == ""


def test_names_do_not_steer_the_terminal(churon, tmp_path):
    name = "a\nb\x1b[31m\u009b2J"
    shown = "a\\nb\\x1b[31m\\x9b2J"
    model = save(
        tmp_path / "m.onnx",
        [helper.make_node("Sin", ["x"], [name], name=name)],
        [port("x", F32, [name])],
        [port(name, F32, None)],
    )
    record = ("--input", f"x={tmp_path}/x.npy")
    np.save(tmp_path / "x.npy", np.zeros(2, np.float32))
    for args in (
        ("run", model, *record, "--output-dir", tmp_path / "out"),
        ("inspect", model),
        ("verify", model, "--nodes", *record),
        ("bench", model, "--reps", 2, *record),
    ):
        p = call(churon, *args)
        assert p.returncode == 0, p.stderr
        assert shown in p.stdout and not set("\x1b\u009b") & set(p.stdout + p.stderr), args
