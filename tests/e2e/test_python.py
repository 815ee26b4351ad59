"""The Python package: pipelines and graphs through the shared library, errors, memory that is lent, the wheel."""

import gc
import json
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ.get("CHURON", TOP / "build" / "release" / "churon")).resolve().parent / "libchuron.so"
if b"__asan_init" in LIBRARY.read_bytes() or b"__tsan_init" in LIBRARY.read_bytes():
    pytest.skip("a library with sanitizers does not load into this interpreter", allow_module_level=True)
os.environ["CHURON_LIBRARY"] = str(LIBRARY)
sys.path.insert(0, str(TOP / "python"))

import churon  # noqa: E402

SETOSA, VERSICOLOR = [5.1, 3.5, 1.4, 0.2], [6.7, 3.1, 4.7, 1.5]
IRIS = TOP / "examples" / "iris.onnx"


@pytest.fixture(scope="module")
def iris():
    return churon.Pipeline(IRIS, threads=1)


def test_what_it_is(iris):
    assert (iris.name, iris.version) == ("iris", "1") and len(iris.digest) == 64 and churon.__version__ == churon.version()
    assert [(f.name, f.type, f.dtype, f.required) for f in iris.inputs] == [("measures", "float32 [4]", np.dtype("f4"), True)]
    assert [f.name for f in iris.outputs] == ["species", "probabilities"]


def test_records(iris):
    answer = iris.run({"measures": SETOSA})
    assert answer["species"] == "setosa"
    assert iris.run({"measures": np.array(SETOSA)}) == answer and iris.run({"measures": [np.float64(v) for v in SETOSA]}) == answer
    assert json.loads(iris.run_json(json.dumps({"measures": SETOSA}))) == answer
    answers = iris.run_batch([{"measures": SETOSA}, {"measures": [1]}, {"measures": VERSICOLOR}])
    assert answers[0] == answer and answers[0].error is None and answers[2]["species"] == "versicolor"
    assert answers[1] == {} and isinstance(answers[1].error, churon.InvalidError)
    with pytest.raises(churon.InvalidError) as refused:
        iris.run({"measures": [1], "more": 2})
    assert str(refused.value).startswith("field measures: expected float32 [4], got ") and "field more" in str(refused.value)
    assert refused.value.status == "invalid" and iris.run_batch([]) == []
    nan = iris.run({"measures": [float("nan")] * 4})  # a bare model's fields allow it
    assert nan["probabilities"] == ["NaN"] * 3


def test_arrays_are_lent_both_ways(iris):
    measures = np.array([SETOSA, VERSICOLOR] * 50, np.float32)
    out = iris.run_arrays({"measures": measures})
    assert list(out["species"][:2]) == ["setosa", "versicolor"] and out["probabilities"].shape == (100, 3)
    assert out["probabilities"].dtype == np.float32 and not out["probabilities"].flags.owndata
    with pytest.raises(ValueError):
        out["probabilities"][0, 0] = 1
    want = np.array([a["probabilities"] for a in iris.run_batch([{"measures": r} for r in measures.tolist()])], np.float32)
    assert np.array_equal(out["probabilities"], want)
    # What was lent stays what it was, whatever runs after it, for as long as it is held.
    held = [iris.run_arrays({"measures": np.full((3, 4), v, np.float32)})["probabilities"] for v in range(6)]
    copies = [h.copy() for h in held]
    for v in range(20):
        iris.run_arrays({"measures": np.full((64, 4), -v, np.float32)})
    assert all(np.array_equal(a, b) for a, b in zip(held, copies))
    idle = len(iris._pool.idle)
    view = held[0][1]
    del held, out
    gc.collect()
    assert len(iris._pool.idle) >= idle + 5
    assert np.array_equal(view, copies[0][1])
    strided = np.asfortranarray(measures)
    assert np.array_equal(iris.run_arrays({"measures": strided})["probabilities"], want)
    assert iris.run_arrays({"measures": np.zeros((0, 4), np.float32)})["probabilities"].shape[0] == 0


def test_arrays_that_are_refused(iris):
    with pytest.raises(churon.InvalidError, match="field other: expected a field of the schema"):
        iris.run_arrays({"other": np.zeros((1, 4), np.float32)})
    with pytest.raises(churon.InvalidError, match=r"records\[0\]: field measures: expected float32 \[4\], got float64"):
        iris.run_arrays({"measures": np.zeros((2, 4))})
    with pytest.raises(churon.InvalidError, match=r"records\[1\]: field measures"):
        iris.run_arrays({"measures": np.zeros((2, 3), np.float32)})
    with pytest.raises(churon.InvalidError):
        iris.run_arrays({"measures": np.float32(1)})


def test_columns_of_every_kind(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto as T
    from onnx import helper
    types = {"f": T.FLOAT, "d": T.DOUBLE, "t": T.STRING, "n": T.INT64, "u": T.UINT8, "b": T.BOOL}
    graph = helper.make_graph([helper.make_node("Identity", [f"i_{n}"], [f"o_{n}"]) for n in types], "g",
                              [helper.make_tensor_value_info(f"i_{n}", t, ["N"]) for n, t in types.items()],
                              [helper.make_tensor_value_info(f"o_{n}", t, ["N"]) for n, t in types.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "echo.onnx")
    p = churon.Pipeline(tmp_path / "echo.onnx")
    given = {"i_f": np.array([0.1, -1], np.float32), "i_d": np.array([0.1, 1e300]), "i_t": np.array(["a", "추론"]),
             "i_n": np.array([-2**63, 5]), "i_u": np.array([0, 255], np.uint8), "i_b": np.array([True, False])}
    out = p.run_arrays(given)
    for name, array in given.items():
        got = out["o" + name[1:]]
        assert np.array_equal(got, array.astype(object) if name == "i_t" else array) and (name == "i_t" or got.dtype == array.dtype)
    rows = p.run_batch([{k: v[i] for k, v in given.items()} for i in range(2)])
    assert rows[1]["o_t"] == "추론" and rows[0]["o_n"] == -2**63 and rows[1]["o_b"] is False
    assert p.run_arrays({**given, "i_n": np.array([1, 2], np.int32)})["o_n"].tolist() == [1, 2]
    with pytest.raises(churon.InvalidError, match="field i_n: expected an array of int64, got one of float64"):
        p.run_arrays({**given, "i_n": np.array([1.5, 2])})
    with pytest.raises(churon.InvalidError, match="records"):
        p.run_arrays({**given, "i_u": np.array([1, 256])})


def test_threads(iris):
    want = iris.run({"measures": SETOSA})
    wrong = []

    def work():
        for _ in range(200):
            if iris.run({"measures": SETOSA}) != want or iris.run_arrays({"measures": np.array([SETOSA], np.float32)})["species"][0] != "setosa":
                wrong.append(1)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_graphs():
    g = churon.Graph(IRIS, threads=1)
    assert g.inputs[0].name == "measures" and g.inputs[0].shape == (-1, 4) and g.inputs[0].dtype == np.float32
    x = np.array([SETOSA, VERSICOLOR], np.float32)
    out = g.run({"measures": x})
    assert list(out["species"]) == ["setosa", "versicolor"] and out["probabilities"].flags.owndata
    assert np.array_equal(g.run([x])["probabilities"], out["probabilities"])
    s = g.session()
    lent = s.run([x], lend=True)["probabilities"]
    assert np.array_equal(lent, out["probabilities"]) and not lent.flags.writeable
    with pytest.raises(churon.InvalidError, match="inputs: expected measures, got 'x'"):
        g.run({"x": x})
    with pytest.raises(churon.ChuronError):
        g.run({"measures": np.zeros((2, 3), np.float32)})
    with pytest.raises(churon.InvalidError, match="expected an element type of ONNX"):
        g.run({"measures": np.zeros(2, "M8[s]")})


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(churon.NotFoundError):
        churon.Pipeline(tmp_path / "none" / "bundle")
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07garbage")
    for kind in (churon.Pipeline, churon.Graph):
        with pytest.raises(churon.ChuronError) as refused:
            kind(tmp_path / "bad.onnx")
        assert "\n" not in str(refused.value) and refused.value.status in ("corrupt", "unsupported", "invalid")
    with pytest.raises(churon.InvalidError):
        churon.Pipeline(IRIS).sequence()  # it has no state


@pytest.mark.parametrize("again", [False, True])
def test_wheel(tmp_path, again):
    subprocess.run([sys.executable, TOP / "tools" / "wheel.py", LIBRARY, tmp_path / "a"], check=True, capture_output=True)
    wheel, = (tmp_path / "a").iterdir()
    if again:  # the same content gives the same bytes
        subprocess.run([sys.executable, TOP / "tools" / "wheel.py", LIBRARY, tmp_path / "b"], check=True, capture_output=True)
        assert wheel.read_bytes() == (tmp_path / "b" / wheel.name).read_bytes()
        return
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    done = subprocess.run([python, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", wheel], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    env = {k: v for k, v in os.environ.items() if k not in ("CHURON_LIBRARY", "PYTHONPATH")}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p.endswith("site-packages"))  # numpy, wherever it is
    code = f"import churon; print(churon.library_path()); print(churon.Pipeline({str(IRIS)!r}).run({{'measures': {SETOSA}}})['species'])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "venv") in done.stdout and done.stdout.split()[-1] == "setosa"
