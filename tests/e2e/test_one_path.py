"""One path: the same 1,000 records, good and bad, through the command line, HTTP, C and Python: the same bytes of every
answer, the same message for every refusal. The bundle imputes, concatenates, runs a model and takes the likeliest class."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest
from serve_helper import TOP, Server, is_sanitized

N = 1000
MANIFEST = """churon: 1
name: flowers
version: "4"
task: classification
model: {file: iris.onnx}
inputs:
  sepal_length: {type: float, min: 0, max: 10, unit: cm}
  sepal_width: {type: float, required: false}
  petal: {type: tensor, dtype: float32, shape: [2]}
  site: {type: text, max_length: 8, regex: "[a-z가-힣]*", required: false, missing: ""}
steps:
  - impute: {field: sepal_width, value: 3.0}
  - concat: {fields: [sepal_length, sepal_width, petal], into: measures, dtype: float32}
  - model: {}
outputs: {species: {}, probabilities: {}, site: {}}
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one") / "flowers"
    folder.mkdir()
    shutil.copy(TOP / "examples" / "iris.onnx", folder)
    (folder / "bundle.yaml").write_text(MANIFEST)
    return folder


def random_record(rng):
    record = {"sepal_length": round(rng.uniform(0, 10), rng.randint(0, 9)), "petal": [round(rng.uniform(0, 7), 3), rng.uniform(0, 3)]}
    if rng.random() < 0.7:
        record["sepal_width"] = rng.choice([None, 3, round(rng.uniform(1, 5), 2)])
    if rng.random() < 0.5:
        record["site"] = rng.choice(["", "a", "bcd", "추론", "zzzzzzzz"])
    return record


def spoil(rng, record):
    """One or two faults; some are not even records."""
    kinds = [("sepal_length", v) for v in ("3", None, True, 1e300, -1, 11, [1], {"b64": "AA=="}, 123456789.0)]
    kinds += [("petal", v) for v in ([1], [1, "2"], [[1, 2]], 5, [1, None], ["NaN", 1], {"shape": [2], "b64": "AAAA"})]
    kinds += [("site", v) for v in ("ABC", 7, "toolongtoo", "a\nb", "\0")] + [("sepal_wdth", 1), ("other", {"x": []}), ("sepal_width", "Infinity")]
    for key, value in rng.sample(kinds, rng.choice([1, 1, 2])):
        record[key] = value
    if rng.random() < 0.1:
        del record["petal"]
    return rng.choice([3, "x", None, [], {}]) if rng.random() < 0.05 else record


@pytest.fixture(scope="module")
def records():
    rng = random.Random(20)
    out = [random_record(rng) for _ in range(N)]
    return [spoil(rng, r) if rng.random() < 0.3 else r for r in out]


def elements(text, key=None):
    """The items of a list of JSON, each as its own bytes: of the whole text, or of a member of the object that it is."""
    decoder = json.JSONDecoder()
    at = text.index(f'"{key}":') + len(key) + 3 if key else 0
    assert text[at] == "["
    at += 1
    out = []
    while text[at] != "]":
        _, end = decoder.raw_decode(text, at)
        out.append(text[at:end])
        at = end + (text[end] == ",")
    return out


def refusal(text):
    value = json.loads(text)
    return value["error"] if isinstance(value, dict) and set(value) == {"error"} else None


@pytest.fixture(scope="module")
def by_command(churon, bundle, records, tmp_path_factory):
    """The reference of all others: `churon run`."""
    path = tmp_path_factory.mktemp("records") / "records.jsonl"
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))
    done = subprocess.run([churon, "run", bundle, "-i", path, "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr  # some records failed
    out = elements(done.stdout, "outputs")
    bad = [refusal(o) for o in out]
    assert len(out) == N and 200 < sum(b is not None for b in bad) < 400
    assert sum("; field" in b for b in bad if b) > 20  # several faults of a record, told together
    return out


@pytest.fixture(scope="module")
def server(churon, bundle):
    with Server(churon, bundle, "--max-queue", "4096", "--threads", "1") as s:
        yield s


def test_http_all_at_once(server, records, by_command):
    status, _, raw = server.request("/v1/models/flowers:predict", {"instances": records, "partial": True})
    assert status == 200 and elements(raw.decode(), "predictions") == by_command
    status, _, raw = server.request("/v1/models/flowers:predict", {"instances": records[:40]})
    faults = [f"instances[{i}]: {refusal(o)}" for i, o in enumerate(by_command[:40]) if refusal(o)]
    assert status == 400 and json.loads(raw)["error"] == "; ".join(faults)


def test_http_one_by_one(server, records, by_command):
    for record, want in list(zip(records, by_command))[:250]:
        status, _, raw = server.request("/v1/models/flowers:predict", {"instances": [record]})
        message = refusal(want)
        if message is None:
            assert status == 200 and raw.decode() == f'{{"predictions":[{want}]}}'
        else:
            assert status == 400 and json.loads(raw)["error"] == f"instances[0]: {message}"


def test_the_inference_protocol(server, records, by_command):
    """As named tensors: only records that tensors can say."""
    good = [(r, json.loads(w)) for r, w in zip(records, by_command) if refusal(w) is None and r.get("sepal_width") is not None]
    assert len(good) > 200

    def tensor(name, datatype, shape, data):
        return {"name": name, "datatype": datatype, "shape": [len(good), *shape], "data": data}
    body = {"inputs": [tensor("sepal_length", "FP32", [], [r["sepal_length"] for r, _ in good]),
                       tensor("sepal_width", "FP32", [], [r["sepal_width"] for r, _ in good]),
                       tensor("petal", "FP32", [2], [r["petal"] for r, _ in good]),
                       tensor("site", "BYTES", [], [r.get("site") or "" for r, _ in good])]}
    status, _, raw = server.request("/v2/models/flowers/infer", body)
    assert status == 200, raw
    got = {o["name"]: o for o in json.loads(raw)["outputs"]}
    assert got["species"]["data"] == [w["species"] for _, w in good] and got["site"]["data"] == [w["site"] for _, w in good]
    want = np.array([w["probabilities"] for _, w in good], np.float32)
    assert np.array_equal(np.array(got["probabilities"]["data"], np.float32).reshape(want.shape), want)


def test_c(churon, bundle, records, by_command):
    """examples/score.c: a line in, a line out."""
    program = pathlib.Path(churon).parent / "tests" / "example_score"
    if not program.exists():
        pytest.skip("the examples are not built")
    asked = [(r, w) for r, w in zip(records, by_command) if isinstance(r, dict)]
    lines = "".join(json.dumps(r) + "\n" for r, _ in asked)
    done = subprocess.run([program, bundle], input=lines.encode(), capture_output=True, timeout=120)
    got = done.stdout.decode().splitlines()
    assert done.returncode == 0 and len(got) == len(asked), done.stderr
    for line, (_, want) in zip(got, asked):
        assert line == want if refusal(want) is None else refusal(line) == refusal(want)


def test_python(churon, bundle, records, by_command):
    if is_sanitized(churon):
        pytest.skip("a library with sanitizers does not load into this interpreter")
    os.environ["CHURON_LIBRARY"] = str(pathlib.Path(churon).parent / "libchuron.so")
    sys.path.insert(0, str(TOP / "python"))
    import churon as package
    pipeline = package.Pipeline(bundle)
    assert elements(pipeline.run_json(json.dumps(records)).decode()) == by_command
    for record, answer, want in zip(records, pipeline.run_batch(records), by_command):
        message = refusal(want)
        assert answer == ({} if message else json.loads(want)) and (str(answer.error) if answer.error else None) == message
        if not isinstance(record, dict):
            continue
        if message is None:
            assert pipeline.run_json(json.dumps(record)).decode() == want
        else:
            with pytest.raises(package.InvalidError) as refused:
                pipeline.run(record)
            assert str(refused.value) == message
    good = [(r, json.loads(w)) for r, w in zip(records, by_command) if refusal(w) is None and r.get("sepal_width") is not None]
    out = pipeline.run_arrays({"sepal_length": np.array([r["sepal_length"] for r, _ in good], np.float32),
                               "sepal_width": np.array([r["sepal_width"] for r, _ in good], np.float32),
                               "petal": np.array([r["petal"] for r, _ in good], np.float32),
                               "site": np.array([r.get("site") or "" for r, _ in good])})
    assert list(out["species"]) == [w["species"] for _, w in good] and list(out["site"]) == [w["site"] for _, w in good]
    assert np.array_equal(out["probabilities"], np.array([w["probabilities"] for _, w in good], np.float32))
