"""Steps of the group answer that turn scores into decisions: against numpy, scikit-learn and rules recomputed here."""

import numpy as np
import pytest

from step_case import answers, number, one, refusal, tensor, write, run  # noqa: F401

RNG = np.random.default_rng(11)


def f32(*shape):
    return (RNG.standard_normal(shape) * 3).astype(np.float32)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


# ---- numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(tmp_path, axis):
    x = f32(3, 5, 4)
    x[0, 0, 0], x[1, 1, 1] = 1e4, -1e4
    got = one(tmp_path, {"x": tensor("float32", -1, 5, 4)}, [{"softmax": {"field": "x", "axis": axis, "into": "y"}}], {"x": x})
    assert np.allclose(got["y"], softmax(x.astype(np.float64), axis), atol=1e-7)


def test_softmax_of_nan_is_nan_and_of_lists_float64(tmp_path):
    inputs = {"x": {**tensor("float32", 3), "allow_nan": True}}
    got = one(tmp_path, inputs, [{"softmax": {"field": "x", "into": "y"}}], {"x": np.array([1, np.nan, 2], np.float32)})
    assert np.isnan(number(got["y"])).all()
    inputs = {"x": {"type": "list", "of": {"type": "double"}}}
    got = one(tmp_path, inputs, [{"softmax": {"field": "x", "into": "y"}}], {"x": [1.0, 2.0, 3.0]})
    assert np.allclose(got["y"], softmax(np.array([1.0, 2.0, 3.0])), rtol=1e-15)


def test_sigmoid(tmp_path):
    x = np.array([-1000, -30, -1, 0, 1, 30, 1000], np.float64)
    got = one(tmp_path, {"x": tensor("float64", -1), "v": {"type": "float"}},
              [{"sigmoid": {"field": "x", "into": "y"}}, {"sigmoid": {"field": "v", "into": "w"}}], {"x": x, "v": 0.5})
    with np.errstate(over="ignore"):
        assert np.allclose(got["y"], 1 / (1 + np.exp(-x)), rtol=1e-14)
    assert got["w"] == pytest.approx(1 / (1 + np.exp(-0.5)), rel=1e-7)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_argmax(tmp_path, axis):
    x = RNG.integers(0, 4, (3, 4, 5)).astype(np.float32)
    got = one(tmp_path, {"x": tensor("float32", 3, 4, 5)}, [{"argmax": {"field": "x", "axis": axis, "into": "i", "value": "v"}}], {"x": x})
    assert got["i"] == x.argmax(axis).tolist() and got["v"] == x.max(axis).tolist()


def test_argmax_of_one_dimension_and_of_bad_numbers(tmp_path):
    inputs = {"x": {**tensor("float32", -1), "allow_nan": True}}
    got = answers(tmp_path, inputs, [{"argmax": {"field": "x", "into": "i", "value": "v"}}],
                  [{"x": [1.0, 3.0, 3.0]}, {"x": []}, {"x": np.array([1, np.nan])}, {"x": np.array([-np.inf, -np.inf])}])
    assert got[0] == {"i": 1, "v": 3.0} and got[3] == {"i": 0, "v": "-Infinity"}
    assert "at least one number" in got[1]["error"] and "NaN at 1" in got[2]["error"]


def test_round_is_pythons(tmp_path):
    x = np.concatenate([RNG.standard_normal(200) * 100, [2.675, 0.125, -0.5, 1e300, 5e-324, 0.05]])
    got = one(tmp_path, {"x": tensor("float64", -1)}, [{"round": {"field": "x", "digits": 2, "into": "y"}}], {"x": x})
    assert got["y"] == [round(float(v), 2) for v in x]


def test_l2_normalize(tmp_path):
    x = f32(4, 6)
    x[2] = 0
    got = one(tmp_path, {"x": tensor("float32", 4, 6)}, [{"l2_normalize": {"field": "x", "into": "y"}}], {"x": x})
    want = x / np.maximum(np.linalg.norm(x.astype(np.float64), axis=-1, keepdims=True), 1e-12)
    assert np.allclose(got["y"], want, atol=1e-7)


@pytest.mark.parametrize("kind", ["mean", "cls", "max"])
def test_pool(tmp_path, kind):
    inputs = {"h": tensor("float32", -1, 6), "m": tensor("int64", -1)}
    records = [{"h": f32(5, 6), "m": [1, 1, 1, 0, 0]}, {"h": f32(3, 6), "m": [0, 0, 0]}, {"h": f32(2, 6), "m": [1]}]
    got = answers(tmp_path, inputs, [{"pool": {"field": "h", "mask": "m", "kind": kind, "into": "v"}}], records)
    for record, answer in zip(records[:2], got):
        h, m = record["h"].astype(np.float64), np.array(record["m"])[:, None]
        want = {"mean": (h * m).sum(0) / max(m.sum(), 1e-9), "cls": h[0], "max": np.where(m, h, -1e9).max(0)}[kind]
        assert np.allclose(answer["v"], want, rtol=1e-6, atol=1e-7)
    assert "expected 2 numbers, one a token, got 1" in got[2]["error"]


@pytest.mark.parametrize("step, message", [
    ({"softmax": {"field": "t", "into": "y"}}, "expected int or float or tensor or list, got 't', which is text"),
    ({"softmax": {"field": "v", "into": "y"}}, "expected numbers with a dimension, got 'v'"),
    ({"softmax": {"field": "x", "axis": 1, "into": "y"}}, "expected -1 to 0, got 1"),
    ({"pool": {"field": "x", "into": "y"}}, "expected numbers of 2 dimensions, got 'x'"),
    ({"round": {"field": "x", "digits": 99, "into": "y"}}, "expected 0 to 15"),
])
def test_numbers_refuse(tmp_path, step, message):
    assert message in refusal(tmp_path, {"x": tensor("float32", -1), "t": {"type": "text"}, "v": {"type": "double"}}, [step])


# ---- labels ------------------------------------------------------------------------------------------


def test_label_and_its_scores(tmp_path):
    got = answers(tmp_path, {"p": tensor("float32", 3)}, [{"label": {"from": "p", "names": ["a", "b", "c"], "score": "s"}}],
                  [{"p": [0.25, 0.5, 0.25]}, {"p": [0.5, 0.0, 0.5]}], outputs=["label", "scores", "s"])
    assert got[0] == {"label": "b", "s": 0.5, "scores": [{"label": "a", "score": 0.25}, {"label": "b", "score": 0.5}, {"label": "c", "score": 0.25}]}
    assert got[1]["label"] == "a"


def test_label_from_a_file_and_of_an_index(tmp_path):
    steps = [{"label": {"from": "i", "names": {"file": "labels.txt"}}}]
    got = answers(tmp_path, {"i": {"type": "int64"}}, steps, [{"i": 1}, {"i": 2}, {"i": -1}], outputs=["label"],
                  files=[("labels.txt", "Katze\nHund\n")])
    assert got[0] == {"label": "Hund"}
    assert "expected the index of one of 2 names, got 2" in got[1]["error"] and "got -1" in got[2]["error"]


def test_label_refuses(tmp_path):
    inputs = {"p": tensor("float32", 3), "m": tensor("float32", 3, 2), "i": {"type": "int64"}}
    assert "expected 3 names, one for each class, got 2" in refusal(tmp_path, inputs, [{"label": {"from": "p", "names": ["a", "b"]}}])
    assert "expected scores (numbers of one dimension" in refusal(tmp_path, inputs, [{"label": {"from": "m"}}])
    assert "expected the key 'names'" in refusal(tmp_path, inputs, [{"label": {"from": "i"}}])


def test_label_of_nan_and_of_nothing(tmp_path):
    inputs = {"p": {**tensor("float32", -1), "allow_nan": True}}
    got = answers(tmp_path, inputs, [{"label": {"from": "p", "names": ["a", "b"]}}], [{"p": np.array([np.nan, 1])}, {"p": []}, {"p": [1.0]}],
                  outputs=["label"])
    assert "NaN at 0" in got[0]["error"] and "at least one score" in got[1]["error"] and "expected 2 scores" in got[2]["error"]


@pytest.mark.parametrize("n, k", [(1, 1), (7, 3), (7, 100), (1000, 5), (0, 2)])
def test_top_k(tmp_path, n, k):
    p = RNG.integers(0, 10, n).astype(np.float32)
    got = one(tmp_path, {"p": tensor("float32", -1)}, [{"top_k": {"field": "p", "k": k, "into": "t"}}], {"p": p})
    order = np.argsort(-p, kind="stable")[:k]
    assert got["t"] == [{"label": int(i), "score": float(p[i])} for i in order]


def test_top_k_of_pairs_above_a_score(tmp_path):
    steps = [{"label": {"from": "p", "names": ["a", "b", "c", "d"]}}, {"top_k": {"field": "scores", "k": 3, "min_score": 0.25, "into": "t"}}]
    got = one(tmp_path, {"p": tensor("float64", 4)}, steps, {"p": [0.1, 0.25, 0.5, 0.15]}, outputs=["label", "t"])
    assert got == {"label": "c", "t": [{"label": "c", "score": 0.5}, {"label": "b", "score": 0.25}]}


# ---- threshold, abstain ------------------------------------------------------------------------------


def test_threshold_as_the_design_writes_it(tmp_path):
    steps = [{"label": {"from": "p", "names": ["ok", "fraud"]}}, {"threshold": {"label": "fraud", "at": 0.83}}]
    records = [{"p": [1 - v, v]} for v in (0.0, 0.5, 0.82, 0.83, 0.9)]
    got = answers(tmp_path, {"p": tensor("float64", 2)}, steps, records, outputs=["label"])
    assert [g["label"] for g in got] == ["ok", "ok", "ok", "fraud", "fraud"]
    steps[1]["threshold"]["inclusive"] = False
    got = answers(tmp_path, {"p": tensor("float64", 2)}, steps, records, outputs=["label"])
    assert [g["label"] for g in got] == ["ok", "ok", "ok", "ok", "fraud"]


def test_threshold_falls_back_to_the_best_of_the_others(tmp_path):
    steps = [{"label": {"from": "p", "names": ["a", "b", "c"]}}, {"threshold": {"label": "b", "at": 0.8}}]
    got = answers(tmp_path, {"p": tensor("float64", 3)}, steps, [{"p": [0.1, 0.7, 0.2]}, {"p": [0.15, 0.7, 0.15]}, {"p": [0.0, 0.9, 0.1]}],
                  outputs=["label"])
    assert [g["label"] for g in got] == ["c", "a", "b"]
    steps[1]["threshold"]["label"] = "d"
    got = answers(tmp_path, {"p": tensor("float64", 3)}, steps, [{"p": [0.1, 0.7, 0.2]}], outputs=["label"])
    assert "expected 'd' among the names" in got[0]["error"]


def test_threshold_of_numbers(tmp_path):
    inputs = {"v": {"type": "double"}, "x": tensor("float32", -1, 2), "l": {"type": "list", "of": {"type": "int64"}}}
    steps = [{"threshold": {"field": "v", "at": 0.5, "into": "yes"}}, {"threshold": {"field": "v", "at": 0.5, "above": "spam", "below": "ham", "into": "word"}},
             {"threshold": {"field": "x", "at": 0, "into": "mask"}}, {"threshold": {"field": "l", "at": 3, "inclusive": False, "above": "big", "below": "small", "into": "sizes"}}]
    got = one(tmp_path, inputs, steps, {"v": 0.5, "x": [[1.0, -1.0], [0.0, -0.5]], "l": [3, 4]})
    assert got == {"yes": True, "word": "spam", "mask": [[True, False], [True, False]], "sizes": ["small", "big"]}


def test_threshold_refuses(tmp_path):
    inputs = {"p": tensor("float64", 2), "v": {"type": "double"}}
    assert "expected a value that is there, got 'scores'" in refusal(tmp_path, inputs, [{"threshold": {"label": "a", "at": 0.5}}])
    assert "expected scores with names" in refusal(tmp_path, inputs, [{"threshold": {"field": "p", "label": "a", "at": 0.5}}])
    assert "expected 'above' and 'below' together" in refusal(tmp_path, inputs, [{"threshold": {"field": "v", "above": "a", "at": 0.5, "into": "y"}}])


@pytest.mark.parametrize("value", [None, "unknown"])
def test_abstain(tmp_path, value):
    steps = [{"label": {"from": "p", "names": ["a", "b", "c"]}}, {"abstain": {"below": 0.5, "margin": 0.125, **({"value": value} if value else {})}}]
    inputs = {"p": tensor("float64", 3)}
    records = [{"p": p} for p in ([0.75, 0.125, 0.125], [0.5, 0.25, 0.25], [0.5, 0.4375, 0.0625], [0.4375, 0.25, 0.25], [0.5, 0.375, 0.125])]
    got = answers(tmp_path, inputs, steps, records, outputs=["label", "abstained"])
    assert [g["abstained"] for g in got] == [False, False, True, True, False]
    assert [g["label"] for g in got] == ["a", "a", value, value, "a"]


def test_abstain_by_a_number_that_may_be_nan(tmp_path):
    inputs = {"label": {"type": "int64"}, "c": {"type": "double", "allow_nan": True}}
    got = answers(tmp_path, inputs, [{"abstain": {"field": "c", "below": 0.5}}], [{"label": 7, "c": 0.5}, {"label": 7, "c": float("nan")}],
                  outputs=["label", "abstained"])
    assert got == [{"label": 7, "abstained": False}, {"label": None, "abstained": True}]


# ---- calibrate ---------------------------------------------------------------------------------------


def test_temperature(tmp_path):
    p = softmax(f32(4, 5).astype(np.float64))
    p[0] = [0, 0.5, 0.5, 0, 0]
    steps = [{"calibrate": {"field": "p", "temperature": 1.31, "into": "q"}}, {"calibrate": {"field": "z", "temperature": 2, "input": "logits", "into": "y"}},
             {"calibrate": {"field": "one", "temperature": 2, "into": "o"}}]
    z = f32(3)
    got = one(tmp_path, {"p": tensor("float64", -1, 5), "z": tensor("float32", 3), "one": {"type": "double"}}, steps, {"p": p, "z": z, "one": 0.8})
    with np.errstate(divide="ignore"):
        assert np.allclose(got["q"], softmax(np.log(p) / 1.31), atol=1e-12)
    assert np.array_equal(np.array(got["y"], np.float32), z / 2)
    assert got["o"] == pytest.approx(1 / (1 + np.exp(-np.log(0.8 / 0.2) / 2)), rel=1e-12)


def test_platt_is_scikit_learns(tmp_path):
    calibration = pytest.importorskip("sklearn.calibration")
    x, y = RNG.standard_normal(300), None
    y = (x + RNG.standard_normal(300) > 0).astype(int)
    fit = calibration._SigmoidCalibration().fit(x, y)
    got = one(tmp_path, {"x": tensor("float64", -1)}, [{"calibrate": {"field": "x", "a": fit.a_, "b": fit.b_, "into": "p"}}], {"x": x})
    assert np.allclose(got["p"], fit.predict(x), atol=1e-12)


def test_isotonic_is_scikit_learns(tmp_path):
    isotonic = pytest.importorskip("sklearn.isotonic")
    x = RNG.standard_normal(300)
    y = (x + RNG.standard_normal(300) > 0).astype(float)
    fit = isotonic.IsotonicRegression(out_of_bounds="clip").fit(x, y)
    np.save(tmp_path / "x.npy", fit.X_thresholds_)
    np.save(tmp_path / "y.npy", fit.y_thresholds_)
    probe = np.concatenate([RNG.standard_normal(100) * 3, fit.X_thresholds_])
    steps = [{"calibrate": {"field": "v", "x": {"file": "x.npy"}, "y": {"file": "y.npy"}, "into": "p"}}]
    got = one(tmp_path, {"v": tensor("float64", -1)}, steps, {"v": probe})
    assert np.allclose(got["p"], fit.predict(probe), atol=1e-12)


def test_normalize_rows_as_calibrated_classifiers(tmp_path):
    p = np.abs(f32(3, 4)).astype(np.float64)
    p[1] = -10
    steps = [{"calibrate": {"field": "p", "x": [0, 1], "y": [0, 1], "normalize": True, "into": "q"}}]
    got = one(tmp_path, {"p": tensor("float64", -1, 4)}, steps, {"p": p})
    clipped = np.clip(p, 0, 1)
    clipped[1] = 1
    assert np.allclose(got["q"], clipped / clipped.sum(1, keepdims=True))


@pytest.mark.parametrize("keys, message", [
    ({}, "expected one of 'temperature', 'a' and 'b', or 'x' and 'y'"), ({"temperature": 1, "a": 1, "b": 1}, "expected one of"),
    ({"a": 1}, "expected one of"), ({"temperature": 0}, "temperature"), ({"x": [1, 1], "y": [0, 1]}, "expected rising numbers, got 1 behind 1"),
    ({"x": [1], "y": [0, 1]}, "expected as many numbers as in x"), ({"x": [0, 1], "y": [1, 0]}, "do not fall"),
])
def test_calibrate_refuses(tmp_path, keys, message):
    assert message in refusal(tmp_path, {"p": tensor("float64", 2)}, [{"calibrate": {"field": "p", **keys, "into": "q"}}])


def test_temperature_of_what_is_no_probability(tmp_path):
    inputs = {"p": {**tensor("float64", -1), "allow_nan": True}}
    got = answers(tmp_path, inputs, [{"calibrate": {"field": "p", "temperature": 2, "into": "q"}}], [{"p": [0.5, 1.5]}, {"p": np.array([np.nan])}])
    assert "expected probabilities of 0 to 1, got 1.5 at 1" in got[0]["error"] and "nan at 0" in got[1]["error"]
