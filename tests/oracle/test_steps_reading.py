"""ctc, span, token_classes and timestamps: against RapidOCR's and silero-vad's own code where it is installed, and the rules of
transformers' pipelines recomputed here."""

import importlib.util
import itertools
import re

import numpy as np
import pytest

from step_case import answers, one, refusal, tensor

RNG = np.random.default_rng(21)
F = np.float32


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- ctc ---------------------------------------------------------------------------------------------

LABELS = ["a", "b", "ü", "字"]


def collapse(path, blank):
    return [int(k) for i, k in enumerate(path) if k != blank and (i == 0 or k != path[i - 1])]


@pytest.mark.parametrize("blank", [0, 2, -1])
@pytest.mark.parametrize("kind", ["probabilities", "logits", "log_probabilities"])
def test_ctc_greedy(tmp_path, blank, kind):
    x = (RNG.standard_normal((30, 5)) * 3).astype(F)
    p = softmax(x.astype(np.float64))
    given = {"probabilities": p.astype(F), "logits": x, "log_probabilities": np.log(p).astype(F)}[kind]
    step = {"field": "x", "labels": LABELS, "blank": blank, "input": kind, "score": "s", "into": "t"}
    got = answers(tmp_path, {"x": tensor("float32", -1, 5)}, [{"ctc": step}], [{"x": given}, {"x": np.zeros((0, 5), F)}], outputs=["t", "s"])
    at = blank % 5
    names, path = LABELS[:at] + [None] + LABELS[at:], p.argmax(1)
    read = [i for i, k in enumerate(path) if k != at and (i == 0 or k != path[i - 1])]
    assert got[0]["t"] == "".join(names[path[i]] for i in read)
    assert got[0]["s"] == pytest.approx(p.max(1)[read].mean(), rel=1e-5)
    assert got[1] == {"t": "", "s": 0.0}


def test_ctc_is_rapidocrs(tmp_path):
    rec = pytest.importorskip("rapidocr.ch_ppocr_rec.utils", reason="skip: rapidocr is not installed")
    decode, step = rec.CTCLabelDecode(character=list(LABELS)), {"field": "x", "labels": LABELS, "space": True, "score": "s", "into": "t"}
    xs = [softmax(RNG.standard_normal((40, 6)) * 4).astype(F) for _ in range(20)]
    got = answers(tmp_path, {"x": tensor("float32", -1, 6)}, [{"ctc": step}], [{"x": x} for x in xs], outputs=["t", "s"])
    for x, answer in zip(xs, got):
        [(text, score)], _ = decode(x[None])
        assert answer["t"] == text and answer["s"] == pytest.approx(score, abs=2e-5)


def all_texts(p, blank):
    """The probability of every text: the sum over its paths."""
    found = {}
    for path in itertools.product(range(p.shape[1]), repeat=len(p)):
        text = tuple(collapse(path, blank))
        found[text] = found.get(text, 0) + np.prod([p[i, k] for i, k in enumerate(path)])
    return found


@pytest.mark.parametrize("seed", range(8))
def test_ctc_beams_find_the_best_text(tmp_path, seed):
    rng = np.random.default_rng(seed)
    p = softmax(rng.standard_normal((6, 4)))
    found = all_texts(p, 0)
    best = max(found, key=found.get)
    step = {"field": "x", "labels": ["a", "b", "c"], "method": "beam", "width": 100, "score": "s", "into": "t"}
    got = one(tmp_path, {"x": tensor("float32", -1, 4)}, [{"ctc": step}], {"x": p}, outputs=["t", "s"])
    assert got["t"] == "".join(" abc"[k] for k in best) and got["s"] == pytest.approx(found[best], rel=1e-5)


def beam_search(p, blank, width):
    beams = {(): (1.0, 0.0)}
    for step in p:
        new = {}
        for text, (b, nb) in beams.items():
            for k, q in enumerate(step):
                if k == blank:
                    x = new.setdefault(text, [0.0, 0.0])
                    x[0] += (b + nb) * q
                    continue
                x = new.setdefault(text + (k,), [0.0, 0.0])
                if text and text[-1] == k:
                    x[1] += b * q
                    y = new.setdefault(text, [0.0, 0.0])
                    y[1] += nb * q
                else:
                    x[1] += (b + nb) * q
        beams = dict(sorted(((t, tuple(v)) for t, v in new.items()), key=lambda i: -sum(i[1]))[:width])
    best = max(beams, key=lambda t: sum(beams[t]))
    return best, sum(beams[best])


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_ctc_narrow_beams(tmp_path, width):
    step = {"field": "x", "labels": ["a", "b", "c", "d", "e"], "method": "beam", "width": width, "score": "s", "into": "t"}
    ps = [softmax(RNG.standard_normal((25, 6)) * 1.5).astype(F) for _ in range(10)]
    got = answers(tmp_path, {"x": tensor("float32", -1, 6)}, [{"ctc": step}], [{"x": p} for p in ps], outputs=["t", "s"])
    for p, answer in zip(ps, got):
        best, score = beam_search(p.astype(np.float64), 0, width)
        assert answer["t"] == "".join(" abcde"[k] for k in best) and answer["s"] == pytest.approx(score, rel=1e-9)


def test_ctc_refuses_and_bad_scores(tmp_path):
    inputs = {"x": {**tensor("float32", -1, -1), "allow_nan": True}, "y": tensor("float32", -1, 7)}
    step = {"field": "x", "labels": LABELS, "into": "t"}
    assert "expected 6 texts, one for each class but the blank, got 4" in refusal(tmp_path, inputs, [{"ctc": {**step, "field": "y"}}])
    assert "expected a class of 0 to 4, got 9" in refusal(tmp_path, inputs, [{"ctc": {**step, "blank": 9}}])
    bad = np.zeros((2, 5), F)
    bad[1, 1] = np.nan
    del inputs["y"]
    for method in ("greedy", "beam"):
        got = answers(tmp_path, inputs, [{"ctc": {**step, "method": method}}], [{"x": bad}, {"x": np.zeros((1, 4), F)}, {"x": np.zeros((3, 5), F)}], outputs=["t"])
        assert "got nan at step 1" in got[0]["error"] and "expected 5 classes" in got[1]["error"] and got[2] == {"t": ""}


# ---- span --------------------------------------------------------------------------------------------

TEXT = "Größe zählt: the quick brown fox jumps over the lazy dog 字字 at noon."


def tokens_of(text):
    return [(m.start(), m.end()) for m in re.finditer(r"\w+|[^\w\s]", text)]


def best_span(start, end, p_mask, most, impossible):
    """transformers' select_starts_ends and decode_spans."""
    mask = np.array(p_mask) != 0
    mask[0] = True
    s, e = softmax(np.where(mask, start, -10000.0)), softmax(np.where(mask, end, -10000.0))
    null = s[0] * e[0]
    s[0] = e[0] = 0
    outer = np.tril(np.triu(np.outer(s, e)), most - 1)
    at = int(outer.argmax())
    i, k = divmod(at, len(s))
    if impossible and null > outer[i, k]:
        return None, null
    return (i, k), outer[i, k]


@pytest.mark.parametrize("unit", ["characters", "bytes"])
@pytest.mark.parametrize("empty", [False, True])
def test_span(tmp_path, unit, empty):
    at = tokens_of(TEXT)
    chars = [(0, 0), (0, 0), (0, 0)] + at + [(0, 0)]
    n, mask, records, wants = len(chars), [1, 0, 0] + [1] * len(at) + [0], [], []
    offsets = chars if unit == "characters" else [(len(TEXT[:a].encode()), len(TEXT[:b].encode())) for a, b in chars]
    for _ in range(30):
        start, end = RNG.standard_normal((2, n)) * 3
        start, end = start.astype(F), end.astype(F)
        records.append({"s": start, "e": end, "o": offsets, "t": TEXT, "m": mask})
        wants.append(best_span(start.astype(np.float64), end.astype(np.float64), mask, 4, empty))
    step = {"start": "s", "end": "e", "offsets": "o", "text": "t", "mask": "m", "max_tokens": 4, "unit": unit, "empty": empty, "into": "a"}
    inputs = {"s": tensor("float32", -1), "e": tensor("float32", -1), "o": tensor("int64", -1, 2), "t": {"type": "text"}, "m": tensor("int64", -1)}
    for got, (span, score) in zip(answers(tmp_path, inputs, [{"span": step}], records), wants):
        a = got["a"]
        assert a["score"] == pytest.approx(score, rel=1e-6)
        if span is None:
            assert a["answer"] == "" and a["start"] == a["end"] == 0
        else:
            assert a["answer"] == TEXT[chars[span[0]][0]:chars[span[1]][1]]
            assert (a["start"], a["end"]) == (offsets[span[0]][0], offsets[span[1]][1])


def test_span_of_nothing_and_of_wild_offsets(tmp_path):
    inputs = {"s": tensor("float32", -1), "e": tensor("float32", -1), "o": tensor("int64", -1, 2), "t": {"type": "text"}, "m": tensor("int64", -1)}
    step = [{"span": {"start": "s", "end": "e", "offsets": "o", "text": "t", "mask": "m", "cls": False, "into": "a"}}]
    base = {"s": [1.0], "e": [1.0], "o": [[-5, 2**40]], "t": "ä", "m": [1]}
    got = answers(tmp_path, inputs, step, [base, {**base, "m": [0]}, {**base, "e": [1.0, 2.0]}, {**base, "s": [], "e": [], "o": np.zeros((0, 2), int), "m": []}])
    assert got[0]["a"]["answer"] == "ä"
    assert "at least one token of the text" in got[1]["error"] and "expected 1 numbers, one a token, got 2" in got[2]["error"] and "error" in got[3]


# ---- token_classes -----------------------------------------------------------------------------------

CLASSES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def transformers_entities(p, offsets, text, strategy):
    """TokenClassificationPipeline's gather_pre_entities, aggregate and group_entities."""
    tokens = []
    for scores, (a, b) in zip(p, offsets):
        if a == b:
            continue
        tokens.append({"scores": scores, "start": a, "end": b, "sub": a > 0 and " " not in text[a - 1:a + 1]})

    def entity(scores, start, end):
        k = int(np.argmax(scores))
        return {"entity": CLASSES[k], "score": scores[k], "start": start, "end": end}

    if strategy in ("none", "simple"):
        entities = [entity(t["scores"], t["start"], t["end"]) for t in tokens]
    else:
        words = []
        for t in tokens:
            if words and t["sub"]:
                words[-1].append(t)
            else:
                words.append([t])
        entities = []
        for w in words:
            if strategy == "first":
                scores = w[0]["scores"]
            elif strategy == "max":
                scores = max(w, key=lambda t: t["scores"].max())["scores"]
            else:
                scores = np.mean([t["scores"] for t in w], axis=0)
            entities.append(entity(scores, w[0]["start"], w[-1]["end"]))
    if strategy == "none":
        return [(e["entity"], e["score"], e["start"], e["end"]) for e in entities if e["entity"] != "O"]

    def tag(name):
        return (name[0], name[2:]) if name[:2] in ("B-", "I-") else ("I", name)
    groups = []
    for e in entities:
        bi, name = tag(e["entity"])
        if groups and tag(groups[-1][-1]["entity"])[1] == name and bi != "B":
            groups[-1].append(e)
        else:
            groups.append([e])
    grouped = [(tag(g[0]["entity"])[1], float(np.mean([e["score"] for e in g])), g[0]["start"], g[-1]["end"]) for g in groups]
    return [g for g in grouped if g[0] != "O"]


@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
def test_token_classes(tmp_path, strategy):
    at = []
    for a, b in tokens_of(TEXT):
        cuts = [a, *sorted(set(RNG.integers(a, b, 1).tolist()) - {a}), b]
        at += list(zip(cuts, cuts[1:]))
    offsets = [(0, 0)] + at + [(0, 0)]
    inputs = {"x": tensor("float32", -1, 5), "o": tensor("int64", -1, 2), "t": {"type": "text"}}
    records = [{"x": (RNG.standard_normal((len(offsets), 5)) * 2).astype(F), "o": offsets, "t": TEXT} for _ in range(20)]
    step = {"field": "x", "labels": CLASSES, "offsets": "o", "text": "t", "aggregation": strategy, "into": "names"}
    for record, got in zip(records, answers(tmp_path, inputs, [{"token_classes": step}], records)):
        want = transformers_entities(softmax(record["x"].astype(np.float64)), offsets, TEXT, strategy)
        assert [(e["label"], e["start"], e["end"]) for e in got["names"]] == [(w[0], w[2], w[3]) for w in want]
        assert [e["score"] for e in got["names"]] == pytest.approx([w[1] for w in want], rel=1e-6)
        assert all(e["text"] == TEXT[e["start"]:e["end"]] for e in got["names"])


def test_token_classes_of_other_schemes_and_words(tmp_path):
    classes = ["O", "B-X", "I-X", "E-X", "S-X"]
    path, text = [1, 2, 3, 2, 4, 2, 0, 3], "a b c d e f g h"
    p = np.full((8, 5), 0.1, F)
    p[range(8), path] = 0.6
    inputs = {"x": tensor("float32", -1, 5), "o": tensor("int64", -1, 2), "t": {"type": "text"}, "w": tensor("int64", -1), "skip": tensor("int64", -1)}
    base = {"field": "x", "labels": classes, "offsets": "o", "text": "t", "input": "probabilities", "into": "n"}
    record = {"x": p, "o": [[2 * i, 2 * i + 1] for i in range(8)], "t": text, "w": [0, 0, 0, 1, 1, 1, 2, 2], "skip": [0] * 7 + [1]}
    got = one(tmp_path, inputs, [{"token_classes": base}], record)
    assert [e["text"] for e in got["n"]] == ["a b c", "d", "e", "f", "h"]
    got = one(tmp_path, inputs, [{"token_classes": {**base, "words": "w", "aggregation": "first", "skip": "skip"}}], record)
    assert [(e["text"], e["label"]) for e in got["n"]] == [("a b c d e f", "X")]


# ---- timestamps --------------------------------------------------------------------------------------


def silero():
    """get_speech_timestamps_from_probs of the installed package, without torch, which the function does not use."""
    spec = importlib.util.find_spec("silero_vad")
    if spec is None:
        pytest.skip("skip: silero-vad is not installed")
    source = (spec.submodule_search_locations[0] + "/utils_vad.py")
    text = open(source).read()
    body = re.search(r"^def get_speech_timestamps_from_probs\(.*?(?=^\S)", text, re.S | re.M).group(0)
    names = {}
    exec("from typing import List\n" + re.sub(r"^class.*", "", body, flags=re.M), names)
    return names["get_speech_timestamps_from_probs"]


def speech(n, seed):
    rng = np.random.default_rng(seed)
    level = np.repeat(rng.random(n // 4 + 1), rng.integers(1, 9))[:n]
    level = np.resize(level, n)
    return np.clip(level + rng.normal(0, 0.15, n), 0, 1).astype(F)


@pytest.mark.parametrize("options", [
    {}, {"threshold": 0.3}, {"max_speech_duration_s": 1.0}, {"max_speech_duration_s": 0.5, "use_max_poss_sil_at_max_speech": False},
    {"max_speech_duration_s": 2.0, "min_silence_at_max_speech": 30, "min_silence_duration_ms": 500},
    {"max_speech_duration_s": 2.0, "min_silence_at_max_speech": 30, "min_silence_duration_ms": 500, "use_max_poss_sil_at_max_speech": False},
    {"min_speech_duration_ms": 0, "speech_pad_ms": 200}, {"neg_threshold": 0.1, "min_silence_duration_ms": 0}, {"sampling_rate": 8000},
    {"return_seconds": True, "time_resolution": 2},
])
def test_timestamps_are_silero_vads(tmp_path, options):
    reference = silero()
    names = {"max_speech_duration_s": "max_speech_s", "min_speech_duration_ms": "min_speech_ms", "min_silence_duration_ms": "min_silence_ms",
             "speech_pad_ms": "pad_ms", "neg_threshold": "exit_threshold", "min_silence_at_max_speech": "min_silence_at_max_ms",
             "use_max_poss_sil_at_max_speech": "cut_at_longest", "sampling_rate": "rate", "return_seconds": "seconds", "time_resolution": "digits"}
    step = {"field": "p", "into": "t", "length_of": "x", **{names.get(k, k): v for k, v in options.items()}}
    records, wants = [], []
    for seed, n in enumerate([0, 1, 2, 10, 50, 200, 400, 400, 400, 400, 900]):
        p = speech(n, seed) if n else np.zeros(0, F)
        window = 256 if options.get("sampling_rate") == 8000 else 512
        length = max(n * window - 100, 0)
        records.append({"p": p, "x": {"b64": "", "shape": [length, 0]}})
        wants.append(reference([float(v) for v in p], audio_length_samples=length, **options))
    inputs = {"p": tensor("float32", -1), "x": tensor("float32", -1, -1)}
    steps = [{"reshape": {"field": "x", "shape": [0, -1], "into": "flat"}}, {"timestamps": step}]
    records = [{"p": r["p"], "x": {"b64": "AAAA" * 0, "shape": [0, r["x"]["shape"][0]]}} for r in records]
    got = answers(tmp_path, inputs, steps[1:], records, outputs=["t"])
    assert [g["t"] for g in got] == wants


def test_timestamps_without_a_length_and_of_nan(tmp_path):
    inputs = {"p": {**tensor("float32", -1), "allow_nan": True}}
    got = answers(tmp_path, inputs, [{"timestamps": {"field": "p", "into": "t"}}], [{"p": [1.0] * 20}, {"p": np.array([1, np.nan])}], outputs=["t"])
    assert got[0]["t"] == [{"start": 0, "end": 20 * 512}] and "NaN at 1" in got[1]["error"]


def test_the_real_model_over_a_signal(tmp_path):
    """silero-vad's network in a scan over windows with their context, and the stretches of what it gives: the package's loop."""
    spec, ort = importlib.util.find_spec("silero_vad"), pytest.importorskip("onnxruntime")
    if spec is None:
        pytest.skip("skip: silero-vad is not installed")
    model = open(spec.submodule_search_locations[0] + "/data/silero_vad_16k_op15.onnx", "rb").read()
    rng, t = np.random.default_rng(1), np.arange(5 * 16000) / 16000
    tone = sum(np.sin(2 * np.pi * 120 * k * t + k) / k for k in range(1, 20)) * (np.sin(2 * np.pi * 3 * t) > 0) * ((t % 2.5) < 1.5)
    signal = (0.2 * tone + 0.003 * rng.standard_normal(len(t))).astype(F)[:79000]
    steps = [{"constant": {"value": 16000, "type": "int64", "into": "sr"}},
             {"windows": {"field": "x", "size": 512, "context": 64, "into": "chunks"}},
             {"scan": {"from": "chunks", "as": "input", "carry": {"state": {"next": "stateN", "dtype": "float32", "shape": [2, 1, 128]}},
                       "steps": [{"model": {"batch": False, "outputs": {"output": "raw", "stateN": "stateN"}}},
                                 {"reshape": {"field": "raw", "shape": [1], "into": "p"}}], "stack": {"p": "ps"}}},
             {"reshape": {"field": "ps", "shape": [-1], "into": "probabilities"}},
             {"timestamps": {"field": "probabilities", "length_of": "x", "threshold": 0.15, "into": "speech"}}]
    got = one(tmp_path, {"x": tensor("float32", 1, -1)}, steps, {"x": signal[None]}, outputs=["probabilities", "speech"],
              files=[("m.onnx", model)], model={"file": "m.onnx"})
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    state, context, want = np.zeros((2, 1, 128), F), np.zeros((1, 64), F), []
    for i in range(0, len(signal), 512):
        x = np.concatenate([context, np.pad(signal[None, i:i + 512], ((0, 0), (0, max(0, i + 512 - len(signal)))))], 1)
        p, state = session.run(None, {"input": x, "state": state, "sr": np.array(16000, np.int64)})
        context = x[:, -64:]
        want.append(float(p[0, 0]))
    assert np.allclose(got["probabilities"], want, atol=1e-4) and max(want) > 0.2
    assert got["speech"] == silero()(want, audio_length_samples=len(signal), threshold=0.15)
