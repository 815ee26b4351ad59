"""`churon serve BUNDLE…`: TensorFlow Serving's form, the inference protocol over fields, versions and their golden cases,
sequences, requests on record."""

import concurrent.futures
import json
import pathlib
import shutil
import signal
import subprocess

import numpy as np
import pytest
from serve_helper import TOP, Server

onnx = pytest.importorskip("onnx")
httpclient = pytest.importorskip("tritonclient.http")
from onnx import TensorProto as T  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

SETOSA, VERSICOLOR = [5.1, 3.5, 1.4, 0.2], [6.7, 3.1, 4.7, 1.5]
ANSWER = {"species": "setosa", "probabilities": [0.984703124, 0.0152967609, 6.20376923e-08]}
HEAD = "churon: 1\nname: iris\nversion: {version}\ntask: {task}\nmodel: {{file: iris.onnx}}\n"
TENSOR = "inputs:\n  measures: {type: tensor, dtype: float32, shape: [4]}\n"
GOLDEN = "golden: golden.jsonl\ntolerance: {probabilities: {abs: 1e-6}}\n"


def write_bundle(folder, version=2, inputs=TENSOR, task="classification", golden=None, model=None):
    folder.mkdir(parents=True)
    shutil.copy(model or TOP / "examples" / "iris.onnx", folder / "iris.onnx")
    text = HEAD.format(version=version, task=task) + inputs
    if golden is not None:
        (folder / "golden.jsonl").write_text("".join(json.dumps(g) + "\n" for g in golden))
        text += GOLDEN
    (folder / "bundle.yaml").write_text(text)
    return folder


def case(species="setosa"):
    return {"name": "a flower", "in": {"measures": SETOSA}, "out": {**ANSWER, "species": species}}


@pytest.fixture(scope="module")
def iris(churon, tmp_path_factory):
    with Server(churon, write_bundle(tmp_path_factory.mktemp("bundle") / "iris", golden=[case()])) as s:
        yield s


def predict(s, body, name="iris", path=":predict", headers=None):
    status, head, raw = s.request(f"/v1/models/{name}{path}", body, headers)
    return status, head, json.loads(raw)


# ---- TensorFlow Serving's form ------------------------------------------------------------------------------------------------

def test_rows_bare_values_and_columns(iris):
    status, head, answer = predict(iris, {"instances": [{"measures": SETOSA}, VERSICOLOR], "signature_name": "serving_default"})
    assert status == 200 and answer["predictions"][0] == ANSWER and answer["predictions"][1]["species"] == "versicolor"
    assert head["X-Churon-Model"] == "iris" and head["X-Churon-Version"] == "2" and len(head["X-Churon-Digest"]) == 64
    status, _, columns = predict(iris, {"inputs": {"measures": [SETOSA, VERSICOLOR]}})
    assert status == 200
    assert columns == {"outputs": {k: [p[k] for p in answer["predictions"]] for k in ("species", "probabilities")}}
    assert predict(iris, {"inputs": [SETOSA, VERSICOLOR]})[2] == columns
    assert predict(iris, {"instances": []})[2] == {"predictions": []}


def test_the_same_bytes_by_whatever_path(iris):
    body = {"instances": [SETOSA]}
    plain = iris.request("/v1/models/iris:predict", body)[2]
    assert iris.request("/v1/models/iris/versions/2:predict", body)[2] == plain
    many = iris.request("/v1/models/iris:predict", {"instances": [VERSICOLOR, SETOSA]})[2]
    one = plain[len('{"predictions":['):-2]
    assert many.endswith(one + b"]}")


def test_faults_of_all_records_together(iris):
    bad = [{"measures": [1, "x", 3, 4]}, SETOSA, {"mesures": 1}]
    status, _, answer = predict(iris, {"instances": bad})
    assert status == 400 and set(answer) == {"error"}
    first, second = answer["error"].split("; instances[2]: ")
    assert first == "instances[0]: field measures: element 1: expected a number (float32), got the string 'x'"
    assert "field measures: expected float32 [4], got none" in second and "did you mean 'measures'?" in second
    status, _, answer = predict(iris, {"instances": bad, "partial": True})
    assert status == 200 and answer["predictions"][1] == ANSWER
    assert "instances[0]: " + answer["predictions"][0]["error"] == first and answer["predictions"][2] == {"error": second}
    many = predict(iris, {"instances": [[]] * 50})[2]["error"]
    assert "instances[49]: " in many


@pytest.mark.parametrize("body, message", [
    ({}, "instances: expected either instances or inputs, got neither"),
    ({"instances": [], "inputs": {}}, "instances: expected either instances or inputs, got both"),
    ({"instances": 3}, "instances: expected a list of records, got an integer"),
    ({"instance": []}, "instance: expected a field of the request, got this one: did you mean 'instances'?"),
    ({"instances": [], "signature_name": "other"}, "signature_name: expected serving_default, got 'other'"),
    ({"inputs": {"measures": 3}}, "inputs.measures: expected a list with a value for each record, got an integer"),
    ({"inputs": {"measures": [SETOSA], "other": []}}, "inputs.other: expected 1 values as inputs.measures has, got 0"),
    ({"inputs": {"measures": []}, "partial": True}, "partial: expected it with instances only, got it with inputs"),
    ({"instances": [SETOSA], "sequence_start": True}, "sequence_id: expected it beside sequence_start"),
    ({"instances": [SETOSA], "sequence_id": 4, "sequence_start": True}, "expected a bundle whose manifest has state"),
    (b"[1]", "body: expected a JSON object, got an array"),
    (b'{"instances": [}', "body: expected valid JSON, got an error in line 1"),
    (b'{"instances": [], "instances": []}', "duplicate"),
])
def test_requests_that_are_refused(iris, body, message):
    status, _, answer = predict(iris, body)
    assert status == 400 and message in answer["error"], answer


def test_provenance_where_asked(iris):
    want = {"bundle": "iris", "version": "2", "provider": "cpu", "seed": None}
    for path, more in ((":predict?provenance=1", {}), (":predict", {"provenance": True}), (":predict?a=b&provenance=1", {})):
        _, head, answer = predict(iris, {"instances": [SETOSA], **more}, path=path)
        assert want.items() <= answer["provenance"].items() and answer["provenance"]["digest"] == head["X-Churon-Digest"]
    for path in (":predict", ":predict?provenance=0", ":predict?xprovenance=1"):
        assert "provenance" not in predict(iris, {"instances": [SETOSA]}, path=path)[2]
    body = {"inputs": [{"name": "measures", "datatype": "FP32", "shape": [1, 4], "data": SETOSA}]}
    answer = json.loads(iris.request("/v2/models/iris/infer?provenance=1", body)[2])
    assert want.items() <= answer["parameters"]["provenance"].items()


def test_what_a_version_says_of_itself(iris):
    assert iris.json("/v1/models/iris") == (200, {"model_version_status": [
        {"version": "2", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}]})
    assert iris.json("/v1/models/iris/versions/2")[0] == 200 and iris.json("/v1/models/iris/versions/3")[0] == 404
    status, said = iris.json("/v1/models/iris/metadata")
    signature = said["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert status == 200 and signature["inputs"]["measures"]["dtype"] == "DT_FLOAT"
    assert [d["size"] for d in signature["outputs"]["probabilities"]["tensor_shape"]["dim"]] == ["-1", "3"]
    assert said["metadata"]["churon"]["inputs"] == [{"name": "measures", "type": "float32 [4]", "required": True}]
    assert iris.json("/v1/models")[1]["data"][0].items() >= {"id": "iris", "version": "2", "golden_cases": 1}.items()
    for path in ("/v1/models/none", "/v1/models/none:predict", "/v1/models/iris:generate", "/v1/models/iris/labels/x:predict"):
        assert iris.request(path, {"instances": []} if ":" in path else None)[0] == 404
    assert iris.request("/v1/models/iris:predict")[0] == 405


def test_classify(churon, tmp_path):
    bundle = write_bundle(tmp_path / "b", inputs=TENSOR + "steps:\n  - model: {}\n  - top_k: {field: probabilities, k: 2, labels: [a, b, c], into: best}\n"
                          "outputs: {best: {}}\n")
    with Server(churon, bundle) as s:
        status, _, answer = predict(s, {"instances": [SETOSA]})
        assert status == 200, answer
        best = answer["predictions"][0]["best"]
        status, _, answer = predict(s, {"context": {}, "examples": [{"measures": SETOSA}, {"measures": VERSICOLOR}]}, path=":classify")
        assert status == 200 and answer["results"][0] == [[b["label"], b["score"]] for b in best]
        assert [r[0][0] for r in answer["results"]] == ["a", "b"]
        status, _, answer = predict(s, {"context": {"measures": SETOSA}, "examples": [{}, {"measures": [1]}]}, path=":classify")
        assert status == 400 and answer["error"].startswith("examples[1]: field measures: expected float32 [4]")
        status, _, answer = predict(s, {"examples": [{}]}, path=":regress")
        assert status == 400 and answer["error"] == "model 'iris': expected the task regression for this method, got classification"


def test_regress(churon, tmp_path):
    model = tmp_path / "sum.onnx"
    graph = helper.make_graph([helper.make_node("ReduceSum", ["measures", "axes"], ["price"], keepdims=0)], "g",
                              [helper.make_tensor_value_info("measures", T.FLOAT, ["N", 4])],
                              [helper.make_tensor_value_info("price", T.FLOAT, ["N"])],
                              [numpy_helper.from_array(np.array([1]), "axes")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    with Server(churon, write_bundle(tmp_path / "b", task="regression", model=model)) as s:
        body = {"examples": [{"measures": [1, 1, 1, 1]}, {"measures": [0, 0, 0, 2]}], "provenance": True}
        status, _, answer = predict(s, body, path=":regress")
        assert status == 200 and answer["results"] == [4.0, 2.0] and answer["provenance"]["bundle"] == "iris"
        status, _, answer = predict(s, {"instances": []}, path=":regress")
        assert status == 400 and "instances: expected a field of the request" in answer["error"]


# ---- the inference protocol over fields -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("binary", [False, True])
def test_fields_through_tritonclient(iris, binary):
    c = httpclient.InferenceServerClient(f"{iris.host}:{iris.port}")
    assert c.is_model_ready("iris") and c.is_model_ready("iris", "2") and not c.is_model_ready("iris", "1")
    assert c.get_model_metadata("iris")["outputs"][0] == {"name": "species", "datatype": "BYTES", "shape": [-1]}
    assert c.get_model_config("iris")["input"] == [{"name": "measures", "data_type": "TYPE_FP32", "dims": [-1, 4]}]
    assert c.get_model_repository_index() == [{"name": "iris", "version": "2", "state": "READY", "reason": ""}]
    x = httpclient.InferInput("measures", [2, 4], "FP32")
    x.set_data_from_numpy(np.array([SETOSA, VERSICOLOR], np.float32), binary_data=binary)
    outputs = [httpclient.InferRequestedOutput(n, binary_data=binary) for n in ("probabilities", "species")]
    answer = c.infer("iris", [x], model_version="2", outputs=outputs)
    assert [s.decode() if isinstance(s, bytes) else s for s in answer.as_numpy("species")] == ["setosa", "versicolor"]
    assert np.array_equal(answer.as_numpy("probabilities")[0], np.array(ANSWER["probabilities"], np.float32))
    assert c.get_inference_statistics("iris", "2")["model_stats"][0]["inference_count"] >= 2


def test_fields_that_are_scalars_texts_and_left_out(churon, tmp_path):
    nodes = [helper.make_node("Identity", [f"i_{n}"], [f"o_{n}"]) for n in ("f", "t", "n", "b")]
    types = {"f": T.DOUBLE, "t": T.STRING, "n": T.INT64, "b": T.BOOL}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(f"i_{n}", t, ["N"]) for n, t in types.items()],
                              [helper.make_tensor_value_info(f"o_{n}", t, ["N"]) for n, t in types.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "echo.onnx")
    inputs = ("inputs:\n  i_f: {type: double, min: 0}\n  i_t: {type: text, max_length: 3}\n  i_n: {type: int64}\n"
              "  i_b: {type: bool, required: false, missing: true}\n")
    with Server(churon, write_bundle(tmp_path / "b", inputs=inputs, task="graph", model=tmp_path / "echo.onnx")) as s:
        def tensor(name, datatype, data):
            return {"name": name, "datatype": datatype, "shape": [len(data)], "data": data}
        body = {"inputs": [tensor("i_f", "FP64", [0.1, 5]), tensor("i_t", "BYTES", ["a", "é"]), tensor("i_n", "INT64", [-2**63, 7])]}
        status, _, raw = s.request("/v2/models/iris/infer", body)
        got = {o["name"]: o["data"] for o in json.loads(raw)["outputs"]}
        assert status == 200 and got == {"o_f": [0.1, 5], "o_t": ["a", "é"], "o_n": [-2**63, 7], "o_b": [True, True]}
        body["inputs"][0]["data"] = [-1, 2]
        body["inputs"][1]["data"] = ["a", "long"]
        status, _, raw = s.request("/v2/models/iris/infer", body)
        assert status == 400 and json.loads(raw)["error"] == (
            "record 0: field i_f: expected at least 0, got -1; record 1: field i_t: expected at most 3 characters, got 4")
        body["inputs"][2] = tensor("i_n", "INT64", [1])
        assert "expected a first dimension of 2 as input 'i_t' has, got 1" in s.request("/v2/models/iris/infer", body)[2].decode()


# ---- a bare graph -----------------------------------------------------------------------------------------------------------------

def test_a_bare_graph_has_predict_too(churon):
    with Server(churon, TOP / "examples" / "iris.onnx") as s:
        status, _, answer = predict(s, {"instances": [{"measures": SETOSA}]})
        assert status == 200 and answer["predictions"] == [ANSWER]


def test_several_models(churon, tmp_path):
    other = write_bundle(tmp_path / "other")
    (other / "bundle.yaml").write_text((other / "bundle.yaml").read_text().replace("name: iris", "name: other"))
    with Server(churon, TOP / "examples" / "iris.onnx", str(other)) as s:
        assert {m["id"] for m in s.json("/v1/models")[1]["data"]} == {"iris", "other"}
        for name in ("iris", "other"):
            status, head, answer = predict(s, {"instances": [SETOSA]}, name=name)
            assert status == 200 and answer["predictions"] == [ANSWER] and head["X-Churon-Model"] == name
        metrics = s.request("/metrics")[2].decode()
        assert 'nv_inference_count{model="other",version="2"} 1' in metrics
        status, _, answer = predict(s, {"instances": []}, name="third")
        assert status == 404 and answer["error"] == "model: expected iris, other, got 'third'"


# ---- versions and golden cases ------------------------------------------------------------------------------------------------

def test_a_version_that_fails_is_not_served_and_the_one_before_goes_on(churon, tmp_path):
    good, bad = write_bundle(tmp_path / "9", 9, golden=[case()]), write_bundle(tmp_path / "10", 10, golden=[case("virginica")])
    with Server(churon, str(bad), str(good)) as s:
        assert "note: iris: version 10 is not served: golden case 'a flower':" in s.stderr()
        status, head, answer = predict(s, {"instances": [SETOSA]})
        assert status == 200 and head["X-Churon-Version"] == "9" and answer["predictions"] == [ANSWER]
        status, head, answer = predict(s, {"instances": [SETOSA]}, path="/versions/10:predict")
        assert status == 503 and "version 10 is not served: golden case 'a flower'" in answer["error"] and "Retry-After" in head
        states = {v["version"]: v["state"] for v in s.json("/v1/models/iris")[1]["model_version_status"]}
        assert states == {"9": "AVAILABLE", "10": "END"}
        assert s.request("/ready")[0] == 200
        index = json.loads(s.request("/v2/repository/index", {})[2])
        assert [(v["version"], v["state"]) for v in index] == [("9", "READY"), ("10", "UNAVAILABLE")]
    done = subprocess.run([churon, "serve", bad, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "golden case 'a flower'" in done.stderr and "species" in done.stderr
    twice = subprocess.run([churon, "serve", good, good, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert twice.returncode == 1 and "expected each version once, got version 9 of 'iris' twice" in twice.stderr


def test_the_newest_version_answers(churon, tmp_path):
    paths = [str(write_bundle(tmp_path / v, v)) for v in ("1.10", "1.9")]
    with Server(churon, *paths) as s:
        assert predict(s, {"instances": [SETOSA]})[1]["X-Churon-Version"] == "1.10"
        assert predict(s, {"instances": [SETOSA]}, path="/versions/1.9:predict")[1]["X-Churon-Version"] == "1.9"


# ---- sequences --------------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def counting(churon, tmp_path_factory):
    """total = sum so far + x: a state that goes from request to request."""
    folder = tmp_path_factory.mktemp("sequence")
    graph = helper.make_graph([helper.make_node("Add", ["x", "sum"], ["total"])], "g",
                              [helper.make_tensor_value_info(n, T.FLOAT, ["N", 1]) for n in ("x", "sum")],
                              [helper.make_tensor_value_info("total", T.FLOAT, ["N", 1])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "sum.onnx")
    bundle = folder / "b"
    bundle.mkdir()
    shutil.copy(folder / "sum.onnx", bundle)
    (bundle / "bundle.yaml").write_text(
        "churon: 1\nname: count\nversion: 1\nmodel: {file: sum.onnx}\n"
        "inputs:\n  x: {type: tensor, dtype: float32, shape: [1]}\n"
        "state:\n  sum: {dtype: float32, shape: [1], next: total}\noutputs: {total: {}}\n")
    (folder / "keys").write_text("red\nblue\n")
    with Server(churon, bundle, "--keys", str(folder / "keys"), "--max-sequences", "3", "--sequence-idle", "1") as s:
        yield s


def step(s, x, key="red", **more):
    status, _, answer = predict(s, {"instances": [{"x": [x]}], **more}, "count", headers={"Authorization": f"Bearer {key}"})
    return answer["predictions"][0]["total"][0] if status == 200 else (status, answer["error"])


def test_sequences_by_key_and_id(counting):
    s = counting
    assert step(s, 5) == 5 and step(s, 5) == 5  # none: the state begins anew
    assert step(s, 1, sequence_id="a", sequence_start=True) == 1
    assert step(s, 2, sequence_id="a") == 3
    assert step(s, 7, sequence_id=17, sequence_start=True) == 7
    assert step(s, 4, sequence_id="a") == 7
    assert step(s, 1, sequence_id="17") == 8
    status, why = step(s, 1, key="blue", sequence_id="a")
    assert status == 404 and "expected one that began with sequence_start" in why
    assert step(s, 1, key="blue", sequence_id="a", sequence_start=True) == 1
    status, why = step(s, 1, sequence_id="b", sequence_start=True)
    assert status == 429 and why == "sequence_id: expected at most 3 sequences, got one more"
    assert step(s, 1, sequence_id="a", sequence_end=True) == 8
    assert step(s, 1, sequence_id="a")[0] == 404
    assert step(s, 2, sequence_id="b", sequence_start=True) == 2
    status, why = step(s, "bad", sequence_id="b")
    assert status == 400 and step(s, 1, sequence_id="b") == 3  # a record that fails leaves the state
    assert step(s, 1, sequence_id="b", sequence_start=True) == 1  # anew
    status, _, answer = predict(s, {"instances": [{"x": [1]}, {"x": [2]}], "sequence_id": "b"}, "count", headers={"Authorization": "Bearer red"})
    assert status == 400 and answer["error"] == "instances: expected one record with sequence_id, got 2"


def test_a_sequence_that_rests_is_forgotten(counting):
    import time
    time.sleep(1.2)
    assert step(counting, 1, sequence_id="rest", sequence_start=True) == 1
    time.sleep(1.5)
    assert step(counting, 1, sequence_id="rest")[0] == 404


def test_sequences_in_the_inference_protocol(counting):
    def infer(x, **parameters):
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [x]}], "parameters": parameters}
        status, _, raw = counting.request("/v2/models/count/infer", body, {"Authorization": "Bearer blue"})
        return json.loads(raw)["outputs"][0]["data"][0] if status == 200 else (status, json.loads(raw)["error"])
    assert infer(3, sequence_id=99, sequence_start=True) == 3
    assert infer(4, sequence_id=99, sequence_end=True) == 7
    assert infer(4, sequence_id=99)[0] == 404


# ---- many at once -----------------------------------------------------------------------------------------------------------------

def test_single_records_of_many_clients_give_the_same_bytes(churon, tmp_path):
    rng = np.random.default_rng(3)
    rows = [[round(float(v), 3) for v in r] for r in rng.uniform(0, 8, (200, 4))]
    rows[17] = [1, 2]
    with Server(churon, write_bundle(tmp_path / "b"), "--max-queue", "4096", "--threads", "1") as s:
        alone = [s.request("/v1/models/iris:predict", {"instances": [r]})[::2] for r in rows]
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            for _ in range(3):
                assert list(pool.map(lambda r: s.request("/v1/models/iris:predict", {"instances": [r]})[::2], rows)) == alone
        stats = s.json("/v2/models/iris/stats")[1]["model_stats"][0]
        assert alone[17][0] == 400 and stats["inference_count"] == 4 * 199
        assert stats["execution_count"] <= stats["inference_count"]


def test_deadline_and_a_client_that_leaves(churon, tmp_path):
    import time
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["a", "one"], ["b"])], "body",
                             [helper.make_tensor_value_info("i", T.INT64, []), helper.make_tensor_value_info("c", T.BOOL, []),
                              helper.make_tensor_value_info("a", T.INT64, [])],
                             [helper.make_tensor_value_info("d", T.BOOL, []), helper.make_tensor_value_info("b", T.INT64, [])],
                             [numpy_helper.from_array(np.array(1, np.int64), "one")])
    graph = helper.make_graph([helper.make_node("Loop", ["n", "", "zero"], ["total"], body=body)], "g",
                              [helper.make_tensor_value_info("n", T.INT64, [])], [helper.make_tensor_value_info("total", T.INT64, [])],
                              [numpy_helper.from_array(np.array(0, np.int64), "zero")])
    path = tmp_path / "endless.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with Server(churon, path, "--timeout", "1", "--max-queue", "1") as s:
        def ask(n):
            return predict(s, {"instances": [{"n": n}]}, "endless")
        status, _, answer = ask(5)
        assert status == 200 and answer["predictions"][0]["total"] in (5, [5]), answer
        before = time.monotonic()
        assert ask(10**12)[0] == 504 and time.monotonic() - before < 5
        raw = json.dumps({"instances": [{"n": 10**12}]}).encode()
        gone = [s.socket() for _ in range(2)]
        for g in gone:
            g.sendall(b"POST /v1/models/endless:predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
            time.sleep(0.1)
        status, head, _ = ask(1)  # one runs, one waits
        assert status == 429 and int(head["Retry-After"]) >= 1
        for g in gone:
            g.close()
        before = time.monotonic()
        while ask(3)[0] == 429:
            assert time.monotonic() - before < 0.8  # long before their deadline
            time.sleep(0.02)


# ---- on record --------------------------------------------------------------------------------------------------------------------

def test_record_and_replay(churon, tmp_path):
    folder = tmp_path / "requests"
    folder.mkdir()
    bundle = write_bundle(tmp_path / "b")
    asked = {"r-1": ("/v1/models/iris:predict", {"instances": [SETOSA]}), "r-2": ("/v1/models/iris:predict", {"instances": [[1]]}),
             "r-3": ("/v2/models/iris/infer?provenance=1", {"inputs": [{"name": "measures", "datatype": "FP32", "shape": [1, 4], "data": SETOSA}],
                                                            "parameters": {"binary_data_output": True}})}
    answers = {}
    with Server(churon, bundle, "--record", str(folder)) as s:
        for name, (path, body) in asked.items():
            status, _, answers[name] = s.request(path, body, {"X-Request-Id": name})
            assert status == (400 if name == "r-2" else 200)
        status, _, again = s.request(*asked["r-1"], {"X-Request-Id": "r-1"})
        assert status == 400 and b"not on record yet" in again
    assert sorted(p.name for p in folder.iterdir()) == ["r-1.json", "r-2.json", "r-3.json"]

    def replay(name, *options):
        return subprocess.run([churon, "replay", "--request", name, "--record", folder, *options], capture_output=True, timeout=60)
    for name in asked:
        done = replay(name)
        assert done.returncode == 0, done.stderr
        want = json.loads(answers[name])["error"].encode() if name == "r-2" else answers[name]
        assert done.stdout == want + b"\n"
    moved = tmp_path / "moved"
    bundle.rename(moved)
    assert replay("r-1").returncode == 1
    assert replay("r-1", "--model", moved).stdout == answers["r-1"] + b"\n"
    (moved / "labels.txt").write_text("x\n")  # another bundle now
    done = replay("r-1", "--model", moved)
    assert done.returncode == 1 and b"expected the model of digest" in done.stderr
    (moved / "labels.txt").unlink()
    record = json.loads((folder / "r-1.json").read_text())
    (folder / "r-1.json").write_text(json.dumps({**record, "answer_sha256": "0" * 64}))
    done = replay("r-1", "--model", moved)
    assert done.returncode == 1 and b"expected the bytes on record" in done.stderr
    assert replay("../x").returncode == 1 and replay("none").returncode == 1
    done = subprocess.run([churon, "serve", moved, "--record", tmp_path / "none"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "field --record: expected a folder that exists" in done.stderr


def test_drain(churon, tmp_path):
    s = Server(churon, write_bundle(tmp_path / "b"))
    assert predict(s, {"instances": [SETOSA]})[0] == 200
    assert s.stop(signal.SIGTERM) == 0
