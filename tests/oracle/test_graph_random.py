"""Random graphs: the same answers with every pass, with none and with each left out, by every instruction set, by one
thread and by two (bit for bit), and as ONNX Runtime gives them without its optimizer.

The graphs follow from their seeds (random_graph.py). By hand, over a range of seeds:
    CHURON_RANDOM_GRAPHS=1000:2000 pytest tests/oracle/test_graph_random.py -k many"""

import os
import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="skip: the onnx package cannot be had")
ort = pytest.importorskip("onnxruntime", reason="skip: the onnxruntime package cannot be had")
import random_graph  # noqa: E402
import random_graph_more  # noqa: E402

PASSES = ["function-tables", "quantized", "quantized-layout", "constant-folding", "identity", "transposes", "common-subexpressions", "conv-scale", "activations", "normalization", "softmax", "attention", "blocked-layout", "winograd", "recurrent-weights", "conv-epilogue",
          "matmul-epilogue", "skip-normalization", "fused-exports", "one-hot", "dead-code"]
EPS = 2.0**-23
# What was once found wrong. 4445: two norms in pieces that share a mean lost it to each other.
FOUND = []
FOUND_MORE = [4445]
SOME, SOME_MORE = 60, 48


def reference(model, feeds):
    """Outputs in order, and the largest magnitude of any value of the graph."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    outputs = [o.name for o in model.graph.output]
    more = [o for n in model.graph.node for o in n.output if o and o not in outputs]
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(every.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = session.run(outputs + more, feeds)
    floats = [np.abs(v).max() for v in [*values, *feeds.values()] if v.dtype == np.float32 and v.size]
    return dict(zip(outputs, values)), float(max(floats))


def run(churon, folder, model, feeds, isa, threads, *left_out):
    out = folder / "out"
    command = [churon, "run", str(folder / "model.onnx"), "--threads", str(threads), "--output-dir", str(out)]
    for name in feeds:
        command += ["--input", f"{name}={folder}/{name}.npy"]
    for name in left_out:
        command += ["--no-pass", name]
    p = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "CHURON_CPU": isa})
    where = f"{isa}, {threads} threads, without {', '.join(left_out) or 'nothing'}"
    assert p.returncode == 0, f"{where}: {p.stderr}"
    return where, {o.name: np.load(out / f"{o.name}.npy") for o in model.graph.output}


def compare(where, got, want, allowed):
    for name, w in want.items():
        g = got[name]
        assert g.shape == w.shape and g.dtype == w.dtype, f"{where}: {name}: {g.dtype}{g.shape}, expected {w.dtype}{w.shape}"
        apart = np.abs(g.astype(np.float64) - w.astype(np.float64))
        assert np.isfinite(g).all() and (g.size == 0 or apart.max() <= allowed), (
            f"{where}: {name}: apart by {apart.max():.3g}, allowed {allowed:.3g}")


def instruction_sets(churon):
    found = []
    for isa in ("avx512", "avx2"):
        p = subprocess.run([churon, "version", "--json"], capture_output=True, text=True, env={**os.environ, "CHURON_CPU": isa})
        if p.returncode == 0:
            found.append(isa)
    return found or ["ref"]


def check(churon, folder, seed, thorough=True):
    model, feeds, sums = random_graph.make(seed)
    check_model(churon, folder, model, feeds, sums, thorough, seed % 8 == 0)


def check_model(churon, folder, model, feeds, sums, thorough=True, ref=True):
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    for name, x in feeds.items():
        np.save(folder / f"{name}.npy", x)
    want, largest = reference(model, feeds)
    assert np.isfinite(largest)
    # A sum of k terms may be off by k roundings of its largest partial sum, every node adds a few of its own, and a
    # normalization in between widens what came before it a few times.
    allowed = 8 * EPS * (sums + 8 * len(model.graph.node)) * max(1.0, largest)
    for isa in instruction_sets(churon):
        first = run(churon, folder, model, feeds, isa, 1)
        compare(*first, want, allowed)
        where, second = run(churon, folder, model, feeds, isa, 2)
        for name in want:
            assert np.array_equal(first[1][name].view(np.uint32), second[name].view(np.uint32)), f"{where}: {name}: other bits than 1 thread's"
        compare(*run(churon, folder, model, feeds, isa, 1, "all"), want, allowed)
        for name in PASSES if thorough else []:
            compare(*run(churon, folder, model, feeds, isa, 2, name), want, allowed)
    if ref:
        compare(*run(churon, folder, model, feeds, "ref", 1), want, allowed)


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found(churon, tmp_path, seed):
    check(churon, tmp_path, seed)


@pytest.mark.parametrize("seed", FOUND_MORE)
def test_what_was_found_with_more_operators(churon, tmp_path, seed):
    check_model(churon, tmp_path, *random_graph_more.make(seed))


@pytest.mark.parametrize("first", range(0, SOME_MORE, 12))
def test_some_with_more_operators(churon, tmp_path, first):
    for seed in range(first, first + 12):
        check_model(churon, tmp_path / str(seed), *random_graph_more.make(seed), thorough=seed % 6 == 0, ref=seed % 8 == 0)


@pytest.mark.parametrize("first", range(0, SOME, 10))
def test_some(churon, tmp_path, first):
    for seed in range(first, first + 10):
        check(churon, tmp_path / str(seed), seed)


def small(text, feeds, **weights):
    graph = onnx.parser.parse_graph(text)
    graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(w, np.float32), name) for name, w in weights.items())
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return model, {name: np.asarray(x, np.float32) for name, x in feeds.items()}


def uniform(*shape, low=-1.0, high=1.0):
    return np.random.default_rng(len(shape) + int(sum(shape))).uniform(low, high, shape)


@pytest.mark.parametrize("function, shift", [("Sqrt", -0.5), ("Exp", 100.0)])
def test_what_fills_up_a_block_of_channels_reaches_no_answer(churon, tmp_path, function, shift):
    """Of 5 channels each is in the function's domain; 0, which fills up the block, is not."""
    base = uniform(5, 1, 1, low=1, high=2) - (101 if function == "Exp" else 0)
    model, feeds = small(f"""net (float[1, 5, 6, 6] x) => (float[1, 7, 6, 6] y) {{
        a = Conv<pads = [1, 1, 1, 1]>(x, w)
        b = Abs(a)
        c = Add(b, base)
        d = Add(c, shift)
        e = {function}(d)
        y = Conv(e, v) }}""", {"x": uniform(1, 5, 6, 6)}, w=uniform(5, 5, 3, 3) * 0.1, base=base, shift=shift, v=uniform(7, 5, 1, 1))
    check_model(churon, tmp_path, model, feeds, 45)


@pytest.mark.parametrize("one, other", [((2, 3, 6, 6), (1, 3, 1, 6)), ((1, 3, 6, 1), (1, 3, 1, 6)), ((1, 3, 1, 1), (2, 3, 5, 4)),
                                        ((2, 3, 5, 4), (2, 3, 5, 4))])
def test_dimensions_of_one_name_may_differ(churon, tmp_path, one, other):
    """Two inputs name their dimensions alike and come in sizes that broadcast."""
    model, feeds = small("""net (float[N, 3, H, W] x, float[N, 3, H, W] z) => (float[M, 18, I, J] y, float[M, 18, I, J] s) {
        a = Conv(x, w, c)
        b = Conv(z, v)
        d = Add(a, b)
        y = Relu(d)
        e = Conv(z, w)
        f = Conv(x, v)
        g = Add(e, f)
        s = Sigmoid(g) }""", {"x": uniform(*one), "z": uniform(*other)}, w=uniform(18, 3, 1, 1), v=uniform(18, 3, 1, 1) - 0.5, c=uniform(18))
    check_model(churon, tmp_path, model, feeds, 3)


@pytest.mark.parametrize("after", ["MaxPool<kernel_shape = [3, 3]>(a)", "Relu(a)", "Clip(a, low, high)", "HardSwish(a)"])
def test_nan_goes_the_same_way_with_passes(churon, tmp_path, after):
    x = uniform(1, 5, 7, 7)
    x[0, :, 3, 3], x[0, 0, 0, 0] = np.nan, np.inf
    model, feeds = small(f"net (float[1, 5, 7, 7] x) => (float[1, 17, a, b] y) {{ a = Conv(x, w) y = {after} }}", {"x": x},
                         w=uniform(17, 5, 1, 1), low=0, high=6)
    onnx.save(model, tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", feeds["x"])
    for isa in instruction_sets(churon):
        _, plain = run(churon, tmp_path, model, feeds, isa, 1, "all")
        where, passed = run(churon, tmp_path, model, feeds, isa, 1)
        np.testing.assert_allclose(passed["y"], plain["y"], rtol=1e-5, atol=1e-5, equal_nan=True, err_msg=where)


def test_many(churon, tmp_path):
    asked = os.environ.get("CHURON_RANDOM_GRAPHS")
    if not asked:
        pytest.skip("skip: by hand, with CHURON_RANDOM_GRAPHS=FROM:TO")
    first, last = (int(s) for s in asked.split(":"))
    wrong = []
    for seed in range(first, last):
        try:
            check(churon, tmp_path / "graph", seed, thorough=seed % 10 == 0)
            check_model(churon, tmp_path / "more", *random_graph_more.make(seed), thorough=seed % 10 == 0, ref=seed % 8 == 0)
        except Exception as e:  # noqa: BLE001: all of them, then the list
            wrong.append(f"{seed}: {type(e).__name__}: {str(e).splitlines()[0][:300] if str(e) else ''}")
    assert not wrong, "\n".join(wrong)


def test_a_pass_must_have_a_name_that_is_known(churon, tmp_path):
    model, _, _ = random_graph.make(0)
    onnx.save(model, tmp_path / "model.onnx")
    p = subprocess.run([churon, "run", str(tmp_path / "model.onnx"), "--no-pass", "nonsense"], capture_output=True, text=True)
    assert p.returncode == 2 and "--no-pass: expected a pass or 'all', got 'nonsense'" in p.stderr and "--passes" in p.stderr
