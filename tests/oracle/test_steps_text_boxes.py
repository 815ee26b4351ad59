"""db_text_boxes, sort_boxes and perspective_crop against the RapidOCR package's own code (OpenCV, pyclipper)."""

import base64

import numpy as np
import pytest

cv2 = pytest.importorskip("cv2", reason="skip: opencv is not installed")
rapid = pytest.importorskip("rapidocr.ch_ppocr_det.utils", reason="skip: rapidocr is not installed")

from step_case import answers, one, refusal, tensor  # noqa: E402

RNG = np.random.default_rng(3)
INPUTS = {"map": tensor("float32", 1, -1, -1), "size": tensor("int64", 2)}


def raw(array):
    return {"b64": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(), "shape": list(array.shape)}


def page(height, width, boxes, turn):
    """A map with soft rectangles of text, turned up to `turn` degrees, and noise."""
    img = RNG.random((height, width)).astype(np.float32) * 0.25
    for _ in range(boxes):
        centre = (float(RNG.uniform(0, width)), float(RNG.uniform(0, height)))
        size = (float(RNG.uniform(8, width / 3)), float(RNG.uniform(4, 24)))
        corners = cv2.boxPoints((centre, size, float(RNG.uniform(-turn, turn))))
        cv2.fillPoly(img, [corners.astype(np.int32)], float(RNG.uniform(0.35, 1)))
    return cv2.GaussianBlur(img, (3, 3), 0)


def reference(prob, size, **options):
    keys = {"thresh": 0.3, "box_thresh": 0.5, "max_candidates": 1000, "unclip_ratio": 1.6, "use_dilation": True, "score_mode": "fast", **options}
    boxes, scores = rapid.DBPostProcess(**keys)(prob[None, None], size)
    return np.array(boxes).reshape(-1, 4, 2), np.array(scores)


def ours(tmp_path, cases, **keys):
    steps = [{"db_text_boxes": {"field": "map", "of": "size", "scores": "scores", "into": "boxes", **keys}}]
    got = answers(tmp_path, INPUTS, steps, [{"map": raw(p[None]), "size": s} for p, s in cases], outputs=["boxes", "scores"])
    assert not [g for g in got if "error" in g], got
    return [(np.array(g["boxes"]).reshape(-1, 4, 2), np.array(g["scores"])) for g in got]


def agree(pairs):
    """The same boxes to a pixel; a few in a hundred may differ where a coordinate lies at a whole number and float32 decides
    which: OpenCV's rectangle then is cut to another pixel before it grows."""
    total = off = 0
    for got, want in pairs:
        assert got[0].shape == want[0].shape
        apart, score = np.abs(got[0] - want[0]).max((1, 2), initial=0), np.abs(got[1] - want[1])
        assert apart.max(initial=0) <= 4 and score.max(initial=0) < 0.05
        total, off = total + len(apart), off + int(((apart > 1) | (score > 1e-3)).sum())
    assert off <= 1 + total // 25, (off, total)


@pytest.mark.parametrize("turn", [0, 10, 180])
@pytest.mark.parametrize("options", [{}, {"dilate": False}, {"score_mode": "slow"}, {"unclip_ratio": 2.0, "box_threshold": 0.6}, {"max_candidates": 5}])
def test_boxes_are_rapidocrs(tmp_path, turn, options):
    names = {"dilate": "use_dilation", "box_threshold": "box_thresh"}
    cases = [(page(int(h), int(w), 12, turn), (int(h * f), int(w * f))) for h, w, f in [(96, 128, 1), (160, 96, 1.7), (320, 480, 0.8), (64, 640, 3.1)] for _ in range(5)]
    wants = [reference(prob, size, **{names.get(k, k): v for k, v in options.items()}) for prob, size in cases]
    agree(zip(ours(tmp_path, cases, **options), wants))


def test_maps_of_noise(tmp_path):
    cases = [(RNG.random((h, w)).astype(np.float32), (h, w)) for h, w in [(1, 1), (1, 40), (40, 1), (33, 47), (120, 90)]]
    cases += [(np.ones((20, 30), np.float32), (20, 30)), (np.zeros((20, 30), np.float32), (20, 30))]
    blurred = [(cv2.GaussianBlur(RNG.random((150, 200)).astype(np.float32), (9, 9), 0), (150, 200)) for _ in range(4)]
    wants = [reference(prob, size, thresh=0.5, box_thresh=0.4) for prob, size in cases + blurred]
    agree(zip(ours(tmp_path, cases + blurred, threshold=0.5, box_threshold=0.4), wants))


def test_the_real_detector_on_a_page(tmp_path):
    import pathlib
    import rapidocr
    ort = pytest.importorskip("onnxruntime")
    models = list((pathlib.Path(rapidocr.__file__).parent / "models").glob("*det*.onnx"))
    if not models:
        pytest.skip("skip: rapidocr has no detector in its package")
    session, cases = ort.InferenceSession(str(models[0]), providers=["CPUExecutionProvider"]), []
    for turn in (0, 3, 90):
        img = np.full((640, 480, 3), 255, np.uint8)
        for i in range(12):
            cv2.putText(img, f"Line {i} of some text, {RNG.integers(1000)}", (20, 45 + 48 * i), i % 4, 0.6 + 0.05 * (i % 5), (0, 0, 0), 1 + i % 2)
        turned = cv2.warpAffine(img, cv2.getRotationMatrix2D((240, 320), turn, 1), (480, 640), borderValue=(255, 255, 255))
        x = rapid.DetPreProcess(736, "min", [0.5] * 3, [0.5] * 3)(turned)
        cases.append((session.run(None, {session.get_inputs()[0].name: x})[0][0, 0], (640, 480)))
    got, wants = ours(tmp_path, cases), [reference(prob, size) for prob, size in cases]
    assert min(len(w[0]) for w in wants) >= 10
    for mine, want in zip(got, wants):
        assert mine[0].shape == want[0].shape and np.abs(mine[0] - want[0]).max() <= 1 and np.abs(mine[1] - want[1]).max() < 1e-3


def test_numbers_that_are_none(tmp_path):
    prob = page(64, 64, 3, 0)
    prob[10:14, 10:30] = np.nan
    prob[30:34, 10:30] = np.inf
    steps = [{"db_text_boxes": {"field": "map", "of": "size", "into": "boxes"}}]
    inputs = {**INPUTS, "map": {**INPUTS["map"], "allow_nan": True}}
    got = answers(tmp_path, inputs, steps, [{"map": raw(prob[None]), "size": [64, 64]}, {"map": {"b64": "", "shape": [1, 0, 5]}, "size": [5, 5]}])
    assert "boxes" in got[0] and "expected a map of 1 to 32766 pixels a side, got 5 x 0" in got[1]["error"]


def test_refuses(tmp_path):
    assert "expected float32 [height, width]" in refusal(tmp_path, INPUTS, [{"db_text_boxes": {"field": "size", "of": "size", "into": "b"}}])


def test_order_of_reading(tmp_path):
    from rapidocr.ch_ppocr_det.main import TextDetector
    records, wants = [], []
    for n in (0, 1, 2, 7, 60):
        boxes = RNG.integers(0, 90, (n, 4, 2)).astype(np.float32)
        records.append({"boxes": boxes, "ids": list(range(n))})
        wants.append(TextDetector.sorted_boxes(boxes))
    steps = [{"sort_boxes": {"field": "boxes", "with": {"ids": "order"}, "into": "sorted"}}]
    got = answers(tmp_path, {"boxes": tensor("float32", -1, 4, 2), "ids": {"type": "list", "of": {"type": "int64"}}}, steps, records,
                  outputs=["sorted", "order"])
    for answer, record, want in zip(got, records, wants):
        assert answer["sorted"] == np.asarray(want).tolist()
        assert [record["boxes"][i].tolist() for i in answer["order"]] == answer["sorted"]


def test_parts_under_boxes_are_paddleocrs(tmp_path):
    from rapidocr.utils.process_img import get_rotate_crop_image
    img = cv2.GaussianBlur(RNG.integers(0, 256, (200, 300, 3)).astype(np.uint8), (5, 5), 0)
    boxes = np.array([cv2.boxPoints(((150, 100), size, turn))[[1, 2, 3, 0]] for size, turn in [((80, 20), 0), ((90, 31), 20), ((20, 90), 5)]]
                     + [np.array([[-8, 5], [60, -4], [70, 30], [2, 44]])], np.float32)
    steps = [{"perspective_crop": {"field": "img", "boxes": "boxes", "into": "parts"}}]
    inputs = {"img": {"type": "image", "color": "bgr"}, "boxes": {**tensor("float32", -1, 4, 2), "allow_nan": True}}
    png = {"b64": base64.b64encode(cv2.imencode(".png", img)[1].tobytes()).decode()}
    flat = np.zeros((1, 4, 2), np.float32)
    got = answers(tmp_path, inputs, steps, [{"img": png, "boxes": boxes}, {"img": png, "boxes": flat}, {"img": png, "boxes": flat + np.nan},
                                            {"img": png, "boxes": flat + 1e30 * np.arange(8).reshape(1, 4, 2)}])
    for part, box in zip(got[0]["parts"], boxes):
        want = get_rotate_crop_image(img, box.copy())
        assert part["shape"] == list(want.shape)
        mine = np.frombuffer(base64.b64decode(part["b64"]), np.uint8).reshape(want.shape)
        assert np.abs(mine.astype(int) - want).max() <= 1
    for answer in got[1:]:
        assert "box 0: expected sides of 1 to 65535 pixels" in answer["error"]
