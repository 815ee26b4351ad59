"""nms, decode_boxes and scale_boxes against torchvision's and Ultralytics' rules, recomputed in numpy."""

import numpy as np
import pytest

from step_case import answers, one, refusal, tensor

RNG = np.random.default_rng(9)
F = np.float32


def boxes_of(n, size=100):
    corner, extent = RNG.uniform(0, size, (n, 2)), RNG.uniform(1, size / 3, (n, 2))
    return np.concatenate([corner, corner + extent], 1).astype(F)


def nms(boxes, scores, iou, classes=None):
    """torchvision's loop, in float32."""
    order, kept = np.argsort(-scores, kind="stable"), []
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for i in order:
        for k in kept:
            if classes is not None and classes[i] != classes[k]:
                continue
            w = max(F(0), min(boxes[i, 2], boxes[k, 2]) - max(boxes[i, 0], boxes[k, 0]))
            h = max(F(0), min(boxes[i, 3], boxes[k, 3]) - max(boxes[i, 1], boxes[k, 1]))
            both = w * h
            if both / (area[k] + area[i] - both) > F(iou):
                break
        else:
            kept.append(int(i))
    return kept


INPUTS = {"b": tensor("float32", -1, 4), "s": {**tensor("float32", -1), "allow_nan": True}, "c": tensor("int64", -1)}


@pytest.mark.parametrize("n", [0, 1, 2, 50, 300])
@pytest.mark.parametrize("iou", [0, 0.3, 0.5, 1])
def test_nms(tmp_path, n, iou):
    boxes, scores, classes = boxes_of(n), RNG.integers(0, 50, n).astype(F), RNG.integers(0, 3, n)
    if n > 2:
        boxes[1] = boxes[0]
    step = {"boxes": "b", "scores": "s", "iou": iou, "into": "k"}
    record = {"b": boxes, "s": scores, "c": classes}
    assert one(tmp_path, INPUTS, [{"nms": step}], record, outputs=["k"])["k"] == nms(boxes, scores, iou)
    got = one(tmp_path, INPUTS, [{"nms": {**step, "classes": "c", "with": {"b": "bb"}}}], record, outputs=["k", "bb"])
    want = nms(boxes, scores, iou, classes)
    assert got["k"] == want and np.array_equal(np.array(got["bb"], F).reshape(-1, 4), boxes[want])


@pytest.mark.parametrize("form", ["xywh", "cxcywh"])
def test_nms_of_other_forms_limits_and_scores(tmp_path, form):
    boxes, scores = boxes_of(60), RNG.random(60).astype(F)
    size = boxes[:, 2:] - boxes[:, :2]
    given = np.concatenate([boxes[:, :2] if form == "xywh" else boxes[:, :2] + size / 2, size], 1)
    plain = np.concatenate([given[:, :2], given[:, :2] + given[:, 2:]], 1) if form == "xywh" else np.concatenate(
        [given[:, :2] - given[:, 2:] / 2, given[:, :2] + given[:, 2:] / 2], 1)
    want = [i for i in nms(plain, scores, 0.4) if scores[i] > 0.25]
    step = {"boxes": "b", "scores": "s", "iou": 0.4, "format": form, "min_score": 0.25, "into": "k"}
    record = {"b": given, "s": scores, "c": np.zeros(60, int)}
    assert one(tmp_path, INPUTS, [{"nms": step}], record, outputs=["k"])["k"] == want
    assert one(tmp_path, INPUTS, [{"nms": {**step, "max": 3}}], record, outputs=["k"])["k"] == want[:3]
    best = np.sort(np.argsort(-scores, kind="stable")[:20])
    few = [int(best[i]) for i in nms(plain[best], scores[best], 0.4) if scores[best[i]] > 0.25]
    assert one(tmp_path, INPUTS, [{"nms": {**step, "max_candidates": 20}}], record, outputs=["k"])["k"] == few


def test_nms_of_bad_numbers(tmp_path):
    step = [{"nms": {"boxes": "b", "scores": "s", "iou": 0.5, "into": "k"}}]
    inputs = {**INPUTS, "b": {**INPUTS["b"], "allow_nan": True}}
    zero = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [np.nan, 0, 1, 1], [-np.inf, 0, np.inf, 1], [5, 5, 2, 2]], F)
    got = answers(tmp_path, inputs, step, [{"b": zero, "s": np.arange(5.0, 0, -1), "c": [0]}, {"b": zero[:1], "s": np.array([np.nan]), "c": [0]},
                                           {"b": zero[:2], "s": [1.0], "c": [0]}], outputs=["k"])
    assert got[0]["k"] == [0, 1, 2, 3, 4] and "NaN at 0" in got[1]["error"] and "expected 2 items, one a box, got 1" in got[2]["error"]


def xyxy(b):
    return np.concatenate([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)


def check(got, boxes, scores, classes):
    assert np.allclose(np.array(got["boxes"]).reshape(-1, 4), boxes, rtol=1e-6, atol=1e-5)
    assert np.allclose(got["scores"], scores, rtol=1e-6) and got["classes"] == classes.tolist()


def test_decode_yolo(tmp_path):
    b, s, o = RNG.uniform(0, 640, (40, 4)).astype(F), RNG.random((40, 7)).astype(F), RNG.random((40, 1)).astype(F)
    s[3, 2] = s[3, 5] = 2
    got = one(tmp_path, {"x": tensor("float32", -1, -1)}, [{"decode_boxes": {"kind": "yolov8", "field": "x", "min_score": 0.8}}],
              {"x": np.concatenate([b, s], 1).T}, outputs=["boxes", "scores", "classes"])
    keep = s.max(1) > 0.8
    check(got, xyxy(b)[keep], s.max(1)[keep], s.argmax(1)[keep])
    got = one(tmp_path, {"x": tensor("float32", -1, -1)}, [{"decode_boxes": {"kind": "yolov5", "field": "x", "min_score": 0.5}}],
              {"x": np.concatenate([b, o, s], 1)}, outputs=["boxes", "scores", "classes"])
    both = s.max(1) * o[:, 0]
    keep = both > 0.5
    check(got, xyxy(b)[keep], both[keep], s.argmax(1)[keep])


def test_decode_ssd_and_detr(tmp_path):
    inputs = {"d": tensor("float32", -1, 4), "s": tensor("float32", -1, 5), "a": tensor("float32", -1, 4)}
    d, s, a = RNG.standard_normal((30, 4)).astype(F), RNG.random((30, 5)).astype(F), RNG.random((30, 4)).astype(F)
    got = one(tmp_path, inputs, [{"decode_boxes": {"kind": "ssd", "field": "d", "scores": "s", "anchors": "a", "min_score": 0.6}}],
              {"d": d, "s": s, "a": a}, outputs=["boxes", "scores", "classes"])
    decoded = np.concatenate([a[:, :2] + d[:, :2] * F(0.1) * a[:, 2:], a[:, 2:] * np.exp(d[:, 2:] * F(0.2))], 1)
    keep = s[:, 1:].max(1) > 0.6
    check(got, xyxy(decoded)[keep], s[:, 1:].max(1)[keep], s[:, 1:].argmax(1)[keep] + 1)
    got = one(tmp_path, inputs, [{"decode_boxes": {"kind": "detr", "field": "a", "scores": "s", "min_score": 0.25}}],
              {"d": d, "s": s * 5, "a": a}, outputs=["boxes", "scores", "classes"])
    p = np.exp(s.astype(np.float64) * 5)
    p = (p / p.sum(1, keepdims=True))[:, :-1]
    keep = p.max(1) > 0.25
    check(got, xyxy(a)[keep], p.max(1)[keep], p.argmax(1)[keep])


@pytest.mark.parametrize("how", ["stretch", "letterbox", "letterbox_top_left", "normalized"])
@pytest.mark.parametrize("size", [[480, 640], [1080, 333], [7, 1000]])
def test_scale_boxes(tmp_path, how, size):
    boxes, model = (RNG.random((20, 4)) * (1 if how == "normalized" else 640)).astype(F), [640, 512]
    step = {"field": "b", "to": "to", "how": how, "into": "y", **({} if how == "normalized" else {"from": "from"})}
    inputs = {"b": tensor("float32", -1, 4), "to": tensor("int64", 2), "from": tensor("int64", 2)}
    got = one(tmp_path, inputs, [{"scale_boxes": step}], {"b": boxes, "to": size, "from": model})["y"]
    (h1, w1), (h0, w0) = ([1, 1] if how == "normalized" else model), size
    gain, pad = np.array([w1 / w0, h1 / h0]), np.zeros(2)
    if how.startswith("letterbox"):
        gain[:] = gain.min()
    if how == "letterbox":
        pad = np.array([round((w1 - w0 * gain[0]) / 2 - 0.1), round((h1 - h0 * gain[0]) / 2 - 0.1)])
    want = ((boxes.reshape(-1, 2, 2) - pad) / gain).clip(0, [w0, h0]).reshape(-1, 4)
    assert np.allclose(got, want, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("step, message", [
    ({"nms": {"boxes": "s", "scores": "s", "iou": 0.5, "into": "k"}}, "expected boxes, float32 [n, 4], got 's'"),
    ({"nms": {"boxes": "b", "scores": "s", "iou": 1.5, "into": "k"}}, "expected 0 to 1"),
    ({"decode_boxes": {"kind": "ssd", "field": "b"}}, "expected 'scores' with ssd and detr"),
    ({"decode_boxes": {"kind": "yolov8", "field": "s"}}, "expected numbers of 2 dimensions"),
    ({"scale_boxes": {"field": "b", "to": "c", "into": "y"}}, "expected the key 'from'"),
])
def test_boxes_refuse(tmp_path, step, message):
    assert message in refusal(tmp_path, INPUTS, [step])


def test_boxes_of_other_shapes_at_run(tmp_path):
    got = answers(tmp_path, {"x": tensor("float32", -1, -1)}, [{"decode_boxes": {"kind": "yolov8", "field": "x"}}],
                  [{"x": np.zeros((4, 3), F)}, {"x": np.zeros((5, 0), F)}], outputs=["boxes", "scores", "classes"])
    assert "expected at least 5 rows, got 4" in got[0]["error"] and got[1]["boxes"] == []
