"""The package silero-vad's own code, without torch: it needs a handful of functions, which numpy has."""

import importlib.util
import pathlib
import sys
import types
import unittest.mock

import numpy as np


class Tensor(np.ndarray):
    """As much of torch.Tensor as the package uses on its ONNX path."""

    def dim(self):
        return self.ndim

    def unsqueeze(self, axis):
        return np.expand_dims(self, axis)

    def float(self):
        return self.astype(np.float32)

    def numpy(self):
        return np.asarray(self)


def tensor(x):
    return np.asarray(x, np.float32).view(Tensor)


def stand_in():
    torch = types.ModuleType("torch")
    torch.Tensor = Tensor
    torch.device = str
    torch.no_grad = lambda: lambda f: f
    torch.is_tensor = lambda x: isinstance(x, Tensor)
    torch.from_numpy = tensor
    torch.zeros = lambda *shape: tensor(np.zeros(shape[0] if isinstance(shape[0], tuple) else shape))
    torch.cat = lambda parts, dim: tensor(np.concatenate(parts, axis=dim))
    pad = lambda x, sides, mode="constant", value=0.0: tensor(np.pad(x, [(0, 0)] * (x.ndim - 1) + [sides], constant_values=value))  # noqa: E731
    torch.nn = types.SimpleNamespace(functional=types.SimpleNamespace(pad=pad))
    return torch


def package():
    """Module silero_vad.utils_vad, and the folder of its models."""
    root = pathlib.Path(importlib.util.find_spec("silero_vad").submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("utils_vad", root / "utils_vad.py")
    module = importlib.util.module_from_spec(spec)
    with unittest.mock.patch.dict(sys.modules, {"torch": stand_in()}):
        spec.loader.exec_module(module)
    return module, root / "data"


def load():
    module, data = package()
    return module, module.OnnxWrapper(str(data / "silero_vad.onnx"), force_onnx_cpu=True)


def speechlike(seconds, spans, seed=1, rate=16000):
    """Noise, and in the spans a voice: harmonics of a wandering pitch through three formants, four syllables a second."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    pitch = 120 + 25 * np.sin(2 * np.pi * 0.7 * t) + 10 * np.sin(2 * np.pi * 2.3 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voice = np.zeros_like(t)
    for k in range(1, 30):
        f = pitch * k
        gain = sum(a * np.exp(-((f - c - 150 * np.sin(2 * np.pi * (1.1 + i) * t)) / w) ** 2)
                   for i, (c, w, a) in enumerate([(600, 150, 1), (1400, 200, 0.6), (2600, 300, 0.3)]))
        voice += gain * np.sin(k * phase)
    voice *= 0.55 + 0.45 * np.sin(2 * np.pi * 4 * t)
    inside = np.zeros_like(t)
    for a, b in spans:
        inside[(t >= a) & (t < b)] = 1
    out = 0.3 * voice * inside + rng.normal(0, 0.002, t.shape)
    return np.clip(out, -1, 1).astype(np.float32)
