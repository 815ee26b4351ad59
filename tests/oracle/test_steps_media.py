"""The steps of the groups image and audio: each key means what the named library means by it."""

import base64
import io

import bundle_run
import librosa
import numpy as np
import pytest
import soundfile
from PIL import Image

RNG = np.random.default_rng(11)


def picture(h=90, w=130):
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([x * 255 // w, y * 255 // h, (x * y) % 256], -1).astype(np.uint8)
    a[h // 9 : h // 3, w // 6 : w // 2] = RNG.integers(0, 255, (h // 3 - h // 9, w // 2 - w // 6, 3))
    return a


def file_of(a, form="PNG", **more):
    out = io.BytesIO()
    Image.fromarray(a).save(out, form, **more)
    return out.getvalue()


def b64(data):
    return {"b64": base64.b64encode(data).decode()}


@pytest.fixture
def run(tmp_path):
    """The value `y` of one record whose field `x` is a file, as an array."""

    def one(steps, data, field=None):
        bundle_run.write(tmp_path, {"x": field or {"type": "image"}}, steps, ["y"])
        (got,) = bundle_run.run(tmp_path, [{"x": b64(data)}])
        if "ok" not in got:
            raise ValueError(got.get("error") or got.get("open"))
        y = got["ok"]["y"]
        if isinstance(y, dict):
            return np.frombuffer(base64.b64decode(y["b64"]), y["dtype"]).reshape(y["shape"])
        return np.array(y)

    return one


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray", "rgba"])
def test_decode(run, color):
    a = picture()
    want = {"rgb": a, "bgr": a[..., ::-1], "gray": np.asarray(Image.fromarray(a).convert("L"))[..., None],
            "rgba": np.concatenate([a, np.full((*a.shape[:2], 1), 255, np.uint8)], -1)}[color]
    got = run([{"decode_image": {"field": "x", "color": color, "into": "y"}}], file_of(a), {"type": "bytes"})
    assert np.array_equal(got, want)
    got = run([{"rename": {"field": "x", "into": "y"}}], file_of(a), {"type": "image", "color": color})
    assert np.array_equal(got, want)


@pytest.mark.parametrize("keys, size", [
    ({"height": 50, "width": 70}, (50, 70)),
    ({"height": 45, "fit": "shorter"}, (45, 65)),
    ({"height": 65, "fit": "longer"}, (45, 65)),
    ({"height": 60, "width": 60, "fit": "inside"}, (42, 60)),
    ({"height": 180, "fit": "at_least"}, (180, 260)),
    ({"height": 45, "fit": "at_least"}, (90, 130)),
    ({"height": 65, "fit": "at_most"}, (45, 65)),
    ({"height": 48, "fit": "height"}, (48, 70)),
    ({"height": 48, "width": 64, "fit": "height"}, (48, 64)),
    ({"height": 48, "fit": "height_down"}, (48, 69)),
    ({"height": 48, "width": 64, "fit": "height_down"}, (48, 64)),
    ({"height": 90, "width": 130, "multiple": 32}, (96, 128)),
])
def test_resize_sizes(run, keys, size):
    a = picture()
    got = run([{"resize": {"field": "x", **keys, "into": "y"}}], file_of(a))
    assert np.array_equal(got, np.asarray(Image.fromarray(a).resize(size[::-1], Image.BILINEAR)))


def test_crop_and_turn(run):
    a = picture(91, 130)
    assert np.array_equal(run([{"crop": {"field": "x", "height": 50, "width": 60, "into": "y"}}], file_of(a)),
                          a[20:70, 35:95])  # (91 - 50) / 2 = 20.5: to even
    assert np.array_equal(run([{"crop": {"field": "x", "height": 50, "width": 60, "at": "point", "x": 3, "y": 4, "into": "y"}}],
                              file_of(a)), a[4:54, 3:63])
    assert np.array_equal(run([{"turn": {"field": "x", "quarters": 1, "into": "y"}}], file_of(a)), np.rot90(a, -1))
    assert np.array_equal(run([{"turn": {"field": "x", "flip": "horizontal", "quarters": 2, "into": "y"}}], file_of(a)),
                          np.rot90(a[:, ::-1], 2))
    assert run([{"image_size": {"field": "x", "into": "y"}}], file_of(a)).tolist() == [91, 130]
    with pytest.raises(ValueError, match="step crop y"):
        run([{"crop": {"field": "x", "height": 92, "width": 60, "into": "y"}}], file_of(a))


def test_pad(run):
    a = picture()
    want = np.full((96, 160, 3), (1, 2, 3), np.uint8)
    want[:90, :130] = a
    assert np.array_equal(run([{"pad": {"field": "x", "multiple": 32, "value": [1, 2, 3], "into": "y"}}], file_of(a)), want)
    want = np.zeros((101, 130, 3), np.uint8)
    want[5:95] = a
    assert np.array_equal(run([{"pad": {"field": "x", "height": 101, "center": True, "into": "y"}}], file_of(a)), want)


def test_normalize(run):
    a = picture(9, 8)
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    want = (a.astype(np.float32) / np.float32(255) - mean) / std
    keys = {"field": "x", "divide": 255, "mean": mean.tolist(), "std": std.tolist(), "into": "y"}
    keys["mean"], keys["std"] = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    got = run([{"normalize_image": keys}], file_of(a))
    assert np.array_equal(got.astype(np.float32), want.transpose(2, 0, 1))
    got = run([{"normalize_image": {**keys, "layout": "hwc", "reverse": True}}], file_of(a))
    want = (a[..., ::-1].astype(np.float32) / np.float32(255) - mean) / std
    assert np.array_equal(got.astype(np.float32), want)


def test_jpeg_round_trip(run):
    a = picture()
    want = np.asarray(Image.open(io.BytesIO(file_of(a, "JPEG", quality=75))).convert("RGB"))
    assert np.array_equal(run([{"jpeg_round_trip": {"field": "x", "into": "y"}}], file_of(a)), want)


@pytest.mark.parametrize("steps, message", [
    ([{"resize": {"field": "x", "height": 5, "into": "y"}}], "expected the key 'width' with this fit"),
    ([{"resize": {"field": "x", "height": 5, "width": 5, "rule": "opencv", "filter": "hamming", "into": "y"}}], "resize.filter"),
    ([{"normalize_image": {"field": "x", "mean": [1, 2], "into": "y"}}], "normalize_image.mean"),
    ([{"normalize_image": {"field": "x", "std": [0], "into": "y"}}], "other than 0"),
    ([{"crop": {"field": "x", "height": 5, "width": 5, "x": 1, "into": "y"}}], "expected 'point' beside x and y"),
    ([{"audio_features": {"field": "x", "form": "mel", "into": "y"}}], "expected audio or tensor"),
    ([{"decode_image": {"field": "x", "into": "y"}}], "expected bytes"),
])
def test_refused(run, steps, message):
    with pytest.raises(ValueError, match=message):
        run(steps, file_of(picture()))


# ---- audio -----------------------------------------------------------------------------------------------


def sound(rate=44100, seconds=0.5, channels=2):
    t = np.arange(int(rate * seconds)) / rate
    a = np.stack([np.sin(2 * np.pi * 440 * (k + 1) * t) * 0.4 for k in range(channels)], -1) + RNG.normal(0, 0.01, (len(t), channels))
    out = io.BytesIO()
    soundfile.write(out, a, rate, format="WAV", subtype="FLOAT")
    return a.astype(np.float32), out.getvalue()


AUDIO = {"type": "audio"}


def test_audio_in(run):
    a, data = sound()
    assert np.array_equal(run([{"rename": {"field": "x", "into": "y"}}], data, AUDIO).astype(np.float32), a.T)
    assert np.array_equal(run([{"decode_audio": {"field": "x", "into": "y"}}], data, {"type": "bytes"}).astype(np.float32), a.T)
    mono = run([{"mix_down": {"field": "x"}}, {"samples": {"field": "x", "length": 30000, "into": "y"}}], data, AUDIO)
    want = np.zeros(30000, np.float32)
    want[: len(a)] = librosa.to_mono(a.T)
    assert np.allclose(mono, want, atol=1e-7)
    with pytest.raises(ValueError, match="field x: expected audio of 16000 samples a second, got 44100"):
        run([{"rename": {"field": "x", "into": "y"}}], data, {**AUDIO, "rate": 16000})
    with pytest.raises(ValueError, match="at most 0.1 seconds"):
        run([{"rename": {"field": "x", "into": "y"}}], data, {**AUDIO, "max_seconds": 0.1})


def test_resample(run):
    a, data = sound(44100, 1.0, 1)
    got = run([{"mix_down": {"field": "x"}}, {"resample": {"field": "x", "rate": 16000}}, {"samples": {"field": "x", "rate": 16000, "into": "y"}}], data, AUDIO)
    assert got.shape == (16000,)
    t = np.arange(16000) / 16000
    inside = slice(200, -200)
    assert np.max(np.abs(got[inside] - 0.4 * np.sin(2 * np.pi * 440 * t)[inside])) < 0.05  # the rest is noise


def test_features(run):
    a, data = sound(16000, 1.0, 1)
    x = a[:, 0]
    mono = {"mix_down": {"field": "x"}}
    mel = {"field": "x", "form": "mel", "fft": 1024, "hop": 256, "mels": 64, "into": "y"}
    got = run([mono, {"audio_features": mel}], data, AUDIO)
    want = librosa.power_to_db(librosa.feature.melspectrogram(y=x, sr=16000, n_fft=1024, hop_length=256, n_mels=64), ref=1.0)
    assert np.max(np.abs(got - want)) < 1e-3
    got = run([mono, {"audio_features": {"field": "x", "form": "mfcc", "cepstra": 13, "into": "y"}}], data, AUDIO)
    want = librosa.feature.mfcc(y=x, sr=16000, n_mfcc=13)
    assert np.max(np.abs(got - want)) < 1e-2
    got = run([mono, {"samples": {"field": "x", "into": "s"}},
               {"stft": {"field": "s", "fft": 512, "hop": 128, "into": "y"}}], data, AUDIO)
    want = np.abs(librosa.stft(x, n_fft=512, hop_length=128, pad_mode="reflect"))
    assert np.max(np.abs(got - want)) < 1e-3
    whisper = run([mono, {"audio_features": {"field": "x", "form": "whisper", "into": "y"}}], data, AUDIO)
    assert whisper.shape == (80, 100)
    kaldi = run([mono, {"audio_features": {"field": "x", "form": "kaldi", "gain": 32768, "into": "y"}}], data, AUDIO)
    assert kaldi.shape == (98, 80)
