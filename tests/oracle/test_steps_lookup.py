"""lookup, byte_window, decode_text and length against Python's own dict, bytes and len."""

import base64

import numpy as np
import pytest

import step_case


def content(data):
    return {"x": {"b64": base64.b64encode(data).decode()}}


BYTES = {"x": {"type": "bytes"}}
RNG = np.random.default_rng(5)
BLOBS = [b"", b" ", b"a", b" \t\n\v\f\ra b \r\n", b"\0\xff", b"abcdefgh", b"  " * 50, b"x" * 99, b" " * 30 + b"y" * 30 + b" " * 30,
         *(RNG.choice([32, 10, 65, 200], size=n).astype(np.uint8).tobytes() for n in range(1, 60, 3))]


def window(data, begin, end, block, strip, pad):
    block = min(block or len(data), len(data))
    head, tail = data[:block], data[len(data) - block:]
    if strip:
        head, tail = head.lstrip(), tail.rstrip()
    head, tail = list(head[:begin]), list(tail[max(len(tail) - end, 0):])
    return head + [pad] * (begin - len(head)) + [pad] * (end - len(tail)) + tail


@pytest.mark.parametrize("begin,end,block,strip,pad", [(8, 8, 16, True, 256), (8, 0, None, False, 0), (0, 5, None, True, -1), (20, 30, 25, True, 7),
                                                       (3, 4, 100, False, 256)])
def test_byte_window(tmp_path, begin, end, block, strip, pad):
    keys = {"field": "x", "into": "y", "begin": begin, "end": end, "strip": strip, "pad": pad} | ({"block": block} if block else {})
    got = step_case.answers(tmp_path, BYTES, [{"byte_window": keys}], [content(b) for b in BLOBS])
    assert [g["y"] for g in got] == [window(b, begin, end, block, strip, pad) for b in BLOBS]


def test_byte_window_of_nothing_is_refused(tmp_path):
    assert "begin or end above 0" in step_case.refusal(tmp_path, BYTES, [{"byte_window": {"field": "x", "into": "y"}}], ["y"])


TEXTS = [b"", b"abc", "é안🍕".encode(), b"\xff", "é".encode()[:1], b"a\xed\xa0\x80", b"\xc0\x80", b"abcdef\xff", "abcdeé".encode()]


def decoded(data):
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@pytest.mark.parametrize("first", [None, 6])
def test_decode_text(tmp_path, first):
    keys = {"field": "x", "into": "y"} | ({"first": first} if first else {})
    want = [decoded(b[:first]) for b in TEXTS]
    got = step_case.answers(tmp_path, BYTES, [{"decode_text": {**keys, "invalid": "missing"}}], [content(b) for b in TEXTS])
    assert [g["y"] for g in got] == want and None in want
    got = step_case.answers(tmp_path, BYTES, [{"decode_text": keys}], [content(b) for b in TEXTS])
    assert [g.get("y") for g in got] == want
    assert all("expected UTF-8, got the byte" in g["error"] for g, w in zip(got, want) if w is None)


def test_length(tmp_path):
    inputs = {"b": {"type": "bytes"}, "t": {"type": "string"}, "l": {"type": "list", "of": {"type": "int"}}, "m": {"type": "tensor", "dtype": "int64", "shape": [-1, 2]}}
    record = {"b": {"b64": base64.b64encode("é안".encode()).decode()}, "t": "é안🍕", "l": [1, 2, 3, 4], "m": [[1, 2], [3, 4]]}
    steps = [{"length": {"field": f, "into": f"n{f}"}} for f in inputs]
    assert step_case.one(tmp_path, inputs, steps, record) == {"nb": 5, "nt": 3, "nl": 4, "nm": 2}


def test_lookup(tmp_path):
    inputs = {"x": {"type": "string"}, "k": {"type": "int"}}
    table, codes = {"a": "one", "b c": "", "안": "two"}, {1: 0.1, -7: 2.5, 40: 1e300}
    steps = [{"lookup": {"field": "x", "into": "y", "keys": list(table), "values": list(table.values()), "default": "none"}},
             {"lookup": {"field": "k", "into": "z", "keys": list(map(str, codes)), "values": list(map(str, codes.values())), "dtype": "float64", "default": -1}},
             {"lookup": {"field": "x", "into": "w", "keys": list(table), "values": ["7"], "dtype": "int64", "default": 8}}]
    records = [{"x": x, "k": k} for x in [*table, "A", "", "b"] for k in [*codes, 0, 7]]
    got = step_case.answers(tmp_path, inputs, steps, records)
    assert got == [{"y": table.get(r["x"], "none"), "z": codes.get(r["k"], -1.0), "w": 7 if r["x"] in table else 8} for r in records]


def test_lookup_refusals(tmp_path):
    inputs = {"x": {"type": "string"}}
    def said(**keys):
        return step_case.refusal(tmp_path, inputs, [{"lookup": {"field": "x", "into": "y", **keys}}], ["y"])
    assert "expected one value for each of the 2 keys, got 3" in said(keys=["a", "b"], values=["1", "2", "3"])
    assert "expected an integer, got '1.5'" in said(keys=["a"], values=["1.5"], dtype="int64")
    assert "expected a number, got 'z'" in said(keys=["a"], values=["1"], dtype="float32", default="z")
    assert "twice" in said(keys=["a", "a"], values=["1", "2"])
    got = step_case.answers(tmp_path, inputs, [{"lookup": {"field": "x", "into": "y", "keys": ["a"], "values": ["1"]}}], [{"x": "b"}, {"x": "a"}])
    assert "expected one of the keys, got 'b'" in got[0]["error"] and got[1] == {"y": "1"}
