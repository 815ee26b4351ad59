"""Makes golden.jsonl and inputs/ with the package basic-pitch itself, whose windowing and stitching run around ONNX Runtime.

    pip install --no-deps basic-pitch==0.4.0
    pip install numpy librosa onnxruntime
    python make_golden.py
"""

import pathlib
import sys
import unittest.mock
import wave

import numpy as np

for unused in ("mir_eval", "pretty_midi", "resampy"):  # they only write MIDI and sound
    sys.modules.setdefault(unused, unittest.mock.MagicMock())

import librosa  # noqa: E402
from basic_pitch import inference  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import golden  # noqa: E402

RATE = 22050


def tune(notes, seconds, rate=RATE):
    """Plucked notes: (start, MIDI number)."""
    t = np.arange(int(seconds * rate)) / rate
    out = np.zeros_like(t)
    for start, number in notes:
        f, since = 440 * 2 ** ((number - 69) / 12), t - start
        for k in range(1, 6):
            out += np.where(since >= 0, np.exp(-3 * k ** 0.5 * np.clip(since, 0, None)), 0) * np.sin(2 * np.pi * f * k * since) / k ** 1.5
    return out / np.abs(out).max() * 0.8


def save(path, signal, rate=RATE, width=1):
    """WAV of 8 bits (so that it stays small) or 16."""
    data = (np.round(signal * 127) + 128).astype(np.uint8) if width == 1 else np.round(signal * 32767).astype("<i2")
    with wave.open(str(path), "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(width)
        w.setframerate(rate)
        w.writeframes(data.tobytes())


def model():
    return inference.Model(pathlib.Path(inference.__file__).parent / "saved_models" / "icassp_2022" / "nmp.onnx")


def answer(m, path):
    out = inference.run_inference(path, m)
    return {"notes": out["note"], "onsets": out["onset"]}


def rounded(out):
    return {k: [[round(float(v), 4) for v in row] for row in rows] for k, rows in out.items()}


def trace(m, path):
    overlap = 30 * inference.FFT_HOP
    windows = [w[0, :, 0] for w, _, _ in inference.get_audio_input(path, overlap, inference.AUDIO_N_SAMPLES - overlap)]
    signal, _ = librosa.load(str(path), sr=RATE, mono=True)
    return {"samples signal": signal, "windows windows": np.stack(windows),
            "stitch notes": inference.run_inference(path, m)["note"]}


def main():
    m = model()
    (HERE / "inputs").mkdir(exist_ok=True)
    signals = {"chord.wav": tune([(0.02, 60), (0.02, 64), (0.02, 67)], 0.4), "short.wav": tune([(0, 69)], 0.02),
               "two_windows.wav": tune([(0.05, 57), (0.4, 61), (0.8, 64), (1.1, 69), (1.4, 72)], 1.7), "silence.wav": np.zeros(2000)}
    cases = []
    for name, signal in signals.items():
        path = HERE / "inputs" / name
        save(path, signal)
        cases.append({"name": name, "in": {"audio": {"file": f"inputs/{name}"}}, "out": rounded(answer(m, path))})
        if name == "two_windows.wav":
            cases[-1]["trace"] = trace(m, path)
    golden.write(HERE, cases)


if __name__ == "__main__":
    main()
