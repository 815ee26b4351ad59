"""RNN, GRU and LSTM with their attributes drawn at random against ONNX Runtime, and against the standard's equations where
ONNX Runtime reads it otherwise: it does not clip the cell before h (its issue 27224 says so), and takes 0 for parameters of
functions that a model leaves out."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime", reason="skip: onnxruntime is not installed")

from ort_case import Cases, model_of, write_case  # noqa: E402

GATES, FUNCTIONS = {"RNN": 1, "GRU": 3, "LSTM": 4}, {"RNN": 1, "GRU": 2, "LSTM": 3}
WITH_ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
WITH_BETA = ("Affine", "ScaledTanh", "HardSigmoid")
PLAIN = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")


def draw(c, i):
    rng, f = c.rng, c.f32
    op = ("RNN", "GRU", "LSTM")[i % 3]
    way = ("forward", "reverse", "bidirectional")[rng.integers(3)]
    n, gates = (2 if way == "bidirectional" else 1), GATES[op]
    steps, batch, size, hidden = int(rng.integers(1, 6)), int(rng.integers(1, 4)), 3, int(rng.integers(4, 6))
    attrs = {"hidden_size": hidden, "direction": way}
    if op != "LSTM" and rng.random() < 0.4:
        attrs["clip"] = float(rng.choice([0.3, 1.0]))
    if rng.random() < 0.4:
        # A cell that Softplus drives grows until ONNX Runtime's exp overflows.
        functions = [str(rng.choice(WITH_ALPHA + PLAIN[: 4 if op == "LSTM" else 5])) for _ in range(n * FUNCTIONS[op])]
        attrs["activations"] = functions
        for name, has, value in (("activation_alpha", WITH_ALPHA, 0.3), ("activation_beta", WITH_BETA, 0.4)):
            values = [value for function in functions if function in has]
            if values:
                attrs[name] = values
    if op == "GRU":
        attrs["linear_before_reset"] = int(rng.integers(2))
    if op == "LSTM" and rng.random() < 0.2:
        attrs["input_forget"] = 1
    lengths = rng.integers(1, steps + 1, batch).astype(np.int32) if rng.random() < 0.4 else None
    state = f(n, batch, hidden) if rng.random() < 0.5 else None
    bias = f(n, 2 * gates * hidden) if rng.random() < 0.7 else None
    inputs = [f(steps, batch, size), f(n, gates * hidden, size), f(n, gates * hidden, hidden), bias, lengths, state]
    if op == "LSTM":
        inputs += [f(n, batch, hidden) if rng.random() < 0.5 else None, f(n, 3 * hidden) if rng.random() < 0.4 else None]
    outputs = rng.choice(["xxx", "-x", "--x", "x"]) if op == "LSTM" else rng.choice(["xx", "-x", "x"])
    constant = (1, 2) if rng.random() < 0.5 else ()
    c.case(f"{op}_{i}", op, 7 if rng.random() < 0.5 else 14, inputs, str(outputs), constant=constant, **attrs)


def test_agrees_with_onnxruntime(churon, tmp_path):
    c = Cases(5)
    for i in range(240):
        draw(c, i)
    rows, refused = c.run(churon, tmp_path)
    assert not refused, refused
    wrong = [f"{name}: {row['why']} {c.specs[name][-1]}" for name, row in rows.items() if not row["ok"]]
    assert not wrong, "\n".join(wrong)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, w, r, b, p, clip):
    """The standard's equations, forward: what goes into a function is clipped."""
    hidden = r.shape[2]
    h, c, out = np.zeros((x.shape[1], hidden)), np.zeros((x.shape[1], hidden)), []
    for step in x:
        gates = step @ w[0].T + h @ r[0].T + b[0, : 4 * hidden] + b[0, 4 * hidden :]
        i, o, f, g = np.split(gates, 4, 1)
        pi, po, pf = np.split(p[0], 3)
        cut = lambda v: np.clip(v, -clip, clip)  # noqa: E731
        i, f, g = sigmoid(cut(i + pi * c)), sigmoid(cut(f + pf * c)), np.tanh(cut(g))
        c = f * c + i * g
        h = sigmoid(cut(o + po * c)) * np.tanh(cut(c))
        out.append(h)
    return np.stack(out)[:, None].astype(np.float32), h[None].astype(np.float32), c[None].astype(np.float32)


@pytest.mark.parametrize("clip", [0.2, 0.7, 50.0])
def test_clip_holds_for_the_cell_too(churon, tmp_path, clip):
    c = Cases(int(clip * 10))
    x, w, r, b, p = c.f32(6, 3, 4), c.f32(1, 20, 4), c.f32(1, 20, 5), c.f32(1, 40), c.f32(1, 15)
    model, feeds = model_of("LSTM", "", 14, [x, w, r, b, None, None, None, p], "xxx", (1, 2), False, None, {"hidden_size": 5, "clip": clip})
    write_case(tmp_path / "case", model, feeds, ["y0", "y1", "y2"], lstm(x, w, r, b, p, clip))
    rows, _ = Cases(0).run(churon, tmp_path)
    assert rows["case"]["ok"], rows["case"]["why"]


@pytest.mark.parametrize("op", GATES)
def test_batch_first_is_the_same_layer(churon, tmp_path, op):
    """layout 1, which ONNX Runtime lacks: its answers for layout 0, transposed."""
    import onnxruntime as ort

    c = Cases(6)
    n, gates, hidden = 2, GATES[op], 5
    x, state, lengths = c.f32(6, 3, 4), c.f32(n, 3, hidden), np.int32([6, 2, 4])
    fixed = [c.f32(n, gates * hidden, 4), c.f32(n, gates * hidden, hidden), c.f32(n, 2 * gates * hidden), lengths]
    more = {"hidden_size": hidden, "direction": "bidirectional"}
    outputs = "xxx" if op == "LSTM" else "xx"
    states = [state, state] if op == "LSTM" else [state]
    model, feeds = model_of(op, "", 14, [x, *fixed, *states], outputs, (), False, None, more)
    y, *last = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    turned = [s.transpose(1, 0, 2).copy() for s in states]
    model, feeds = model_of(op, "", 14, [x.transpose(1, 0, 2).copy(), *fixed, *turned], outputs, (1, 2), False, None, {"layout": 1, **more})
    results = [y.transpose(2, 0, 1, 3).copy(), *(v.transpose(1, 0, 2).copy() for v in last)]
    write_case(tmp_path / "case", model, feeds, [f"y{i}" for i in range(len(results))], results)
    rows, _ = Cases(0).run(churon, tmp_path)
    assert rows["case"]["ok"], rows["case"]["why"]
