"""Makes golden.jsonl and inputs/ with the package silero-vad's own code around ONNX Runtime.

    pip install --no-deps silero-vad==6.2.3
    pip install numpy onnxruntime packaging soundfile
    python make_golden.py
"""

import pathlib
import sys
import wave

import numpy as np
import soundfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import golden  # noqa: E402
import vad  # noqa: E402

SIGNALS = {"words.wav": vad.speechlike(2.9, [(0.4, 1.1), (1.7, 2.5)]), "all.wav": vad.speechlike(1.5, [(0, 1.5)], 2),
           "silence.wav": vad.speechlike(1.0, [], 3), "short.wav": vad.speechlike(0.02, [(0, 1)], 4)}


def save(path, signal):
    """WAV of 8 bits, so that it stays small."""
    with wave.open(str(path), "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(1)
        w.setframerate(16000)
        w.writeframes((np.round(signal * 127) + 128).astype(np.uint8).tobytes())


def answer(module, model, signal):
    probabilities = []

    class Listening:
        def __getattr__(self, name):
            return getattr(model, name)

        def __call__(self, x, rate):
            out = model(x, rate)
            probabilities.append(float(np.asarray(out).reshape(())))
            return out

    speech = module.get_speech_timestamps(vad.tensor(signal), Listening(), threshold=0.5, sampling_rate=16000)
    return {"speech": speech, "probabilities": probabilities}


def trace(signal):
    padded = np.pad(signal, (64, -len(signal) % 512))
    return {"samples signal": signal, "windows windows": np.stack([padded[i : i + 576] for i in range(0, len(padded) - 64, 512)])}


def main():
    module, model = vad.load()
    (HERE / "inputs").mkdir(exist_ok=True)
    cases = []
    for name, signal in SIGNALS.items():
        path = HERE / "inputs" / name
        save(path, signal)
        read, _ = soundfile.read(path, dtype="float32")
        cases.append({"name": name, "in": {"audio": {"file": f"inputs/{name}"}}, "out": answer(module, model, read)})
        if name == "words.wav":
            cases[-1]["trace"] = trace(read) | {"timestamps speech": cases[-1]["out"]["speech"]}
    golden.write(HERE, cases)


if __name__ == "__main__":
    main()
