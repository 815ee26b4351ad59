#!/usr/bin/env python3
"""Writes the seeds of fuzz_gguf: small files that together use every part of the format."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "fixtures"))

import ggml_blocks  # noqa: E402
import numpy as np  # noqa: E402
from gguf_write import ARRAY, BOOL, F32, F64, FORMATS, STRING, U8, U16, U32, Gguf  # noqa: E402


def every_value():
    g = Gguf()
    for kind in FORMATS:
        g.add(f"scalar.{kind}", kind, 1)
        g.add(f"array.{kind}", (ARRAY, kind), [0, 1, 1])
    g.add("string", STRING, "text")
    g.add("strings", (ARRAY, STRING), ["a", "", "longer than eight"])
    g.add("none", (ARRAY, STRING), [])
    return g


def every_type(alignment=32):
    g = Gguf(version=2, alignment=alignment)
    for name, (_, block, _) in ggml_blocks.TYPES.items():
        g.add_tensor(f"blk.0.{name}", np.linspace(-1, 1, 2 * block, dtype=np.float32).reshape(2, block), name)
    return g


def shapes():
    g = Gguf(alignment=8)
    g.add("general.architecture", STRING, "llama")
    g.add("tokenizer.ggml.scores", (ARRAY, F32), [0.5, -1.5])
    for n in range(1, 5):
        g.add_tensor(f"d{n}", np.zeros((1,) * (n - 1) + (3,), np.float32), "f32")
    return g


def part():
    g = Gguf()
    g.add("split.no", U16, 0)
    g.add("split.count", U16, 2)
    g.add("split.tensors.count", U32, 1)
    g.add("flag", BOOL, True)
    g.add("d", F64, 0.25)
    g.add("b", U8, 7)
    g.add_tensor("w", np.ones(1, np.float32), "f32")
    return g


if __name__ == "__main__":
    folder = HERE / "seeds" / "gguf"
    folder.mkdir(parents=True, exist_ok=True)
    for make in (every_value, every_type, shapes, part):
        make().write(folder / f"{make.__name__}.gguf")
    (folder / "empty.gguf").write_bytes(Gguf().pack([], []))
    (folder / "huge_counts.gguf").write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 16 + bytes(19))
