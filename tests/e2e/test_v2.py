"""`churon serve MODEL.onnx`: the Open Inference Protocol, version 2, as its clients speak it and as others do not."""

import gzip
import json
import socket
import threading
import time
import zlib

import numpy as np
import pytest
from serve_helper import Server, read_response

onnx = pytest.importorskip("onnx")
httpclient = pytest.importorskip("tritonclient.http")
from onnx import TensorProto as T  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402
from tritonclient.utils import InferenceServerException, np_to_triton_dtype  # noqa: E402

DTYPES = {"BOOL": T.BOOL, "UINT8": T.UINT8, "UINT16": T.UINT16, "UINT32": T.UINT32, "UINT64": T.UINT64, "INT8": T.INT8,
          "INT16": T.INT16, "INT32": T.INT32, "INT64": T.INT64, "FP16": T.FLOAT16, "FP32": T.FLOAT, "FP64": T.DOUBLE,
          "BYTES": T.STRING, "BF16": T.BFLOAT16}
LENGTH = "Inference-Header-Content-Length"


def save(path, nodes, inputs, outputs, initializers=(), opset=17):
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return str(path)


def port(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


@pytest.fixture(scope="module")
def linear(churon, tmp_path_factory):
    """Y = relu(X W + B), Z = shape(X)."""
    w = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "W")
    b = numpy_helper.from_array(np.array([1, -1], dtype=np.float32), "B")
    nodes = [helper.make_node("Gemm", ["X", "W", "B"], ["u"]), helper.make_node("Relu", ["u"], ["Y"]),
             helper.make_node("Shape", ["X"], ["Z"])]
    path = save(tmp_path_factory.mktemp("v2") / "linear.onnx", nodes, [port("X", T.FLOAT, ["N", 3])],
                [port("Y", T.FLOAT, ["N", 2]), port("Z", T.INT64, [2])], [w, b])
    with Server(churon, path) as s:
        yield s


@pytest.fixture(scope="module")
def echo(churon, tmp_path_factory):
    """Every datatype as it came: o_FP32 = i_FP32, …"""
    nodes = [helper.make_node("Identity", [f"i_{d}"], [f"o_{d}"]) for d in DTYPES]
    path = save(tmp_path_factory.mktemp("v2") / "echo.onnx", nodes, [port(f"i_{d}", t, [None, None]) for d, t in DTYPES.items()],
                [port(f"o_{d}", t, [None, None]) for d, t in DTYPES.items()])
    with Server(churon, path, "--name", "echo") as s:
        yield s


@pytest.fixture(scope="module")
def endless(churon, tmp_path_factory):
    """Loops as often as `n` says, so that a request takes as long as a test needs."""
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["a", "one"], ["b"])], "body",
                             [port("i", T.INT64, []), port("c", T.BOOL, []), port("a", T.INT64, [])],
                             [port("d", T.BOOL, []), port("b", T.INT64, [])],
                             [numpy_helper.from_array(np.array(1, np.int64), "one")])
    nodes = [helper.make_node("Loop", ["n", "", "zero"], ["total"], body=body)]
    path = save(tmp_path_factory.mktemp("v2") / "endless.onnx", nodes, [port("n", T.INT64, [])], [port("total", T.INT64, [])],
                [numpy_helper.from_array(np.array(0, np.int64), "zero")])
    with Server(churon, path, "--max-queue", "2", "--timeout", "100") as s:
        yield s


def sample(datatype):
    values = {"BOOL": np.array([[True, False, True]]), "BYTES": np.array([["", "é\"\n", "추론\0."]], dtype=object),
              "FP32": np.array([[0.1, -3.4028235e38, 1e-45]], np.float32), "FP64": np.array([[0.1, 1e308, -5e-324]]),
              "FP16": np.array([[0.5, -65504, 6e-8]], np.float16), "BF16": np.array([[0.5, -1.5, 256]], np.float32)}
    if datatype in values:
        return values[datatype]
    info = np.iinfo(datatype.lower())
    return np.array([[info.min, info.max, 7]], info.dtype)


def client(s):
    return httpclient.InferenceServerClient(f"{s.host}:{s.port}", network_timeout=60, connection_timeout=60)


def test_what_the_server_and_the_model_are(linear):
    c = client(linear)
    assert c.is_server_live() and c.is_server_ready() and c.is_model_ready("linear") and c.is_model_ready("linear", "1")
    assert not c.is_model_ready("other") and not c.is_model_ready("linear", "2")
    assert c.get_server_metadata()["name"] == "churon"
    assert "binary_tensor_data" in c.get_server_metadata()["extensions"]
    want = {"name": "linear", "versions": ["1"], "platform": "churon_onnx",
            "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 3]}],
            "outputs": [{"name": "Y", "datatype": "FP32", "shape": [-1, 2]}, {"name": "Z", "datatype": "INT64", "shape": [2]}]}
    assert c.get_model_metadata("linear") == want == c.get_model_metadata("linear", "1")
    config = c.get_model_config("linear")
    assert config["input"] == [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1, 3]}] and config["max_batch_size"] == 0
    assert c.get_model_repository_index() == [{"name": "linear", "version": "1", "state": "READY", "reason": ""}]
    before = c.get_inference_statistics("linear")["model_stats"][0]["inference_count"]
    x = httpclient.InferInput("X", [1, 3], "FP32")
    x.set_data_from_numpy(np.zeros((1, 3), np.float32))
    c.infer("linear", [x])
    stats = c.get_inference_statistics("linear")["model_stats"][0]
    assert stats["inference_count"] == before + 1 and stats["inference_stats"]["compute_infer"]["ns"] > 0


@pytest.mark.parametrize("to_server", [True, False])
@pytest.mark.parametrize("from_server", [True, False])
def test_every_datatype_through_tritonclient(echo, to_server, from_server):
    c = client(echo)
    inputs, outputs = [], []
    for d in DTYPES:
        x = sample(d)
        half = d in ("FP16", "BF16")
        i = httpclient.InferInput(f"i_{d}", list(x.shape), d)
        i.set_data_from_numpy(x, binary_data=to_server or half)
        inputs.append(i)
        outputs.append(httpclient.InferRequestedOutput(f"o_{d}", binary_data=from_server or half))
    answer = c.infer("echo", inputs, outputs=outputs, request_id="r-1")
    assert answer.get_response()["id"] == "r-1" and answer.get_response()["model_version"] == "1"
    for d in DTYPES:
        got = answer.as_numpy(f"o_{d}")
        want = sample(d)
        if d == "BYTES":
            got, want = [[g if isinstance(g, bytes) else g.encode() for g in row] for row in got], [[w.encode() for w in want[0]]]
            assert got == want
        else:
            assert got.dtype == want.dtype and np.array_equal(got, want), (d, got, want)


def test_all_outputs_when_none_is_named(linear):
    c = client(linear)
    x = httpclient.InferInput("X", [2, 3], "FP32")
    x.set_data_from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    answer = c.infer("linear", [x], model_version="1")
    assert np.array_equal(answer.as_numpy("Y"), [[11, 12], [29, 39]]) and list(answer.as_numpy("Z")) == [2, 3]
    answer = c.infer("linear", [x], outputs=[httpclient.InferRequestedOutput("Z", binary_data=False)])
    assert answer.get_response()["outputs"] == [{"name": "Z", "datatype": "INT64", "shape": [2], "data": [2, 3]}]
    futures = [c.async_infer("linear", [x]) for _ in range(8)]
    assert all(np.array_equal(f.get_result().as_numpy("Y"), [[11, 12], [29, 39]]) for f in futures)
    with pytest.raises(InferenceServerException, match="model: expected linear, got 'other'"):
        c.infer("other", [x])


def infer(s, body, headers=None, model="linear"):
    status, head, data = s.request(f"/v2/models/{model}/infer", body, headers)
    return status, head, data


def x_input(**fields):
    return {"name": "X", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3], **fields}


def test_plain_json(linear):
    status, head, data = infer(linear, {"id": "7", "inputs": [x_input()]})
    assert status == 200 and head["Content-Type"] == "application/json" and head["X-Churon-Digest"]
    assert data == (b'{"model_name":"linear","model_version":"1","id":"7","outputs":['
                    b'{"name":"Y","datatype":"FP32","shape":[1,2],"data":[17,21]},'
                    b'{"name":"Z","datatype":"INT64","shape":[2],"data":[1,3]}]}')
    nested = infer(linear, {"inputs": [x_input(data=[[1, 2, 3]])]})
    reordered = infer(linear, b'{"outputs":[],"inputs":[{"data":[1,2.0,30e-1],"datatype":"FP32","shape":[1,3],"name":"X"}]}')
    assert nested[0] == reordered[0] == 200 and json.loads(nested[2])["outputs"] == json.loads(reordered[2])["outputs"]
    empty = json.loads(infer(linear, {"inputs": [x_input(shape=[0, 3], data=[])]})[2])
    assert empty["outputs"][0] == {"name": "Y", "datatype": "FP32", "shape": [0, 2], "data": []}


def test_floats_come_back_as_they_were(echo):
    """Random bit patterns, the edges of every decade, and what JSON has no number for."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    tens = np.array([m * 10.0**e for e in range(-44, 38) for m in (1, 9.999999, 2, 3.3333333, -1)], np.float32)
    near = np.nextafter(tens, np.float32(0))
    f32 = np.concatenate([bits, tens, near, rng.random(5000, np.float32), np.array([0.0, -0.0, np.inf, -np.inf], np.float32)])
    f32 = np.concatenate([f32[~np.isnan(f32)], np.array([np.nan], np.float32)])
    f64 = rng.integers(0, 2**64, 3000, dtype=np.uint64).view(np.float64)
    f64 = np.concatenate([f64[~np.isnan(f64)], [0.1, 5e-324, 1.7976931348623157e308]])
    c = client(echo)
    inputs = []
    for d in DTYPES:
        x = {"FP32": f32[None], "FP64": f64[None]}.get(d, sample(d))
        i = httpclient.InferInput(f"i_{d}", list(x.shape), d)
        i.set_data_from_numpy(x, binary_data=d not in ("FP32", "FP64"))
        inputs.append(i)
    names = [("o_FP32", f32), ("o_FP64", f64)]
    answer = c.infer("echo", inputs, outputs=[httpclient.InferRequestedOutput(n, binary_data=False) for n, _ in names])
    for name, want in names:
        got = answer.as_numpy(name)[0]
        assert got.tobytes() == want.tobytes() or np.array_equal(got, want, equal_nan=True), name
        assert np.array_equal(np.signbit(got[:-1]), np.signbit(want[:-1]))


WRONG = [
    ({}, "inputs: expected it, got none"),
    ({"inputs": []}, "inputs: expected 'X' (FP32), got none"),
    ({"inputs": [x_input()], "input": 1}, "input: expected id, parameters, inputs and outputs, got another member"),
    ({"inputs": [x_input(name="Q")]}, "inputs[0].name: expected 'X', got 'Q'"),
    ({"inputs": [x_input(), x_input()]}, "input 'X': expected once, got twice"),
    ({"inputs": [x_input(datatype="INT64")]}, "input 'X': datatype: expected FP32, got 'INT64'"),
    ({"inputs": [{"name": "X", "shape": [1, 3], "data": [1, 2, 3]}]}, "input 'X': datatype: expected FP32, got none"),
    ({"inputs": [{"name": "X", "datatype": "FP32", "data": [1]}]}, "input 'X': shape: expected it, got none"),
    ({"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 3]}]},
     "input 'X': expected data or parameters.binary_data_size, got none"),
    ({"inputs": [x_input(shape=[1, 4])]}, "input 'X': expected 4 elements as the shape says, got 3"),
    ({"inputs": [x_input(shape=[1, 2])]}, "input 'X': expected 2 elements as the shape says, got more"),
    ({"inputs": [x_input(shape=[3])]}, "input 'X': expected rank 2, got 1"),
    ({"inputs": [x_input(shape=[3, 1])]}, "input 'X': expected dimension 1 to be 3, got 1"),
    ({"inputs": [x_input(shape=[-1, 3])]}, "input 'X': dimension 0: expected 0 or more, got -1"),
    ({"inputs": [x_input(shape=[2**40, 2**40])]}, "input 'X': expected at most 17179869184 elements of float32, got more"),
    ({"inputs": [x_input(shape=[10**9, 3])]}, "input 'X': expected 3000000000 elements as the shape says, got"),
    ({"inputs": [x_input(shape=[1] * 13)]}, "inputs[0].shape: expected at most 12 dimensions, got more"),
    ({"inputs": [x_input(data=[[1, 2], [3]])]}, "input 'X': expected 3 items in dimension 1 as the shape says, got 2"),
    ({"inputs": [x_input(data=[[[1, 2, 3]]])]}, "input 'X': expected numbers flat or nested as the shape of rank 2, got other nesting"),
    ({"inputs": [x_input(data=[1, [2, 3]])]}, "input 'X': expected numbers flat or nested as the shape of rank 2, got other nesting"),
    ({"inputs": [x_input(data=[1, "2", 3])]}, "input 'X': expected a number, got '\"2\"'"),
    ({"inputs": [x_input(data=[1, None, 3])]}, "input 'X': expected a number, got 'null'"),
    ({"inputs": [x_input(data=3)]}, "input 'X': expected '[', got '3'"),
    ({"inputs": [x_input(data=[1, 1e39, 3])]}, "input 'X': expected a number in the range of float32, got '1e+39'"),
    ({"inputs": [x_input(extra=1)]}, "input 'X'.extra: expected name, shape, datatype, parameters and data, each once"),
    ({"inputs": [x_input(parameters={"shared_memory_region": "r"})]},
     "input 'X'.parameters.shared_memory_region: expected it absent, which this server does not have"),
    ({"inputs": [x_input()], "outputs": [{"name": "W"}]}, "outputs[0].name: expected an output of the model, got 'W'"),
    ({"inputs": [x_input()], "outputs": [{"name": "Y"}, {"name": "Y"}]}, "output 'Y': expected once, got twice"),
    ({"inputs": [x_input()], "parameters": {"sequence_id": 5}},
     "parameters.sequence_id: expected it absent, which this server does not have"),
    ({"inputs": [x_input()], "id": 5}, "id: expected a string, got '5'"),
    ({"inputs": [x_input(shape=["1", 3])]}, "inputs[0].shape: expected an integer of 64 bits, got '\"1\"'"),
    ({"inputs": [x_input(shape=[1.0, 3])]}, "inputs[0].shape: expected an integer of 64 bits, got '1.0'"),
    ({"inputs": [x_input(shape=[2**63, 3])]}, "inputs[0].shape: expected an integer of 64 bits, got '9223372036854775808'"),
    ({"inputs": [x_input(shape=[0, 3])]}, "input 'X': expected 0 elements as the shape says, got more"),
    ({"inputs": [x_input(datatype="fp32")]}, "input 'X': datatype: expected FP32, got 'fp32'"),
    ({"inputs": [x_input(data=[True, 2, 3])]}, "input 'X': expected a number, got 'true'"),
    ({"inputs": [x_input()], "parameters": 1}, "parameters: expected '{', got '1'"),
    ({"inputs": [x_input()], "parameters": {"timeout": "5"}}, "parameters.timeout: expected an integer of 64 bits, 0 or more"),
    ({"inputs": [x_input()], "parameters": {"timeout": 2**70}}, "parameters.timeout: expected an integer of 64 bits, 0 or more"),
    ({"inputs": [x_input()], "parameters": {"binary_data_output": 1}}, "parameters.binary_data_output: expected true or false"),
    ({"inputs": [x_input()], "outputs": {}}, "outputs: expected '[', got '{'"),
    ({"inputs": [x_input()], "outputs": [{"name": "Y", "parameters": {"classification": 2}}]}, "outputs[0].parameters.classification"),
    (b'{"inputs":[],"inputs":[]}', "inputs: expected once, got twice"),
    (b'{"inputs":[{"name":"X","shape":[1,3],"datatype":"FP32","data":[1,2,3],"data":[1,2,3]}]}', "input 'X'.data: expected name, shape"),
    (b'{"inputs":[{"name":"X","shape":[1,3],"datatype":"FP32","data":[nan,2,3]}]}', "input 'X': expected a number, got 'nan'"),
    (b"", "body: expected '{', got the end"),
    (b"[1]", "body: expected '{', got '[1'"),
    (b'{"inputs":[]} x', "body: expected one JSON object, got more behind it"),
    (b'{"inputs":[{"name":"X","shape":[1,3],"datatype":"FP32","data":[1,2,3,]}]}', "input 'X': expected 3 elements as the shape says, got more"),
    (b'{"inputs":[{"name":"X","shape":[1,3],"datatype":"FP32","data":[1,2,01]}]}', "input 'X': expected a number, got '01'"),
    (b'{"inputs":[{"name":"X","shape":[1,3],"datatype":"FP32","data":[1,2,1.]}]}', "input 'X': expected a number, got '1.'"),
    (b'{"inputs":[{"name":"X","shape":[1,3],"datatype":"FP32","data":[1,2', "input 'X': expected ',' or ']', got the end"),
    (b'{"id":"\xff","inputs":[]}', "id: expected UTF-8, got other bytes"),
    (b'{"id":"\\ud800","inputs":[]}', "id: expected a JSON escape, got another"),
    (b'{"parameters":{"a":' + b"[" * 100000, "parameters.a: expected at most 32 levels of nesting, got more"),
]


@pytest.mark.parametrize("body,message", WRONG, ids=[m for _, m in WRONG])
def test_wrong_requests_are_told_what_was_wrong(linear, body, message):
    status, _, data = infer(linear, body)
    assert status == 400 and json.loads(data)["error"].startswith(message), data
    assert linear.request("/v2/health/ready")[0] == 200


def test_wrong_elements_of_every_type(echo):
    for d, bad in [("UINT8", "256"), ("INT8", "-129"), ("UINT64", "-1"), ("UINT64", "18446744073709551616"),
                   ("INT64", "9223372036854775808"), ("INT32", "1.5"), ("INT16", "1e3"), ("BOOL", "1"), ("BYTES", "1"),
                   ("FP64", "1e999"), ("FP16", "1"), ("BF16", "1")]:
        body = '{"inputs":[{"name":"i_%s","datatype":"%s","shape":[1,1],"data":[%s]}]}' % (d, d, bad)
        status, _, data = infer(echo, body.encode(), model="echo")
        assert status == 400 and json.loads(data)["error"].startswith(f"input 'i_{d}': expected "), (d, bad, data)


def binary(header, *tensors, length=None):
    text = json.dumps(header).encode()
    return text + b"".join(tensors), {LENGTH: str(len(text) if length is None else length), "Content-Type": "application/octet-stream"}


def test_wrong_binary_requests(linear, echo):
    x = np.ones((1, 3), np.float32).tobytes()

    def ask(size, *tensors, length=None, s=linear, **fields):
        given = {k: v for k, v in x_input(parameters={"binary_data_size": size}, **fields).items() if k != "data"}
        status, _, data = infer(s, *binary({"inputs": [given]}, *tensors, length=length), model=s.model)
        return status, json.loads(data)["error" if status != 200 else "outputs"]

    assert ask(12, x)[0] == 200
    assert ask(8, x[:8]) == (400, "input 'X': expected 3 elements as the shape says, got 8 bytes of data")
    assert ask(16, x + b"1234") == (400, "input 'X': binary_data_size: expected 12 as shape and datatype say, got 16")
    assert ask(12, x[:11])[1] == "input 'X': binary_data_size: expected at most 11 bytes, which the body has left, got 12"
    assert ask(12, x, b"!")[1] == "body: expected as many bytes as the inputs' binary_data_size say, got 1 more"
    assert ask(12, x, length=10**6)[1].startswith(f"{LENGTH}: expected a number of at most the body's ")
    assert ask(12, x, length="-1")[1].startswith(f"{LENGTH}: expected a number")
    assert ask(12, x, length=5)[0] == ask(12, x, length=0)[0] == ask(12, x, length="+9")[0] == ask(12, x, length=2**64)[0] == 400
    for size in (-12, 12.0, "12", 2**64, None):
        assert ask(size, x)[0] == 400
    both = {**x_input(), "parameters": {"binary_data_size": 12}}
    status, _, data = infer(linear, *binary({"inputs": [both]}, x))
    assert status == 400 and "expected data or parameters.binary_data_size, got both" in json.loads(data)["error"]
    assert ask(0, shape=[0, 3])[1][0]["shape"] == [0, 2]
    with linear.socket() as s:
        s.sendall(b"POST /v2/models/linear/infer HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999999999999999\r\n\r\n{}")
        assert read_response(s)[2].count(b"got a Content-Length of 18446744073709551615 or more") == 1
    word = {"name": "i_BYTES", "datatype": "BYTES", "shape": [1, 2], "s": echo}
    assert ask(8, b"\0" * 8, **word)[1].startswith("inputs: expected 'i_BOOL'")
    assert ask(9, b"\xff\xff\xff\xff.....", **word)[1] == \
        "input 'i_BYTES': element 0: expected at most 5 bytes, which are left, got a length of 4294967295"
    assert ask(9, b"\0" * 9, **word)[1] == "input 'i_BYTES': expected 2 elements as the shape says, got 1 bytes more"
    assert ask(2, b"\1\2", name="i_BOOL", datatype="BOOL", shape=[1, 2], s=echo)[1] == \
        "input 'i_BOOL': element 1: expected 0 or 1, got 2"


def test_paths_methods_and_types(linear):
    assert linear.json("/health") == (200, {"status": "ok"}) and linear.json("/ready") == (200, {"status": "ready"})
    status, version = linear.json("/version")
    assert status == 200 and version["model"] == "linear" and version["workers"] == 1 and len(version["digest"]) == 64
    assert linear.json("/v2/health/live") == (200, {"live": True})
    assert linear.json("/v2/models/linear/versions/2")[0] == 404
    assert linear.json("/v2/models/linear/explain")[0] == 404 and linear.json("/v1/chat/completions", {})[0] == 404
    status, head, data = linear.request("/v2/models/linear/infer")
    assert status == 405 and head["Allow"] == "POST" and json.loads(data)["error"]
    assert infer(linear, b"{}", {"Content-Type": "text/plain"})[0] == 415
    assert infer(linear, b"{}", {"Content-Encoding": "br"})[0] == 415
    assert infer(linear, {"inputs": [x_input()]}, {"X-Request-Id": "mine"})[1]["X-Churon-Request-Id"] == "mine"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_bodies(churon, linear, coding):
    """Through tritonclient, binary and JSON; what is no such stream, ends too early or becomes too large is refused."""
    c = client(linear)
    x = httpclient.InferInput("X", [2, 3], "FP32")
    for binary_data in (True, False):
        x.set_data_from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3), binary_data=binary_data)
        answer = c.infer("linear", [x], request_compression_algorithm=coding, response_compression_algorithm=coding)
        assert np.array_equal(answer.as_numpy("Y"), [[11, 12], [29, 39]])
    plain = json.dumps({"inputs": [x_input()]}).encode()
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}[coding]
    head = {"Content-Encoding": coding}
    status, _, data = infer(linear, packed(plain), head)
    assert status == 200 and json.loads(data)["outputs"][0]["data"] == [17, 21]
    if coding == "gzip":
        assert infer(linear, packed(plain[:9]) + packed(plain[9:]), head)[0] == 200, "files behind one another are one"
    for body, part in [(packed(plain)[:-3], "got its end too early"), (plain, "got other bytes"), (packed(plain) + b"x", "body: expected"),
                       (packed(plain)[:9] + b"\xff" * 20, "body: expected"), (packed(b""), "expected '{', got the end"),
                       (packed(b" " * (64 << 20) + plain), "expected at most 67108864 bytes once it is unpacked")]:
        status, _, data = infer(linear, body, head)
        assert status == (413 if "once" in part else 400) and part in json.loads(data)["error"], (part, data)
    status, _, data = infer(linear, packed(plain), {**head, LENGTH: "1000"})
    assert status == 400 and "expected at most the unpacked body's" in json.loads(data)["error"]
    record = json.dumps({"instances": [{"X": [[1, 2, 3]]}, {"X": [[4, 5, 6]]}]}).encode()  # Z has no rows: whole tensors
    status, _, data = linear.request("/v1/models/linear:predict", packed(record), head)
    assert status == 200, data
    status, _, data = linear.request("/v1/models/linear:predict", record, head)
    assert status == 400 and "got other bytes" in json.loads(data)["error"]


def test_metrics_count_what_happened(linear):
    def read():
        return {k.replace('model="linear",version="1"', "").replace("{}", ""): v for k, v in linear.metrics().items()}

    before = read()
    assert infer(linear, {"inputs": [x_input()]})[0] == 200 and infer(linear, {})[0] == 400
    after = read()
    for name, grew in [("nv_inference_request_success", 1), ("nv_inference_exec_count", 1),
                       ('nv_inference_request_failure{,reason="OTHER"}', 1), ("churon_inference_request_seconds_count", 1),
                       ('churon_http_responses_total{code="400"}', 1)]:
        assert after[name] - before.get(name, 0) == grew, name


def test_the_same_bytes_whatever_else_runs(linear):
    rng = np.random.default_rng(3)
    bodies = [{"inputs": [x_input(shape=[n, 3], data=rng.random((n, 3)).tolist())]} for n in (1, 2, 5, 33, 400)]
    alone = [infer(linear, b)[2] for b in bodies]
    wrong = []

    def ask(seed):
        for k in np.random.default_rng(seed).integers(0, len(bodies), 30):
            status, _, data = infer(linear, bodies[k])
            if status != 200 or data != alone[k]:
                wrong.append((status, data[:200]))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def n_input(n, **parameters):
    return {"inputs": [{"name": "n", "datatype": "INT64", "shape": [], "data": [n]}], "parameters": parameters}


FOREVER = 2**62


def waiting(s):
    return sum(v for k, v in s.metrics().items() if k.startswith("nv_inference_pending_request_count"))


def until(condition, within=20):
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def post(s, body):
    """A request whose answer is not waited for."""
    c = s.socket()
    data = json.dumps(body).encode()
    c.sendall(b"POST /v2/models/endless/infer HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
              % len(data) + data)
    return c


def test_deadline_queue_and_a_client_that_leaves(endless):
    status, _, data = infer(endless, n_input(5), model="endless")
    assert status == 200 and json.loads(data)["outputs"][0]["data"] == [5]
    started = time.monotonic()
    status, _, data = infer(endless, n_input(FOREVER, timeout=300000), model="endless")
    assert status == 504 and "time: expected at most" in json.loads(data)["error"] and time.monotonic() - started < 10
    running = post(endless, n_input(FOREVER))
    until(lambda: endless.json("/v2/models/stats")[0] == 200 and waiting(endless) == 0)
    time.sleep(0.3)
    queued = [post(endless, n_input(1)) for _ in range(2)]
    until(lambda: waiting(endless) == 2)
    status, head, data = infer(endless, n_input(1), model="endless")
    assert status == 429 and int(head["Retry-After"]) >= 1 and "queue" in json.loads(data)["error"]
    assert endless.request("/v2/health/ready")[0] == 200  # the loop is free
    queued[1].close()  # leaves the queue
    running.close()    # cancels what runs
    assert read_response(queued[0])[0] == 200
    until(lambda: any(k.startswith("nv_inference_request_failure") and "CANCELED" in k and v >= 2 for k, v in endless.metrics().items()))
    queued[0].close()


def test_sigterm_answers_what_was_taken(churon, linear, tmp_path):
    path = save(tmp_path / "id.onnx", [helper.make_node("Identity", ["a"], ["b"])], [port("a", T.INT64, [None])], [port("b", T.INT64, [None])])
    with Server(churon, path, "--workers", "2", "--threads", "1") as s:
        body = json.dumps({"inputs": [{"name": "a", "datatype": "INT64", "shape": [100000], "data": list(range(100000))}]}).encode()
        c = s.socket()
        c.sendall(b"POST /v2/models/id/infer HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                  % len(body) + body)
        time.sleep(0.05)
        s.process.terminate()
        status, _, data, _ = read_response(c)
        c.close()
        assert status == 200 and json.loads(data)["outputs"][0]["data"] == list(range(100000))
        with pytest.raises(OSError):
            for _ in range(100):
                socket.create_connection((s.host, s.port), 5).close()
                time.sleep(0.1)


def test_sigterm_leaves_no_request_without_an_answer(churon, tmp_path):
    """Busy connections that are kept, others that rest, one whose request arrives in two halves."""
    path = save(tmp_path / "id.onnx", [helper.make_node("Identity", ["a"], ["b"])], [port("a", T.INT64, [1])], [port("b", T.INT64, [1])])
    body = json.dumps({"inputs": [{"name": "a", "datatype": "INT64", "shape": [1], "data": [1]}]}).encode()
    head = b"POST /v2/models/id/infer HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    answers, lost = [], []

    def ask(s, i):
        c = None
        while True:
            try:
                c = c or s.socket()
            except OSError:
                return  # the port is closed: nothing was sent
            try:
                c.sendall(head + body)
                status, headers, _, _ = read_response(c)
                answers.append(status)
                if headers.get("connection") == "close":
                    assert c.recv(1) == b""
                    c = c.close()
                time.sleep(0.01 * (i % 3))
            except (OSError, AssertionError) as e:
                lost.append(repr(e))
                return

    with Server(churon, path, "--threads", "1") as s:
        resting = [s.socket() for _ in range(20)]
        halves = s.socket()
        halves.sendall(head[:30])
        threads = [threading.Thread(target=ask, args=(s, i)) for i in range(50)]
        for t in threads:
            t.start()
        time.sleep(0.5)
        before = time.monotonic()
        s.process.terminate()
        time.sleep(0.5)
        halves.sendall(head[30:] + body)
        assert read_response(halves)[0] == 503
        assert s.process.wait(20) == 0 and time.monotonic() - before < 8
        for t in threads:
            t.join()
        assert all(c.recv(1) == b"" for c in resting)
        assert not lost and answers.count(200) > 100 and set(answers) <= {200, 503}, (lost, len(answers))
        for c in [*resting, halves]:
            c.close()


def test_keys_and_names(churon, tmp_path):
    path = save(tmp_path / "id.onnx", [helper.make_node("Identity", ["a"], ["b"])], [port("a", T.INT64, [1])], [port("b", T.INT64, [1])])
    (tmp_path / "keys").write_text("secret-1\n")
    body = {"inputs": [{"name": "a", "datatype": "INT64", "shape": [1], "data": [1]}]}
    with Server(churon, path, "--name", "team/id", "--keys", str(tmp_path / "keys")) as s:
        assert s.request("/v2/models/team%2Fid/infer", body)[0] == 401
        assert s.request("/v2/models/team%2Fid/infer", body, {"Authorization": "Bearer secret-2"})[0] == 401
        assert s.request("/v2/models/team%2Fid/infer", body, {"Authorization": "Bearer secret-1"})[0] == 200
        assert s.request("/v2/health/ready")[0] == 200 and s.request("/metrics")[0] == 401


def test_outputs_that_the_protocol_has_no_name_for(churon, tmp_path):
    """A sequence beside a tensor: the tensor is served; a model with nothing else is refused."""
    nodes = [helper.make_node("SequenceConstruct", ["a"], ["s"]), helper.make_node("Identity", ["a"], ["b"])]
    sequence = helper.make_tensor_sequence_value_info("s", T.INT64, None)
    path = save(tmp_path / "seq.onnx", nodes, [port("a", T.INT64, [1])], [sequence, port("b", T.INT64, [1])])
    with Server(churon, path) as s:
        assert [o["name"] for o in s.json("/v2/models/seq")[1]["outputs"]] == ["b"]
        body = {"inputs": [{"name": "a", "datatype": "INT64", "shape": [1], "data": [4]}]}
        assert [o["data"] for o in s.json("/v2/models/seq/infer", body)[1]["outputs"]] == [[4]]
        status, answer = s.json("/v2/models/seq/infer", {**body, "outputs": [{"name": "s"}]})
        assert status == 400 and answer["error"].startswith("output 's': expected one that is a tensor")
    path = save(tmp_path / "only.onnx", nodes[:1], [port("a", T.INT64, [1])], [sequence])
    with pytest.raises(RuntimeError, match="outputs: expected a tensor of a type that the inference protocol has, got none"):
        Server(churon, path)
