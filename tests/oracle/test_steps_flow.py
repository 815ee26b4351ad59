"""Steps of the group flow against loops in Python, and the windowing of the silero-vad and basic-pitch packages."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from step_case import answers, number, one, refusal, run, tensor, write  # noqa: E402

RNG = np.random.default_rng(5)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def model_file(nodes, inputs, outputs):
    ports = [[helper.make_tensor_value_info(n, t, s) for n, t, s in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", ports[0], ports[1])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def double_model():
    return model_file([helper.make_node("Add", ["x", "x"], ["y"])], [("x", TensorProto.FLOAT, ["n", 3])],
                      [("y", TensorProto.FLOAT, ["n", 3])])


def recurrent_model():
    """state' = state * 0.5 + x; y = state' summed."""
    half = helper.make_node("Constant", [], ["half"], value_float=0.5)
    nodes = [half, helper.make_node("Mul", ["s", "half"], ["h"]), helper.make_node("Add", ["h", "x"], ["s2"]),
             helper.make_node("ReduceSum", ["s2"], ["y"], keepdims=0)]
    return model_file(nodes, [("x", TensorProto.FLOAT, [1, 4]), ("s", TensorProto.FLOAT, [1, 4])],
                      [("y", TensorProto.FLOAT, []), ("s2", TensorProto.FLOAT, [1, 4])])


# ---- for_each ----------------------------------------------------------------------------------------


EACH = [{"for_each": {"from": "rows", "as": "row", "index": "at",
                      "steps": [{"model": {"inputs": {"x": "row"}, "outputs": {"y": "double"}}}],
                      "collect": {"double": "list", "at": "places"}, "stack": {"double": "all"}}}]


def test_for_each_over_rows_of_a_tensor(tmp_path):
    records = [{"rows": f32(n, 3)} for n in (4, 0, 1, 7)]
    got = answers(tmp_path, {"rows": tensor("float32", -1, 3)}, EACH, records, files=[("m.onnx", double_model())],
                  model={"file": "m.onnx"})
    for record, answer in zip(records, got):
        want = record["rows"] * np.float32(2)
        assert answer["places"] == list(range(len(want)))
        assert np.array_equal(np.array(answer["all"], np.float32).reshape(-1, 3), want)
        assert answer["list"] == [[pytest.approx(float(v), rel=1e-7) for v in row] for row in want]


def test_for_each_alone_and_in_company_are_the_same(tmp_path):
    records = [{"rows": f32(n, 3)} for n in (5, 2, 9)]
    batch = answers(tmp_path, {"rows": tensor("float32", -1, 3)}, EACH, records, files=[("m.onnx", double_model())],
                    model={"file": "m.onnx"})
    assert run(tmp_path, records, "single") == batch


def test_for_each_over_a_list_with_another(tmp_path):
    steps = [{"for_each": {"from": "texts", "with": {"numbers": "k"},
                           "steps": [{"rename": {"field": "item", "into": "same"}}, {"rename": {"field": "k", "into": "kk"}}],
                           "collect": {"same": "out"}, "stack": {"kk": "ks"}}}]
    inputs = {"texts": {"type": "list", "of": {"type": "text"}}, "numbers": {"type": "list", "of": {"type": "int64"}}}
    got = answers(tmp_path, inputs, steps, [{"texts": ["a", "b"], "numbers": [1, 2**60]}, {"texts": ["a"], "numbers": []}])
    assert got[0] == {"out": ["a", "b"], "ks": [1, 2**60]}
    assert "numbers: expected 1 items as in 'texts', got 0" in got[1]["error"]


def test_a_fault_of_an_item_is_its_records(tmp_path):
    steps = [{"for_each": {"from": "lists", "steps": [{"windows": {"field": "item", "size": 2, "before": "lead",
                                                                  "context": 2, "into": "w"}}],
                           "collect": {"w": "out"}}}]
    inputs = {"lists": tensor("float32", -1, -1), "lead": tensor("float32", -1)}
    got = answers(tmp_path, inputs, steps, [{"lists": [[1.0, 2.0]], "lead": [0.0]}, {"lists": [[1.0, 2.0]], "lead": [8.0, 9.0]}])
    assert "step for_each out: item 0: step windows w: before: expected 2 elements, got 1" in got[0]["error"]
    assert got[1] == {"out": [[[8.0, 9.0, 1.0, 2.0]]]}


def test_trace_of_items(tmp_path):
    write(tmp_path, {"rows": tensor("float32", -1, 3)}, EACH, files=[("m.onnx", double_model())], model={"file": "m.onnx"})
    got = run(tmp_path, [{"rows": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]}], "trace")[0]
    assert got["for_each list/model double"] == [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]


@pytest.mark.parametrize("each, message", [
    ({"from": "rows", "steps": [], "collect": {"nothing": "x"}}, "expected a value that is there, got 'nothing'"),
    ({"from": "rows", "steps": []}, "expected the key 'collect' or 'stack', got neither"),
    ({"from": "name", "steps": [], "collect": {"item": "x"}}, "expected a list, or a tensor with a first dimension, got 'name'"),
    ({"from": "rows", "as": "name", "steps": [], "collect": {"name": "x"}}, "expected a new name inside the block, got 'name'"),
    ({"from": "rows", "steps": [{"rename": {"field": "item", "into": "lost"}}], "collect": {"item": "x"}}, "'lost', got no use"),
    ({"from": "names", "steps": [], "stack": {"item": "x"}}, "expected numbers or tensors of a known rank, got 'item'"),
    ({"from": "rows", "with": {"five": "k"}, "steps": [], "collect": {"item": "x"}}, "expected 2 items as in 'rows', got 5"),
])
def test_for_each_refuses(tmp_path, each, message):
    inputs = {"rows": tensor("float32", 2, 3), "five": tensor("float32", 5), "name": {"type": "text"},
              "names": {"type": "list", "of": {"type": "text"}}}
    assert message in refusal(tmp_path, inputs, [{"for_each": each}])


# ---- scan --------------------------------------------------------------------------------------------


SCAN = [{"scan": {"from": "rows", "as": "x", "carry": {"s": {"next": "s2", "dtype": "float32", "shape": [1, 4]}},
                  "steps": [{"model": {"batch": False}}], "stack": {"y": "ys"}, "last": {"s": "end"}}}]


def test_scan_carries_state(tmp_path):
    records = [{"rows": f32(n, 1, 4)} for n in (3, 0, 6, 1)]
    got = answers(tmp_path, {"rows": tensor("float32", -1, 1, 4)}, SCAN, records, files=[("m.onnx", recurrent_model())],
                  model={"file": "m.onnx"})
    for record, answer in zip(records, got):
        state, ys = np.zeros((1, 4), np.float32), []
        for row in record["rows"]:
            state = state * np.float32(0.5) + row
            ys.append(state.sum())
        assert np.allclose(answer["ys"], ys, atol=1e-5) and len(answer["ys"]) == len(ys)
        assert np.allclose(answer["end"], state, atol=1e-6)
    assert run(tmp_path, records, "single") == got


def test_scan_begins_with_a_field(tmp_path):
    steps = [{"scan": {"from": "rows", "as": "x", "carry": {"s": {"next": "s2", "from": "begin"}},
                       "steps": [{"model": {"batch": False, "outputs": {"s2": "s2"}}}], "collect": {"s2": "all"}}}]
    inputs = {"rows": tensor("float32", -1, 1, 4), "begin": tensor("float32", 1, 4)}
    record = {"rows": f32(2, 1, 4), "begin": f32(1, 4)}
    got = one(tmp_path, inputs, steps, record, files=[("m.onnx", recurrent_model())], model={"file": "m.onnx"})
    first = record["begin"] * np.float32(0.5) + record["rows"][0]
    assert np.allclose(got["all"], [first, first * np.float32(0.5) + record["rows"][1]], atol=1e-6)


@pytest.mark.parametrize("carry, message", [
    ({}, "expected a map from name to {next, …}"),
    ({"s": {"next": "x", "dtype": "float32"}}, "expected either 'from' or 'dtype' and 'shape' for 's'"),
    ({"s": {"next": "x", "from": "rows", "dtype": "int8", "shape": []}}, "expected either 'from' or 'dtype' and 'shape'"),
    ({"s": {"next": "x", "dtype": "float33", "shape": []}}, "expected an element type of numbers for 's', got 'float33'"),
    ({"s": {"next": "x", "dtype": "float32", "shape": [5]}}, "expected float32 [5] to follow as 's', got 'x', which is float32 [1, 4]"),
])
def test_scan_refuses(tmp_path, carry, message):
    steps = [{"scan": {"from": "rows", "as": "x", "carry": carry, "steps": [], "collect": {"x": "o"}}}]
    assert message in refusal(tmp_path, {"rows": tensor("float32", -1, 1, 4)}, steps)


# ---- choose, filter ----------------------------------------------------------------------------------


def test_choose_splits_a_batch(tmp_path):
    steps = [{"choose": {"field": "v", "at_least": 0, "steps": [{"constant": {"value": "up", "type": "text", "into": "w"}}],
                         "else": [{"constant": {"value": "down", "type": "text", "into": "w"}}], "collect": {"w": "side"}}}]
    got = answers(tmp_path, {"v": {"type": "double"}}, steps, [{"v": v} for v in (1.5, -2.0, 0.0, -0.5)])
    assert [g["side"] for g in got] == ["up", "down", "up", "down"]


def test_choose_without_steps_hands_out_what_was_there(tmp_path):
    steps = [{"choose": {"field": "turn", "equals": "180", "steps": [{"rename": {"field": "other", "into": "img"}}], "else": [],
                         "collect": {"img": "upright"}}}]
    inputs = {"turn": {"type": "text"}, "img_": tensor("float32", 2), "other": tensor("float32", 3)}
    steps = [{"rename": {"field": "img_", "into": "kept"}},
             {"choose": {"field": "turn", "equals": "180", "steps": [{"rename": {"field": "other", "into": "picked"}}],
                         "else": [{"rename": {"field": "kept", "into": "picked"}}], "collect": {"picked": "upright"}}}]
    records = [{"turn": "180", "img_": [1.0, 2.0], "other": [3.0, 4.0, 5.0]}, {"turn": "0", "img_": [1.0, 2.0], "other": [3.0, 4.0, 5.0]}]
    got = answers(tmp_path, inputs, steps, records)
    assert [g["upright"] for g in got] == [[3.0, 4.0, 5.0], [1.0, 2.0]]


def test_choose_refuses(tmp_path):
    inputs = {"v": {"type": "double"}, "t": {"type": "text"}}
    base = {"field": "v", "above": 0, "steps": [], "else": [], "collect": {"v": "o"}}
    assert "expected a condition" in refusal(tmp_path, inputs, [{"choose": {k: v for k, v in base.items() if k != "above"}}])
    assert "expected a number to compare, got text" in refusal(tmp_path, inputs, [{"choose": {**base, "field": "t"}}])
    mixed = {**base, "steps": [{"rename": {"field": "v", "into": "w"}}], "else": [{"rename": {"field": "t", "into": "w"}}],
             "collect": {"w": "o"}}
    assert "expected 'w' to be of one type on both sides, got float64 and text" in refusal(tmp_path, inputs, [{"choose": mixed}])


@pytest.mark.parametrize("condition, holds", [
    ({"above": 2}, lambda v: v > 2), ({"at_least": 2}, lambda v: v >= 2), ({"below": 2}, lambda v: v < 2),
    ({"at_most": 2}, lambda v: v <= 2), ({"equals": 2}, lambda v: v == 2), ({"not_equals": 2}, lambda v: v != 2),
    ({"at_least": 1, "below": 4}, lambda v: (v >= 1) & (v < 4)),
])
def test_filter_is_numpys_indexing(tmp_path, condition, holds):
    values, other = np.array([3, 1, 2, 5, 2, np.nan, np.inf], np.float32), f32(7, 2)
    steps = [{"filter": {"from": "v", **condition, "with": {"o": "kept"}, "into": "w"}}]
    inputs = {"v": {**tensor("float32", -1), "allow_nan": True}, "o": tensor("float32", -1, 2)}
    got = one(tmp_path, inputs, steps, {"v": values, "o": other})
    mask = holds(values)
    assert number(got["w"]) == pytest.approx(values[mask].tolist(), nan_ok=True)
    assert np.array_equal(np.array(got["kept"], np.float32).reshape(-1, 2), other[mask])


def test_filter_by_a_member(tmp_path):
    steps = [{"record": {"members": {"name": "names", "score": "scores"}, "each": True, "into": "all"}},
             {"filter": {"from": "all", "member": "score", "above": 0.5, "into": "best"}},
             {"pick": {"field": "best", "member": "name", "into": "who"}}, {"pick": {"field": "best", "at": 0, "into": "first"}}]
    inputs = {"names": {"type": "list", "of": {"type": "text"}}, "scores": {"type": "list", "of": {"type": "double"}}}
    got = answers(tmp_path, inputs, steps, [{"names": ["a", "b", "c"], "scores": [0.9, 0.5, 0.7]}, {"names": [], "scores": []}])
    assert got[0] == {"who": ["a", "c"], "first": {"name": "a", "score": 0.9}}
    assert got[1] == {"who": [], "first": None}


# ---- windows, stitch, overlap_add --------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 511, 512, 513, 1536, 2000])
def test_windows_with_context_are_silero_vads(tmp_path, n):
    signal = f32(n)
    steps = [{"windows": {"field": "x", "size": 512, "context": 64, "into": "w"}}]
    got = np.array(one(tmp_path, {"x": tensor("float32", -1)}, steps, {"x": signal})["w"], np.float32).reshape(-1, 576)
    context, want = np.zeros(64, np.float32), []
    for start in range(0, n, 512):
        chunk = signal[start:start + 512]
        x = np.concatenate([context, np.pad(chunk, (0, 512 - len(chunk)))])
        want.append(x)
        context = x[-64:]
    assert np.array_equal(got, np.array(want, np.float32).reshape(-1, 576))


@pytest.mark.parametrize("n", [0, 1, 5, 30, 31, 100])
def test_windows_and_stitch_are_basic_pitchs(tmp_path, n):
    size, overlap, frames_of = 40, 12, 4
    hop, signal = size - overlap, f32(n)
    steps = [{"windows": {"field": "x", "size": size, "hop": hop, "lead": overlap // 2, "into": "w"}},
             {"windows": {"field": "w", "axis": 1, "size": frames_of, "into": "cut"}},
             {"for_each": {"from": "w", "as": "one", "steps": [{"windows": {"field": "one", "size": frames_of, "into": "frames"}}],
                           "stack": {"frames": "all"}}},
             {"stitch": {"field": "all", "trim": 1, "length_of": "x", "frames": 86, "samples": 300, "into": "y"}},
             {"pick": {"field": "cut", "at": 0, "into": "first"}}]
    got = one(tmp_path, {"x": tensor("float32", -1)}, steps, {"x": signal}, outputs=["w", "y", "first"])
    padded, windows = np.concatenate([np.zeros(overlap // 2, np.float32), signal]), []
    for i in range(0, len(padded), hop):
        window = padded[i:i + size]
        windows.append(np.pad(window, [[0, size - len(window)]]))
    windows = np.array(windows)
    assert np.array_equal(np.array(got["w"], np.float32), windows)
    frames = windows.reshape(len(windows), size // frames_of, frames_of)[:, 1:-1]
    want = frames.reshape(-1, frames_of)[:int(np.floor(n * (86 / 300)))]
    assert np.array_equal(np.array(got["y"], np.float32).reshape(-1, frames_of), want)


@pytest.mark.parametrize("last", ["pad", "cover", "drop"])
@pytest.mark.parametrize("n", [0, 3, 4, 5, 6, 7, 16])
def test_rules_for_the_last_window(tmp_path, last, n):
    signal, size, hop = f32(n, 2), 4, 3
    steps = [{"windows": {"field": "x", "size": size, "hop": hop, "axis": 0, "last": last, "value": -1, "into": "w"}}]
    got = np.array(one(tmp_path, {"x": tensor("float32", -1, 2)}, steps, {"x": signal})["w"], np.float32).reshape(-1, size, 2)
    starts = list(range(0, n, hop))
    if last == "drop":
        starts = [s for s in starts if s + size <= n]
    if last == "cover":
        starts = [s for i, s in enumerate(starts) if i == 0 or starts[i - 1] + size < n]
    padded = np.concatenate([signal, np.full((size, 2), -1, np.float32)])
    want = np.array([padded[s:s + size] for s in starts], np.float32).reshape(-1, size, 2)
    assert np.array_equal(got, want)


def test_windows_of_channels_and_what_lies_before(tmp_path):
    signal, before = f32(2, 9), f32(2, 3)
    steps = [{"windows": {"field": "x", "size": 4, "context": 3, "before": "b", "into": "w"}}]
    got = np.array(one(tmp_path, {"x": tensor("float32", 2, -1), "b": tensor("float32", 2, 3)}, steps, {"x": signal, "b": before})["w"])
    whole = np.concatenate([before, signal, np.zeros((2, 3), np.float32)], axis=1)
    want = np.stack([whole[:, s:s + 7] for s in (0, 4, 8)])
    assert got.shape == (3, 2, 7)
    assert np.array_equal(got.astype(np.float32), want[:, :, :7])


@pytest.mark.parametrize("weights", ["none", "hann", "triangle"])
@pytest.mark.parametrize("normalize", [True, False])
def test_overlap_add(tmp_path, weights, normalize):
    windows, hop = f32(5, 8), 3
    steps = [{"overlap_add": {"field": "w", "hop": hop, "weights": weights, "normalize": normalize, "into": "y"}}]
    got = one(tmp_path, {"w": tensor("float32", -1, 8)}, steps, {"w": windows})["y"]
    i = np.arange(8)
    w = {"none": np.ones(8), "hann": 0.5 - 0.5 * np.cos(2 * np.pi * i / 8), "triangle": 1 - abs((i + 0.5) / 4 - 1)}[weights]
    total, norm = np.zeros(20), np.zeros(20)
    for k in range(5):
        total[k * hop:k * hop + 8] += windows[k] * w
        norm[k * hop:k * hop + 8] += w
    want = np.divide(total, norm, out=np.zeros(20), where=norm > 0) if normalize else total
    assert np.allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("step, message", [
    ({"windows": {"field": "x", "size": 0, "into": "w"}}, "expected 1 to 1000000000"),
    ({"windows": {"field": "x", "size": 4, "axis": 1, "into": "w"}}, "axis: expected -1 to 0, got 1"),
    ({"windows": {"field": "t", "size": 4, "into": "w"}}, "expected audio or tensor, got 't', which is text"),
    ({"windows": {"field": "x", "size": 4, "context": 2, "before": "m", "into": "w"}}, "expected float32 [2], got 'm', which is float32 [3, 10]"),
    ({"stitch": {"field": "x", "into": "w"}}, "expected a tensor of numbers [windows, frames, …], got 'x'"),
    ({"stitch": {"field": "m", "trim": 6, "into": "w"}}, "expected at most half of 10 frames, got 6"),
    ({"overlap_add": {"field": "x", "hop": 2, "into": "w"}}, "expected numbers of 2 dimensions, got 'x', which is float32 [?]"),
])
def test_windows_refuse(tmp_path, step, message):
    inputs = {"x": tensor("float32", -1), "t": {"type": "text"}, "m": tensor("float32", 3, 10)}
    assert message in refusal(tmp_path, inputs, [step])


# ---- constants and records ---------------------------------------------------------------------------


def test_constants(tmp_path):
    array = f32(2, 3)
    np.save(tmp_path / "a.npy", array)
    steps = [{"constant": {"value": [[1, 2], [3, 4]], "type": "int64", "into": "m"}},
             {"constant": {"value": 0.5, "shape": [2, 2], "type": "float16", "into": "fill"}},
             {"constant": {"value": [1, 2, 3, 4], "shape": [2, 1, 2], "type": "uint8", "into": "laid"}},
             {"constant": {"value": 16000, "type": "int64", "into": "rate"}},
             {"constant": {"value": 0.1, "into": "f"}}, {"constant": {"value": True, "type": "bool", "into": "b"}},
             {"constant": {"value": ["a", "b"], "type": "text", "into": "texts"}}, {"constant": {"file": "a.npy", "into": "file"}}]
    got = one(tmp_path, {"x": {"type": "int64"}}, steps, {"x": 1}, outputs=["m", "fill", "laid", "rate", "f", "b", "texts", "file"])
    assert np.array_equal(np.array(got.pop("file"), np.float32), array)
    assert got == {"m": [[1, 2], [3, 4]], "fill": [[0.5, 0.5], [0.5, 0.5]], "laid": [[[1, 2]], [[3, 4]]], "rate": 16000, "f": 0.1,
                   "b": True, "texts": ["a", "b"]}


@pytest.mark.parametrize("constant, message", [
    ({"value": [[1, 2], [3]], "into": "c"}, "expected lists whose rows are all of one length"),
    ({"value": [[1, 2], 3], "into": "c"}, "expected lists whose rows are all of one length"),
    ({"value": [1, [2]], "into": "c"}, "expected lists whose rows are all of one length"),
    ({"value": 300, "type": "uint8", "into": "c"}, "expected a value of uint8"),
    ({"value": 1.5, "type": "int64", "into": "c"}, "expected a value of int64"),
    ({"value": [1, 2, 3], "shape": [2, 2], "into": "c"}, "expected a shape of 3 elements, got one of 4"),
    ({"value": 1, "shape": [100000, 100000, 100000], "into": "c"}, "constant"),
    ({"into": "c"}, "expected either 'value' or 'file'"),
    ({"file": "none.npy", "into": "c"}, "none.npy"),
])
def test_constants_refused(tmp_path, constant, message):
    assert message in refusal(tmp_path, {"x": {"type": "int64"}}, [{"constant": constant}])


def test_records(tmp_path):
    steps = [{"record": {"members": {"x": "a", "y": "b"}, "into": "pair"}}, {"pick": {"field": "pair", "member": "y", "into": "back"}},
             {"record": {"members": {"row": "m", "n": "ns"}, "each": True, "into": "rows"}}]
    inputs = {"a": {"type": "int64"}, "b": {"type": "text"}, "m": tensor("float32", -1, 2), "ns": {"type": "list", "of": {"type": "int64"}}}
    got = answers(tmp_path, inputs, steps, [{"a": 1, "b": "t", "m": [[1.0, 2.0]], "ns": [7]}, {"a": 1, "b": "t", "m": [], "ns": [7]}],
                  outputs=["pair", "back", "rows"])
    assert got[0] == {"pair": {"x": 1, "y": "t"}, "back": "t", "rows": [{"row": [1.0, 2.0], "n": 7}]}
    assert "error" in got[1]
