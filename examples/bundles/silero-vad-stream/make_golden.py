"""Makes golden.jsonl with the package silero-vad's own code: first chunks of sequences. The test goes on from there.

    pip install --no-deps silero-vad==6.2.3
    pip install numpy onnxruntime packaging
    python make_golden.py
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "silero-vad")]

import golden  # noqa: E402
import vad  # noqa: E402


def chunks(seed=5, seconds=1.6):
    signal = np.round(vad.speechlike(seconds, [(0.3, 1.2)], seed), 4)
    return signal[: len(signal) // 512 * 512].reshape(-1, 512)


def answers(model, sequence):
    """Of one chunk after the other."""
    model.reset_states()
    out = []
    for chunk in sequence:
        p = float(np.asarray(model(vad.tensor(chunk), 16000)).reshape(()))
        out.append({"probability": p, "speaks": p >= 0.5})
    return out


def plain(chunk):
    return [round(float(v), 4) for v in chunk]


def main():
    _, model = vad.load()
    cases = []
    for i in (0, 12, 20, 30):
        chunk = chunks()[i]
        [out] = answers(model, [chunk])
        cases.append({"name": f"chunk {i}", "in": {"chunk": plain(chunk)}, "out": out,
                      "trace": {"concat joined": np.concatenate([np.zeros(64, np.float32), chunk]), "pick last": chunk[-64:]}})
    golden.write(HERE, cases)


if __name__ == "__main__":
    main()
