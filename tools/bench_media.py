#!/usr/bin/env python3
"""Preparing inputs against Pillow + NumPy, OpenCV and librosa: one thread, same pixels, best of rounds taken in turns.

    tools/bench_media.py [build/release] [rounds]

An ImageNet classifier's way for a 1 MP JPEG: decode, shorter side to 256, centre 224 x 224, (x / 255 - mean) / std, CHW. And
Whisper's log-mel of 30 s of sound."""

import io
import os
import pathlib
import subprocess
import sys
import tempfile
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import cv2  # noqa: E402
import librosa  # noqa: E402
import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def photograph(width=1200, height=834):
    rng = np.random.default_rng(1)
    small = rng.integers(0, 256, (height // 24, width // 24, 3), np.uint8)
    image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    noisy = np.asarray(image).astype(int) + rng.normal(0, 6, (height, width, 3))
    out = io.BytesIO()
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=85)
    return out.getvalue()


def normal(x):
    x = (x.astype(np.float32) / np.float32(255) - MEAN) / STD
    return np.ascontiguousarray(x.transpose(2, 0, 1))


def fit(height, width):
    return (256, int(256 * width / height)) if height < width else (int(256 * height / width), 256)


def centre(x):
    y, z = round((x.shape[0] - 224) / 2), round((x.shape[1] - 224) / 2)
    return x[y : y + 224, z : z + 224]


def with_pillow(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    height, width = fit(image.height, image.width)
    return normal(centre(np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))))


def with_opencv(data):
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    height, width = fit(*image.shape[:2])
    return normal(cv2.cvtColor(centre(cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)), cv2.COLOR_BGR2RGB))


def log_mel(x, filters):
    spectrum = librosa.stft(x, n_fft=400, hop_length=160, pad_mode="reflect")[:, :-1]
    log = np.log10(np.maximum(filters @ (np.abs(spectrum) ** 2), 1e-10))
    return (np.maximum(log, log.max() - 8) + 4) / 4


def librosa_mel(x):
    return librosa.power_to_db(librosa.feature.melspectrogram(y=x, sr=16000, n_fft=400, hop_length=160, n_mels=80))


def best(call, rounds):
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def ours(tool, *words):
    done = subprocess.run([tool, *map(str, words)], capture_output=True, text=True, check=True)
    return min(map(float, done.stdout.split()))


def main():
    tool = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release") / "tools" / "media_time"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        data, x = photograph(), (np.sin(np.arange(480000) ** 1.1 / 40) / 2).astype(np.float32)
        x += np.random.default_rng(2).normal(0, 0.01, x.shape).astype(np.float32)
        (work / "photo.jpg").write_bytes(data)
        np.save(work / "sound.npy", x)
        for name, peer, rule in (("Pillow + NumPy", with_pillow, "pillow"), ("OpenCV", with_opencv, "opencv")):
            mine, theirs = [], []
            for _ in range(3):
                mine.append(ours(tool, "image", work / "photo.jpg", rule, "bilinear", rounds, work / "out.npy"))
                theirs.append(best(lambda: peer(data), rounds))
            off = np.abs(np.load(work / "out.npy") - peer(data)).max() * 255 * STD.max()
            print(f"1 MP JPEG to 224x224: {min(mine) * 1e3:.2f} ms, {name} {min(theirs) * 1e3:.2f} ms, ratio {min(theirs) / min(mine):.2f}, "
                  f"largest difference {off:.2f} levels")
        decode = ours(tool, "parts", work / "photo.jpg", "pillow", "bilinear", rounds, work / "out.npy")
        print(f"  of it decoding: {decode * 1e3:.2f} ms; cv2.imdecode {best(lambda: cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), rounds) * 1e3:.2f} ms")
        filters = librosa.filters.mel(sr=16000, n_fft=400, n_mels=80)
        log_mel(x, filters), librosa_mel(x)
        mine = ours(tool, "whisper", work / "sound.npy", rounds, work / "out.npy")
        off = np.abs(np.load(work / "out.npy") - log_mel(x, filters)).max()
        for name, call in (("librosa.stft + NumPy", lambda: log_mel(x, filters)), ("librosa.feature.melspectrogram", lambda: librosa_mel(x))):
            theirs = best(call, max(rounds // 3, 3))
            print(f"log-mel of 30 s: {mine * 1e3:.2f} ms, {name} {theirs * 1e3:.2f} ms, ratio {theirs / mine:.1f}, largest difference {off:.1e}")


if __name__ == "__main__":
    main()
