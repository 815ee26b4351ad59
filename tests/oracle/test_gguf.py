"""The GGUF reader against the gguf Python package: files that either of them or the fixtures wrote."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fixtures"))

import ggml_blocks  # noqa: E402
import make_gguf  # noqa: E402

NAMES = {
    "UINT8": "u8", "INT8": "i8", "UINT16": "u16", "INT16": "i16", "UINT32": "u32", "INT32": "i32", "FLOAT32": "f32",
    "BOOL": "bool", "STRING": "string", "ARRAY": "array", "UINT64": "u64", "INT64": "i64", "FLOAT64": "f64",
}


def dump(churon, path):
    done = subprocess.run([pathlib.Path(churon).parent / "tools" / "gguf_dump", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fnv(data):
    total = 14695981039346656037
    for byte in data:
        total = ((total ^ byte) * 1099511628211) & (2**64 - 1)
    return f"{total:016x}"


def text(h):
    return bytes.fromhex(h).decode()


def check_values(got, fields):
    want = {k: f for k, f in fields.items() if not k.startswith("GGUF.")}
    assert [text(v["key"]) for v in got["values"]] == list(want)
    for v in got["values"]:
        field = want[text(v["key"])]
        assert [v["type"], v["item"]] == [NAMES[field.types[0].name], NAMES[field.types[-1].name]]
        items = [text(i) for i in v["items"]] if v["item"] == "string" else v["items"]
        contents = field.contents()
        assert items == (contents if v["type"] == "array" else [contents]), text(v["key"])


def check_tensors(got, tensors, sums=True):
    assert [text(t["name"]) for t in got["tensors"]] == [t.name for t in tensors]
    for mine, theirs in zip(got["tensors"], tensors):
        assert mine["type"] == theirs.tensor_type.name
        assert mine["dims"] == [int(d) for d in theirs.shape]
        assert mine["bytes"] == theirs.n_bytes
        if sums:
            assert mine["fnv"] == fnv(theirs.data.tobytes()), theirs.name


def test_written_by_the_package(churon, tmp_path):
    path = tmp_path / "w.gguf"
    w = GGUFWriter(path, "llama")
    w.add_custom_alignment(64)
    scalars = {
        "UINT8": 255, "INT8": -128, "UINT16": 65535, "INT16": -32768, "UINT32": 2**32 - 1, "INT32": -(2**31),
        "FLOAT32": 0.1, "BOOL": True, "STRING": "한글 text", "UINT64": 2**62, "INT64": -(2**63), "FLOAT64": 1e300,
    }
    for kind, value in scalars.items():
        w.add_key_value(f"one.{kind}", value, GGUFValueType[kind])
        if kind != "BOOL":
            w.add_key_value(f"many.{kind}", [value, value], GGUFValueType.ARRAY, sub_type=GGUFValueType[kind])
    w.add_array("bools", [True, False, True])
    w.add_array("tokens", [f"token {i}" for i in range(1000)])
    rng = np.random.default_rng(0)
    for dims in ((7,), (3, 5), (2, 3, 5), (2, 1, 3, 4)):
        w.add_tensor(f"t{len(dims)}", rng.standard_normal(dims).astype(np.float32))
    w.add_tensor("h", rng.standard_normal((4, 6)).astype(np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    got, reader = dump(churon, path), GGUFReader(path)
    check_values(got, reader.fields)
    check_tensors(got, reader.tensors)


@pytest.mark.parametrize("arguments", ["--type mix", "--type q6_k --version 2 --alignment 128", "--tokenizer llama"])
def test_fixtures_are_what_the_package_reads(churon, tmp_path, arguments):
    path = make_gguf.main([str(tmp_path / "m.gguf"), *arguments.split(), "--layers", "3"])[0]
    got, reader = dump(churon, path), GGUFReader(path)
    check_values(got, reader.fields)
    check_tensors(got, reader.tensors, sums=False)
    if arguments == "--type mix":
        assert {t["type"].lower() for t in got["tensors"]} == set(ggml_blocks.TYPES)


def test_split_is_the_whole(churon, tmp_path):
    whole = dump(churon, make_gguf.main([str(tmp_path / "m.gguf")])[0])
    parts = make_gguf.main([str(tmp_path / "m.gguf"), "--parts", "3"])
    for part in parts:
        got = dump(churon, part)
        assert sorted(got["tensors"], key=str) == sorted(whole["tensors"], key=str)
        assert got["values"][: len(whole["values"])] == whole["values"]


def test_the_real_model(churon, smollm2):
    got, reader = dump(churon, smollm2), GGUFReader(smollm2)
    check_values(got, reader.fields)
    check_tensors(got, reader.tensors, sums=False)
