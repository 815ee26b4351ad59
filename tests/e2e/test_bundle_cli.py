"""What the command line must refuse rather than guess: tables, packs, versions that were changed, indices at the end of int64."""

import json
import os
import pathlib
import shutil
import subprocess

import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h

TOP = pathlib.Path(__file__).resolve().parents[2]
HEAD = """churon: 1
name: t
version: 1
inputs:
  a: {type: text, required: false}
  k: {type: int}
steps: []
outputs: {a: {}, k: {}}
"""


@pytest.fixture
def call(churon, tmp_path):
    def one(*args, code=0):
        env = {**os.environ, "CHURON_HOME": str(tmp_path / "home")}
        p = subprocess.run([churon, *map(str, args)], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60)
        assert p.returncode == code, p.stderr
        return p

    return one


@pytest.fixture
def bundle(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "bundle.yaml").write_text(HEAD)
    return tmp_path / "t"


@pytest.mark.parametrize("table, message", [
    ('k,a\n1,"oops\n2,y\n', "line 2: expected a cell whose quotes are closed"),
    ('k,a\n1,"x"y\n', "line 2: expected a cell whose quotes are closed"),
    ("k,k\n1,2\n", "expected each column once, got 'k' again"),
    ("k,b\n1,2\n", "field b: expected a field of the schema"),
    ("k,a\n1.5,x\n", "field k: expected int64"),
])
def test_tables_refused(call, bundle, tmp_path, table, message):
    (tmp_path / "t.csv").write_text(table)
    assert message in call("run", bundle, "-i", "t.csv", code=2).stderr


def test_table(call, bundle, tmp_path):
    (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbfk,a\n1,"x, ""y"""\n2,\n')
    lines = [json.loads(line) for line in call("run", bundle, "-i", "t.csv").stdout.splitlines()]
    assert lines == [{"a": 'x, "y"', "k": 1}, {"a": None, "k": 2}]


def test_packs_replace_packs_only(call, bundle, tmp_path):
    (tmp_path / "p.txt").write_text("precious")
    assert "it is left as it is" in call("pack", bundle, "-o", "p.txt", code=1).stderr
    assert (tmp_path / "p.txt").read_text() == "precious"
    assert "outside of the bundle" in call("pack", bundle, "-o", bundle / "x.churon", code=1).stderr
    call("pack", bundle, "-o", "x.churon")
    call("pack", bundle, "-o", "x.churon")


def test_a_changed_version_does_not_answer(call, bundle, tmp_path):
    call("registry", "add", bundle)
    call("run", "t:1", "--record", '{"k": 1}')
    stored = tmp_path / "home" / "models" / "t" / "1" / "bundle.yaml"
    text = stored.read_text()
    os.chmod(stored, 0o644)
    shutil.copy(stored, tmp_path / "copy")
    stored.unlink()
    stored.write_text(text.replace("outputs: {a: {}, k: {}}", "outputs: {k: {}, a: {}}"))
    for command in (["run", "t:1", "--record", '{"k": 1}'], ["inspect", "t:1"]):
        assert "expected what was registered" in call(*command, code=1).stderr


@pytest.mark.parametrize("case, message", [
    ({"in": {"k": 1}, "out": {"a": None, "k": 1}, "trace": 3}, "trace: expected an object of steps"),
    ({"in": {"k": 1}, "error": ""}, "error: expected a text that is not empty"),
    ({"in": {"k": 1}, "error": 3}, "error: expected a text"),
    ({"in": {"k": 1}, "error": "x", "out": {}}, "expected either out or error"),
    ({"in": {"k": 1}}, "expected either out or error"),
    ({"in": [], "out": {}}, "in: expected an object"),
    ({"in": {"k": 1}, "out": 1}, "out: expected an object"),
    ({"in": {"k": 1}, "out": {}, "name": 7}, "name: expected a text"),
])
def test_golden_cases_are_what_they_should_be(call, bundle, case, message):
    with open(bundle / "bundle.yaml", "a") as f:
        f.write("golden: g.jsonl\n")
    good = {"in": {"k": 1}, "out": {"a": None, "k": 1}}
    (bundle / "g.jsonl").write_text(json.dumps(good) + "\n")
    call("verify", bundle)
    (bundle / "g.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(case)}\n")
    assert f"g.jsonl: line 2: {message}" in call("verify", bundle, code=1).stderr


def test_tolerances_name_outputs(call, bundle):
    with open(bundle / "bundle.yaml", "a") as f:
        f.write("tolerance: {kk: {abs: 1}}\n")
    assert "tolerance: expected the name of an output, got 'kk'" in call("inspect", bundle, code=1).stderr


@pytest.mark.parametrize("step", [-(2**63) + 1, -(2**63) + 1000, -(2**62), 2**63 - 1])
def test_slices_at_the_end_of_int64(call, tmp_path, step):
    names = ["s", "e", "a", "t"]
    g = h.make_graph([h.make_node("Slice", ["x", *names], ["y"])], "g",
                     [h.make_tensor_value_info("x", T.FLOAT, ["n"]), *(h.make_tensor_value_info(n, T.INT64, [1]) for n in names)],
                     [h.make_tensor_value_info("y", T.FLOAT, ["m"])])
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 13)], ir_version=10), tmp_path / "slice.onnx")
    for start, end in ((0, 2**63 - 1), (2, -(2**63) + 1), (2, 0), (0, 5)):
        record = {"x": [1, 2, 3], "s": [start], "e": [end], "a": [0], "t": [step]}
        got = json.loads(call("run", "slice.onnx", "--record", json.dumps(record), "--json").stdout)["outputs"]["y"]
        assert got == [1, 2, 3][start:end:step], (start, end)
