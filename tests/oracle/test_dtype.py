"""Block formats: dtype_to_f32 against the dequantization of the gguf Python package, bit for bit."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

TOOLS = pathlib.Path(os.environ.get("CHURON", "build/release/churon")).resolve().parent / "tools"

TYPES = ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl"]

# Where the f16 scales lie in a block: random bytes there are a NaN or an infinity once in 32 times.
SCALES = {
    "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0], "q2_k": [80, 82], "q3_k": [108],
    "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208], "iq4_nl": [0],
}


def churon_dequant(name: str, blocks: bytes) -> np.ndarray:
    run = subprocess.run([TOOLS / "dequant", name], input=blocks, capture_output=True, check=True)
    return np.frombuffer(run.stdout, np.float32)


def random_blocks(name: str, n: int, finite: bool) -> np.ndarray:
    qtype = GGMLQuantizationType[name.upper()]
    rng = np.random.default_rng(sum(name.encode()))
    blocks = rng.integers(0, 256, (n, GGML_QUANT_SIZES[qtype][1]), np.uint8)
    if finite:
        for at in SCALES.get(name, []):
            scale = rng.standard_normal(n).astype(np.float16)
            scale[::7] = np.float16(6e-8) * rng.integers(0, 1024, len(scale[::7]))  # subnormal
            blocks[:, at : at + 2] = scale.reshape(-1, 1).view(np.uint8)
    return blocks


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("name", TYPES)
def test_bit_exact(name: str, finite: bool):
    blocks = random_blocks(name, 4096, finite)
    got = churon_dequant(name, blocks.tobytes())
    with np.errstate(all="ignore"):
        want = dequantize(blocks, GGMLQuantizationType[name.upper()]).astype(np.float32).ravel()
    assert got.shape == want.shape
    # The payload of a NaN is nobody's business; everything else must agree in every bit, -0 included.
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), f"{(~same).sum()} values differ, the first at {np.argmin(same)}"


def test_every_f16():
    every = np.arange(65536, dtype=np.uint16)
    got = churon_dequant("f16", every.tobytes())
    want = every.view(np.float16).astype(np.float32)
    number = ~np.isnan(want)
    assert (np.isnan(got) == ~number).all()
    assert (got[number].view(np.uint32) == want[number].view(np.uint32)).all()
