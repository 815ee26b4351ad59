"""Models that ask for too much time or memory: one line that names the node, soon; and allocations that fail.

Every model here would take many seconds or many gigabytes if it were let."""

import pathlib
import re
import subprocess
import time

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import small_graphs  # noqa: E402
from onnx import TensorProto as T  # noqa: E402
from onnx import helper as h  # noqa: E402
from onnx import numpy_helper as nh  # noqa: E402

F, D, I64, S, B = T.FLOAT, T.DOUBLE, T.INT64, T.STRING, T.BOOL
LIMIT = 0.3
SOON = 4  # seconds that a whole command may take: other work may run beside it


def node(op, inputs, outputs, domain="", **attributes):
    return h.make_node(op, inputs, outputs, name="the_node", domain=domain, **attributes)


def value(name, kind=F, shape=None):
    return h.make_tensor_value_info(name, kind, shape)


def save(path, nodes, outputs, constants=(), inputs=(), opset=22):
    graph = h.make_graph(nodes, "g", list(inputs), list(outputs), [nh.from_array(np.asarray(v), k) for k, v in constants])
    used = {n.domain for n in nodes} - {""}
    opsets = [h.make_opsetid("", opset)] + [h.make_opsetid(d, 5 if d == "ai.onnx.ml" else 1) for d in used]
    path.write_bytes(h.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def filled(name, shape, kind=np.float32, v=1):
    fill = h.make_node("ConstantOfShape", [name + "_shape"], [name], name=name, value=nh.from_array(np.array([v], kind)))
    return fill, (name + "_shape", np.int64(shape))


def run(churon, path, *more, **options):
    started = time.monotonic()
    done = subprocess.run([churon, "run", str(path), "--threads", "1", *more], capture_output=True, text=True, timeout=60, **options)
    return done, time.monotonic() - started


# ---- time -----------------------------------------------------------------------------------------------

LONG = {  # operator: inputs that are filled, constants, attributes
    "MatMul": ([("a", [5000, 5000]), ("b", [5000, 5000])], [], {}),
    "MatMul_double": ([("a", [3000, 3000], np.float64), ("b", [3000, 3000], np.float64)], [], {}),
    "MatMul_int": ([("a", [2500, 2500], np.int32), ("b", [2500, 2500], np.int32)], [], {}),
    "Gemm": ([("a", [5000, 5000]), ("b", [5000, 5000])], [], dict(transB=1)),
    "MatMulInteger": ([("a", [9000, 9000], np.uint8), ("b", [9000, 9000], np.uint8)], [], {}),
    "Conv": ([("x", [1, 256, 256, 256]), ("w", [256, 256, 7, 7])], [], {}),
    "Conv_double": ([("x", [1, 16, 512, 512], np.float64), ("w", [16, 16, 9, 9], np.float64)], [], {}),
    "Conv_one_plane": ([("x", [1, 1, 1500, 1500], np.float64), ("w", [1, 1, 61, 61], np.float64)], [], {}),
    "ConvTranspose": ([("x", [1, 64, 40, 40, 40]), ("w", [64, 64, 5, 5, 5])], [], {}),
    "ConvInteger": ([("x", [1, 256, 256, 256], np.uint8), ("w", [256, 256, 9, 9], np.uint8)], [], {}),
    "DeformConv": ([("x", [1, 64, 256, 256]), ("w", [64, 64, 7, 7]), ("o", [1, 98, 250, 250])], [], {}),
    "Einsum": ([("a", [4000, 4000]), ("b", [4000, 4000])], [], dict(equation="ij,kj->ik")),
    "Resize": ([("x", [1, 16, 128, 128])], [("", []), ("s", np.float32([1, 1, 30, 30]))], dict(mode="cubic")),
    "Resize_line": ([("x", [1000000])], [("", []), ("s", np.float32([300]))], dict(mode="linear")),
    "TopK": ([("x", [30000000])], [("k", np.int64([15000000]))], {}),
    "CumSum": ([("x", [2, 200000000], np.float32)], [("axis", np.int64(1))], {}),
    "NonMaxSuppression": ([("b", [1, 60000, 4]), ("s", [1, 1, 60000])], [("most", np.int64([60000])), ("iou", np.float32([1]))], {}),
    "Attention": ([("q", [1, 8, 16384, 64]), ("k", [1, 8, 16384, 64]), ("v", [1, 8, 16384, 64])], [], {}),
    "LSTM": ([("x", [30000, 4, 128]), ("w", [1, 2048, 128]), ("r", [1, 2048, 512])], [], dict(hidden_size=512)),
    "MaxPool": ([("x", [1, 16, 1200, 1200], np.float64)], [], dict(kernel_shape=[25, 25])),
    "LpPool": ([("x", [1, 1, 3000, 3000])], [], dict(kernel_shape=[61, 61])),
    "LRN": ([("x", [1, 512, 300, 300])], [], dict(size=301)),
    "DFT": ([("x", [1, 3000017, 1])], [], {}),
    "Unique": ([("x", [20000000])], [], {}),
    "Range": ([], [("from", np.int64(0)), ("to", np.int64(600000000)), ("by", np.int64(1))], {}),
    "HannWindow": ([], [("n", np.int64(200000000))], {}),
    "MelWeightMatrix": ([], [("a", np.int64(20000)), ("b", np.int64(40000)), ("c", np.int64(16000)), ("d", np.float32(0)), ("e", np.float32(8000))], {}),
    "RoiAlign": ([("x", [1, 64, 64, 64]), ("r", [4, 4]), ("i", [4], np.int64, 0)], [], dict(output_height=100, output_width=100, sampling_ratio=64)),
    "AffineGrid": ([("t", [1, 2, 3])], [("size", np.int64([1, 1, 9000, 9000]))], {}),
    "Multinomial": ([("x", [1000, 10000])], [], dict(sample_size=10000)),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_a_long_node_ends(churon, tmp_path, name):
    bigs, constants, attributes = LONG[name]
    fills = [filled(*b) for b in bigs]
    inputs = [b[0] for b in bigs] + [k for k, _ in constants]
    kept = [c for c in constants if c[0]] + [f[1] for f in fills]
    long_one = node(name.split("_")[0], inputs, ["y", "z"][: 2 if name == "TopK" else 1], **attributes)
    save(tmp_path / "m.onnx", [f[0] for f in fills] + [long_one], [h.make_empty_tensor_value_info("y")], kept, opset=23)
    done, took = run(churon, tmp_path / "m.onnx", "--timeout", str(LIMIT))
    found = re.search(r"node '(\w+)' \((\w+)\): time: expected at most 0\.3 s, got ([\d.]+) s\n$", done.stderr)
    assert done.returncode == 1 and found, done.stderr
    assert float(found.group(3)) < LIMIT + 1 and took < SOON, done.stderr


def loops():
    turn = h.make_graph(
        [h.make_node("Identity", ["c"], ["c1"]), h.make_node("Sin", ["v"], ["v1"])], "turn",
        [value("i", I64, []), value("c", B, []), value("v", F, [1])], [value("c1", B, []), value("v1", F, [1])],
    )  # fmt: skip
    endless = [("n", np.int64(2**62)), ("go", np.bool_(True)), ("v", np.float32([1]))]
    yield "loop", [node("Loop", ["n", "go", "v"], ["y"], body=turn)], endless, "the_node' \\(Loop|'v1' \\(Sin"
    step = h.make_graph([h.make_node("Add", ["s", "e"], ["t"]), h.make_node("Identity", ["t"], ["o"])], "step", [value("s", F, [1]), value("e", F, [1])], [value("t", F, [1]), value("o", F, [1])])
    fill, size = filled("x", [100000000, 1])
    yield "scan", [fill, node("Scan", ["v", "x"], ["y", "all"], body=step, num_scan_inputs=1)], endless[2:] + [size], ""
    branch = h.make_graph([h.make_node("MatMul", ["a", "a"], ["o"])], "branch", [], [value("o")])
    fill, size = filled("a", [5000, 5000])
    yield "if", [fill, node("If", ["go"], ["y"], then_branch=branch, else_branch=branch)], endless[1:2] + [size], "MatMul|ConstantOfShape|If"


@pytest.mark.parametrize("name, nodes, constants, where", loops(), ids=lambda v: v if isinstance(v, str) and v.isalpha() else "")
def test_control_flow_ends(churon, tmp_path, name, nodes, constants, where):
    save(tmp_path / "m.onnx", nodes, [value("y")], constants)
    for command in ("run",), ("bench",), ("verify", "--passes"), ("verify", "--nodes"):
        started = time.monotonic()
        done = subprocess.run([churon, command[0], str(tmp_path / "m.onnx"), *command[1:], "--timeout", str(LIMIT)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "time: expected at most 0.3 s, got " in done.stderr, done.stderr
        assert re.search(where, done.stderr) and time.monotonic() - started < SOON, done.stderr


def test_constants_end_while_loading(churon, tmp_path):
    n = 4000
    nodes = [h.make_node("MatMul", ["w" if i == 0 else f"c{i - 1}", "w"], [f"c{i}"], name=f"c{i}") for i in range(8)]
    save(tmp_path / "m.onnx", [*nodes, h.make_node("Add", ["x", "c7"], ["y"])], [value("y")], [("w", np.zeros((n, n), np.float32))], [value("x", F, [1, 1])])
    done, took = run(churon, tmp_path / "m.onnx", "--timeout", str(LIMIT), "--record", '{"x": [[1]]}')
    assert done.returncode != 0 and re.search(r"load: node '\w+' \(\w+\): time: expected at most 0\.3 s, got ", done.stderr), done.stderr
    assert took < SOON


# ---- memory ---------------------------------------------------------------------------------------------

HUGE = 2**33
MUCH = {  # operator: constants in the order of the inputs ("": absent), attributes, what the line says
    "ConstantOfShape": ([("s", np.int64([HUGE]))], {}, "expected at most"),
    "ConstantOfShape_overflow": ([("s", np.int64([2**40, 2**40]))], {}, "expected at most"),
    "ConstantOfShape_negative": ([("s", np.int64([-5]))], {}, "at least 0"),
    "Range": ([("a", np.int64(0)), ("b", np.int64(HUGE)), ("c", np.int64(1))], {}, "expected at most"),
    "Range_overflow": ([("a", np.int64(-(2**62))), ("b", np.int64(2**62)), ("c", np.int64(1))], {}, "expected"),
    "Range_infinite": ([("a", np.float32(0)), ("b", np.float32(np.inf)), ("c", np.float32(1))], {}, "finite"),
    "Expand": ([("x", np.ones(1, np.float32)), ("s", np.int64([HUGE]))], {}, "expected at most"),
    "Tile": ([("x", np.ones(4, np.float32)), ("s", np.int64([HUGE]))], {}, "expected at most"),
    "Tile_overflow": ([("x", np.ones(4, np.float32)), ("s", np.int64([2**62]))], {}, "expected"),
    "Pad": ([("x", np.ones(4, np.float32)), ("p", np.int64([HUGE, HUGE]))], {}, "expected at most"),
    "Pad_overflow": ([("x", np.ones(4, np.float32)), ("p", np.int64([2**62, 2**62]))], {}, "expected"),
    "Resize": ([("x", np.ones((1, 1, 2, 2), np.float32)), ("", 0), ("s", np.float32([1, 1, 1e5, 1e5]))], {}, "expected at most"),
    "Resize_infinite": ([("x", np.ones((1, 1, 2, 2), np.float32)), ("", 0), ("s", np.float32([1, 1, np.inf, 1]))], {}, "expected"),
    "Resize_sizes": ([("x", np.ones((1, 1, 2, 2), np.float32)), ("", 0), ("", 0), ("z", np.int64([1, 1, 2**40, 2**40]))], {}, "expected"),
    "OneHot": ([("i", np.int64([1])), ("d", np.int64(HUGE)), ("v", np.float32([0, 1]))], {}, "expected at most"),
    "OneHot_wide": ([("i", np.int64([1])), ("d", np.float32(1e30)), ("v", np.float32([0, 1]))], {}, "depth"),
    "ConvTranspose": ([("x", np.ones((1, 1, 3, 3), np.float32)), ("w", np.ones((1, 1, 3, 3), np.float32))], dict(strides=[2**30, 2**30]), "expected"),
    "ConvTranspose_padding": ([("x", np.ones((1, 1, 3, 3), np.float32)), ("w", np.ones((1, 1, 3, 3), np.float32))], dict(strides=[2**17, 2**17], output_padding=[2**17 - 1] * 2), "expected at most"),
    "Conv": ([("x", np.ones((1, 1, 3, 3), np.float32)), ("w", np.ones((1, 1, 3, 3), np.float32))], dict(pads=[2**16] * 4), "expected at most"),
    "MaxPool": ([("x", np.ones((1, 1, 3, 3), np.float32))], dict(kernel_shape=[2**17, 2**17], pads=[2**17 - 1] * 4), "expected"),
    "HannWindow": ([("n", np.int64(HUGE))], {}, "expected at most"),
    "MelWeightMatrix": ([("a", np.int64(2**17)), ("b", np.int64(2**17)), ("c", np.int64(16000)), ("d", np.float32(0)), ("e", np.float32(8000))], {}, "expected at most"),
    "STFT": ([("x", np.ones((1, 2**22, 1), np.float32)), ("s", np.int64(1)), ("w", np.ones(2**14, np.float32))], {}, "expected at most"),
    "DFT": ([("x", np.ones((1, 4, 1), np.float32)), ("n", np.int64(2**40))], {}, "expected at most"),
    "RandomNormal": ([], dict(shape=[2**17, 2**17]), "expected at most"),
    "RandomUniform": ([], dict(shape=[2**40, 2**40]), "expected"),
    "EyeLike": ([("x", np.ones((1, 1), np.float32))], dict(k=2**40), "k"),
    "Einsum": ([("x", np.ones(2**17, np.float32)), ("z", np.ones(2**17, np.float32))], dict(equation="i,j->ij"), "expected at most"),
    "AffineGrid": ([("t", np.ones((1, 2, 3), np.float32)), ("s", np.int64([1, 1, 2**17, 2**17]))], {}, "expected at most"),
    "Multinomial": ([("x", np.ones((50, 3), np.float32))], dict(sample_size=2**31 - 1), "expected at most"),
    "Upsample": ([("x", np.ones((1, 1, 2, 2), np.float32)), ("s", np.float32([1, 1, 2**20, 2**20]))], {}, ""),
    "DepthToSpace": ([("x", np.ones((1, 4, 2, 2), np.float32))], dict(blocksize=2**40), "blocksize"),
    "Split": ([("x", np.ones(4, np.float32)), ("s", np.int64([2**62]))], {}, "split"),
    "Reshape": ([("x", np.ones(4, np.float32)), ("s", np.int64([2**32, 2**32]))], {}, ""),
    "TopK": ([("x", np.ones(4, np.float32)), ("k", np.int64([2**62]))], {}, "K"),
    "MaxUnpool": ([("x", np.ones((1, 1, 2, 2), np.float32)), ("i", np.zeros((1, 1, 2, 2), np.int64)), ("s", np.int64([1, 1, 2**17, 2**17]))], dict(kernel_shape=[2, 2]), "expected at most"),
    "Col2Im": ([("x", np.ones((1, 4, 9), np.float32)), ("i", np.int64([2**31 - 1, 2**31 - 1])), ("b", np.int64([2, 2]))], {}, "expected"),
    "CategoryMapper": ([("x", np.int64([2**62]))], dict(domain="ai.onnx.ml", cats_int64s=[1], cats_strings=["a" * 100]), None),
    "GatherND": ([("x", np.ones(4, np.float32)), ("i", np.zeros((2, 0), np.int64))], {}, "indices"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUCH)
def test_sizes_are_checked_before_memory_is_asked_for(churon, tmp_path, name):
    constants, attributes, part = MUCH[name]
    opset = 9 if name == "Upsample" else 22
    long_one = node(name.split("_")[0], [k for k, _ in constants], ["y", "z"][: 2 if name == "TopK" else 1], **attributes)
    save(tmp_path / "m.onnx", [long_one], [h.make_empty_tensor_value_info("y")], [c for c in constants if c[0]], opset=opset)
    done, took = run(churon, tmp_path / "m.onnx", "--output-dir", str(tmp_path))
    if part is None:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done.stderr
    assert "'the_node'" in done.stderr and part in done.stderr and took < SOON, done.stderr


def growing():
    """A state that doubles in a loop without an end."""
    going = [("n", np.int64(2**62)), ("go", np.bool_(True))]

    def loop(step, kind, start):
        body = h.make_graph(
            [h.make_node("Identity", ["c"], ["c1"]), *step], "body", [value("i", I64, []), value("c", B, []), h.make_tensor_value_info("v", kind, None)],
            [value("c1", B, []), h.make_tensor_value_info("v1", kind, None)],
        )  # fmt: skip
        return [h.make_node("Loop", ["n", "go", "v0"], ["y"], body=body)], [*going, ("v0", start)]

    text = np.array(["abcdefgh" * 8], object)
    yield "StringConcat", *loop([node("StringConcat", ["v", "v"], ["v1"])], S, text)
    yield "RegexReplace", *loop([node("StringConcat", ["v", "v"], ["w"]), h.make_node("Concat", ["w", "w"], ["v1"], axis=0)], S, text)
    yield "Concat", *loop([node("Concat", ["v", "v"], ["v1"], axis=0)], F, np.ones(4, np.float32))
    yield "Tile", *loop([h.make_node("Constant", [], ["k"], value_ints=[3]), node("Tile", ["v", "k"], ["v1"])], F, np.ones(4, np.float32))
    yield "Expand", *loop([h.make_node("Shape", ["v"], ["s"]), h.make_node("Add", ["s", "s"], ["t"]), node("ConstantOfShape", ["t"], ["v1"])], F, np.ones(4, np.float32))
    yield "Cast", *loop([h.make_node("Concat", ["v", "v"], ["w"], axis=0), h.make_node("Cast", ["w"], ["f"], to=F), node("Cast", ["f"], ["v1"], to=S)], S, np.array(["1.5"], object))


@pytest.mark.parametrize("name, nodes, constants", growing(), ids=lambda v: v if isinstance(v, str) else "")
def test_what_grows_in_a_loop_reaches_the_limit(churon, tmp_path, name, nodes, constants):
    kind = S if constants[2][1].dtype == object else F
    save(tmp_path / "m.onnx", nodes, [h.make_tensor_value_info("y", kind, None)], constants)
    tool = pathlib.Path(churon).parent / "tools" / "graph_limit"
    done = subprocess.run([str(tool), str(tmp_path / "m.onnx"), str(64 << 20)], capture_output=True, text=True, timeout=60)
    words = done.stdout.split()
    assert done.returncode == 0 and words[0] == "limit" and int(words[1]) < 192 << 10, done.stdout + done.stderr


def test_empty_tensors_of_huge_dimensions_are_refused(churon, tmp_path):
    def empty(name, dims, kind=F):
        return onnx.TensorProto(name=name, data_type=kind, dims=dims, raw_data=b"")

    graph = h.make_graph([node("ScatterND", ["x", "i", "u"], ["y"])], "g", [], [value("y")], [empty("x", [0]), empty("i", [2**61, 0], I64), empty("u", [2**61, 0])])
    (tmp_path / "m.onnx").write_bytes(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9).SerializeToString())
    done, _ = run(churon, tmp_path / "m.onnx")
    assert done.returncode == 1 and "graph.initializer[1]: dims: expected at most" in done.stderr, done.stderr


# ---- allocations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", small_graphs.build())
def test_every_allocation_may_fail(churon, tmp_path, name):
    (tmp_path / "m.onnx").write_bytes(small_graphs.build()[name])
    tool = pathlib.Path(churon).parent / "tools" / "graph_fail"
    done = subprocess.run([str(tool), str(tmp_path / "m.onnx")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and int(done.stdout.split()[0]) > 100, done.stderr
