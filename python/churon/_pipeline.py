"""Pipelines (bundles): records in, answers out."""

from __future__ import annotations

import ctypes as c
import json
import math
import os
import threading
from dataclasses import dataclass
from typing import Any, Iterable, List, Mapping, Optional, Union

import numpy as np

from . import _library as L
from ._errors import ChuronError, InvalidError, error_of
from ._graph import _fill

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """A field of the records or of the answers; type in the manifest's words, "float32 [3, 224, 224]"."""

    name: str
    type: str
    kind: int
    dtype: Optional[np.dtype]
    required: bool


class Answer(dict):
    """The answer to one record of a batch: a dict of its outputs; empty, with `error` set, if it was refused."""

    error: Optional[ChuronError] = None


class _Pool:
    """Sessions of the library that rest, as bare handles: whoever ends first, pool or lease, each is closed once."""

    def __init__(self, pipeline: c.c_void_p):
        self.pipeline, self.idle, self.open = pipeline, [], True

    def take(self) -> c.c_void_p:
        try:
            return self.idle.pop()
        except IndexError:
            return L.opened(L.lib.churon_pipeline_session_open, self.pipeline, False)

    def give_back(self, handle: c.c_void_p) -> None:
        if self.open:
            self.idle.append(handle)
        else:
            L.lib.churon_pipeline_session_close(handle)

    def __del__(self):
        self.open = False
        while self.idle:
            L.lib.churon_pipeline_session_close(self.idle.pop())
        if self.pipeline:
            L.lib.churon_pipeline_close(self.pipeline)
            self.pipeline = None


class _Lease:
    """A session that is in use. Arrays which it lent refer to it; when the last is gone it goes back to its pool."""

    def __init__(self, pool: _Pool):
        self.handle = None
        self.pool = pool
        self.handle = pool.take()

    def __del__(self):
        if self.handle:
            self.pool.give_back(self.handle)
            self.handle = None


def _run_text(handle: c.c_void_p, text: bytes, timeout: float) -> bytes:
    answer, size, err = c.c_void_p(), c.c_size_t(), L.Error()
    L.check(L.lib.churon_pipeline_run_json(handle, text, len(text), timeout, c.byref(answer), c.byref(size), c.byref(err)), err)
    return c.string_at(answer, size.value)


def _default(value: Any) -> Any:
    """What JSON has no form for: numpy's numbers and arrays, bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        import base64
        return {"b64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, np.ndarray):
        return _finite(value.tolist())
    if isinstance(value, np.floating):
        return _finite(value.item())
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise InvalidError(f"record: expected values that JSON can say, got {type(value).__name__}")


def _finite(value: Any) -> Any:
    """NaN and infinities as the texts that Churon takes for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def _dumps(value: Any) -> bytes:
    try:
        return json.dumps(value, default=_default, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return json.dumps(_finite(value), default=_default, allow_nan=False, ensure_ascii=False).encode()


class Pipeline:
    """A bundle: a folder with bundle.yaml, a .churon file, a model file, or a name of the store.

    threads: of each run; 0: physical cores. Methods may be called by many threads at once.
    """

    def __init__(self, path_or_name: Union[str, os.PathLike], threads: int = 0):
        self._handle = L.opened(L.lib.churon_pipeline_open, os.fsencode(path_or_name), threads)
        self._pool = _Pool(self._handle)
        info, err = L.PipelineInfo(c.sizeof(L.PipelineInfo)), L.Error()
        L.check(L.lib.churon_pipeline_describe(self._handle, c.byref(info), c.byref(err)), err)
        self.name, self.version, self.task, self.digest = (
            x.decode() for x in (info.name, info.version, info.task, info.digest))
        self.inputs = tuple(self._field(False, i) for i in range(info.inputs))
        self.outputs = tuple(self._field(True, i) for i in range(info.outputs))

    def _field(self, output: bool, i: int) -> Field:
        f, err = L.FieldStruct(c.sizeof(L.FieldStruct)), L.Error()
        L.check(L.lib.churon_pipeline_field(self._handle, output, i, c.byref(f), c.byref(err)), err)
        dtype = np.dtype(object) if f.dtype == L.STRING else np.dtype(L.NUMPY[f.dtype]) if f.dtype in L.NUMPY else None
        return Field(f.name.decode(), f.type.decode(), f.kind, dtype, f.required)

    def __repr__(self) -> str:
        return f"<churon.Pipeline {self.name} {self.version}>"

    def run_json(self, text: Union[str, bytes], timeout: float = 0) -> bytes:
        """A record (or a list of records) as JSON to its answer's JSON: the bytes that HTTP gives."""
        lease = _Lease(self._pool)  # in use until the text was copied
        return _run_text(lease.handle, text.encode() if isinstance(text, str) else bytes(text), timeout)

    def run(self, record: Record, timeout: float = 0) -> dict:
        """The answer to a record. A record that is refused: InvalidError with all its faults."""
        return json.loads(self.run_json(_dumps(record), timeout))

    def run_batch(self, records: Iterable[Record], timeout: float = 0) -> List[Answer]:
        """An Answer for each record, in their order; of a record that was refused, `error` is set."""
        out = []
        for value in json.loads(self.run_json(_dumps(list(records)), timeout)):
            message = value.get("error") if set(value) == {"error"} and not self._answers_error() else None
            answer = Answer({} if message is not None else value)
            answer.error = InvalidError(message) if message is not None else None
            out.append(answer)
        return out

    def _answers_error(self) -> bool:
        return len(self.outputs) == 1 and self.outputs[0].name == "error"

    def sequence(self) -> "Sequence":
        """A sequence of records that share the state which the bundle's manifest names."""
        return Sequence(self)

    def run_arrays(self, arrays: Mapping[str, np.ndarray], timeout: float = 0) -> dict:
        """{field: array [n, …]} to {output: array [n, …]}: n records, their values along the first dimension.

        Tensors are not copied on the way in if the array is in row-major order, nor on the way out where the
        answers of all records have one shape: such an array is read-only, and keeps the memory that it shows (a
        session of the library) for as long as it lives. Outputs that are no arrays of numbers or texts are lists
        of what run() gives. A record that is refused: an error that names all of them.
        """
        n, values, keep = self._values(arrays)
        lease = _Lease(self._pool)
        answers, err = np.zeros(n, L.ANSWER), L.Error()
        L.check(L.lib.churon_pipeline_run(lease.handle, values.ctypes.data, n, timeout, answers.ctypes.data, c.byref(err)), err)
        bad = np.flatnonzero(answers["status"])
        if len(bad):
            faults = (f"records[{i}]: {c.string_at(int(answers['message'][i])).decode()}" for i in bad[:100])
            more = f"; and {len(bad) - 100} records more" if len(bad) > 100 else ""
            raise error_of(int(answers["status"][bad[0]]), "; ".join(faults) + more)
        width = len(self.outputs)
        if n == 0:
            return {f.name: np.zeros(0, f.dtype or object) for f in self.outputs}
        view = L.memory(int(answers["outputs"][0]), n * width * L.VALUE.itemsize, lease).view(L.VALUE).reshape(n, width)
        return {f.name: _column(f, view[:, k], lease) for k, f in enumerate(self.outputs)}

    def _values(self, arrays: Mapping[str, np.ndarray]):
        names = {f.name for f in self.inputs}
        for name in arrays:
            if name not in names:
                raise InvalidError(f"field {name}: expected a field of the schema, got this one")
        given = {name: _array(a) for name, a in arrays.items()}
        lengths = {len(a) if a.ndim else -1 for a in given.values()}
        if len(lengths) > 1 or -1 in lengths:
            raise InvalidError(f"arrays: expected one first dimension, the number of records, got "
                               f"{', '.join(f'{k} {list(a.shape)}' for k, a in given.items())}")
        n = lengths.pop() if lengths else 1
        values, keep = np.zeros((n, len(self.inputs)), L.VALUE), []
        for k, f in enumerate(self.inputs):
            if f.name in given:
                _fill_column(f, given[f.name], values[:, k], keep)
        return n, values, keep


class Sequence:
    """Records one after the other, with the state that goes from one to the next. One thread at a time."""

    def __init__(self, pipeline: Pipeline):
        self._handle, self._lock = None, threading.Lock()
        self._handle = L.opened(L.lib.churon_pipeline_session_open, pipeline._handle, True)

    def run(self, record: Record, timeout: float = 0) -> dict:
        with self._lock:
            return json.loads(_run_text(self._handle, _dumps(record), timeout))

    def __del__(self):
        if self._handle:
            L.lib.churon_pipeline_session_close(self._handle)
            self._handle = None


def _array(a: Any) -> np.ndarray:
    """As an array; texts and bytes in lists stay what they are (numpy would cut zero bytes at their ends)."""
    if isinstance(a, (list, tuple)) and any(isinstance(x, (str, bytes, bytearray, memoryview)) for x in a):
        made = np.empty(len(a), object)
        made[:] = a
        return made
    return np.asarray(a)


# ---- columns of values ---------------------------------------------------------------------------------------------------------

def _fill_column(f: Field, array: np.ndarray, values: np.ndarray, keep: list) -> None:
    values["kind"] = f.kind
    flat = array.reshape(len(array)) if f.kind not in (L.TENSOR_KIND, L.IMAGE) and array.size == len(array) else array
    if f.kind in (L.TENSOR_KIND, L.IMAGE) and array.dtype.kind not in "OSU" or f.kind == L.TENSOR_KIND and f.dtype == object:
        whole = np.zeros(1, L.TENSOR)
        _fill(whole, array, keep, f"field {f.name}")
        tensors = np.repeat(whole, len(array))
        tensors["rank"] = array.ndim - 1
        tensors["dims"][:, :-1] = tensors["dims"][:, 1:]
        tensors["bytes"] = int(whole["bytes"][0]) // max(len(array), 1)
        tensors["data"] += np.arange(len(array), dtype=np.uint64) * tensors["bytes"]
        keep.append(tensors)
        values["word"] = tensors.ctypes.data + np.arange(len(array), dtype=np.uint64) * np.uint64(L.TENSOR.itemsize)
    elif flat.ndim != 1:
        raise InvalidError(f"field {f.name}: expected an array [n] of {f.type}, got {list(array.shape)}")
    elif f.kind == L.FLAG and flat.dtype == bool:
        values["word"] = flat
    elif f.kind == L.INT and flat.dtype.kind in "iu":
        if flat.dtype.kind == "u" and f.dtype.kind == "i" and flat.size and flat.max() > np.uint64(2**63 - 1):
            raise InvalidError(f"field {f.name}: expected {f.type}, got {flat.max()}")
        values["word"] = flat.astype(np.int64 if flat.dtype.kind == "i" else np.uint64).view(np.uint64)
    elif f.kind == L.FLOAT and flat.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
            values["word"] = flat.astype(f.dtype).astype(np.float64).view(np.uint64)
    elif f.kind in (L.DATE, L.TIME) and flat.dtype.kind == "M":
        unit = "M8[D]" if f.kind == L.DATE else "M8[us]"
        if np.isnat(flat).any():
            raise InvalidError(f"field {f.name}: expected {f.type}, got NaT")
        if (flat.astype(unit).astype(flat.dtype) != flat).any():
            raise InvalidError(f"field {f.name}: expected {f.type}, got a time that it cannot hold exactly")
        if flat.size and not (np.datetime64("0001-01-01") <= flat.min() and flat.max() < np.datetime64("10000-01-01")):
            raise InvalidError(f"field {f.name}: expected {f.type} in the years 1 to 9999, got {flat.min()} to {flat.max()}")
        values["word"] = flat.astype("M8[D]" if f.kind == L.DATE else "M8[us]").astype(np.int64).view(np.uint64)
    elif f.kind in (L.TEXT_KIND, L.BYTES, L.IMAGE, L.AUDIO) and flat.dtype.kind in "OUS":
        elements, bytes_ = L.text_elements(flat)
        keep += [elements, bytes_]
        values["kind"] = L.TEXT_KIND if f.kind == L.TEXT_KIND else L.BYTES
        values["n"], values["word"] = elements["len"], elements["data"]
    else:
        raise InvalidError(f"field {f.name}: expected an array of {f.type}, got one of {array.dtype}")


def _plain(value) -> Any:
    """One value as run() gives it, apart from texts that JSON needs for dates."""
    kind, word = int(value["kind"]), int(value["word"])
    if kind == L.MISSING:
        return None
    if kind == L.FLAG:
        return bool(word & 1)
    if kind == L.INT:
        return int(np.uint64(word).view(np.int64))
    if kind == L.FLOAT:
        return float(np.uint64(word).view(np.float64))
    if kind in (L.TEXT_KIND, L.BYTES):
        raw = c.string_at(word, int(value["n"])) if value["n"] else b""
        return raw.decode() if kind == L.TEXT_KIND else raw
    if kind == L.DATE:
        return np.int64(np.uint64(word).view(np.int64)).astype("M8[D]")
    if kind == L.TIME:
        return np.int64(np.uint64(word).view(np.int64)).astype("M8[us]")
    if kind in (L.LIST, L.RECORD):
        n = int(value["n"])
        return [_plain(v) for v in L.memory(word, n * L.VALUE.itemsize, None).view(L.VALUE)] if n else []
    from ._graph import array_of
    return array_of(L.memory(word, L.TENSOR.itemsize, None).view(L.TENSOR)[0], None, False)


def _column(f: Field, column: np.ndarray, lease: _Lease):
    kinds = column["kind"]
    if not (kinds == f.kind).all():
        return [_plain(v) for v in column]
    if f.kind == L.FLOAT:
        return column["word"].copy().view(np.float64).astype(f.dtype)
    if f.kind == L.INT:
        return column["word"].copy().view(np.int64 if f.dtype.kind == "i" else np.uint64).astype(f.dtype)
    if f.kind == L.FLAG:
        return (column["word"] & np.uint64(1)).astype(bool)
    if f.kind in (L.DATE, L.TIME):
        return column["word"].copy().view(np.int64).astype("M8[D]" if f.kind == L.DATE else "M8[us]")
    if f.kind == L.TEXT_KIND:
        out = np.empty(len(column), object)
        out[:] = [_plain(v) for v in column]
        return out
    if f.kind in (L.TENSOR_KIND, L.IMAGE):
        return _tensors(column, lease)
    return [_plain(v) for v in column]


def _tensors(column: np.ndarray, lease: _Lease):
    """Tensors of one shape as one array: the library's memory, if they lie at equal distances in it."""
    n, size = len(column), L.TENSOR.itemsize
    words = column["word"].astype(np.int64)
    steps = np.diff(words)
    if n > 1 and (steps == steps[0]).all() and steps[0] > 0:
        raw = L.memory(int(words[0]), int(words[-1] - words[0]) + size, lease)
        records = np.lib.stride_tricks.as_strided(raw, (n, size), (int(steps[0]), 1)).copy()
    else:
        records = np.stack([L.memory(int(w), size, lease) for w in words]).copy()
    tensors = records.reshape(-1).view(L.TENSOR)
    first = tensors[0]
    number, rank = int(first["dtype"]), int(first["rank"])
    same = (tensors["rank"] == rank).all() and (tensors["dims"][:, :rank] == first["dims"][:rank]).all()
    if not same or number not in L.NUMPY:
        return [_plain(v) for v in column]
    shape = tuple(int(d) for d in first["dims"][:rank])
    data, each = tensors["data"].astype(np.int64), int(first["bytes"])
    gaps = np.diff(data)
    dtype = np.dtype(L.NUMPY[number])
    if each == 0:
        return np.zeros((n, *shape), dtype)
    if n == 1 or (gaps == gaps[0]).all() and gaps[0] >= each:
        gap = each if n == 1 else int(gaps[0])
        raw = L.memory(int(data[0]), gap * (n - 1) + each, lease)
        inner = raw[:each].view(dtype).reshape(shape).strides
        lent = np.lib.stride_tricks.as_strided(raw.view(dtype) if raw.nbytes % dtype.itemsize == 0 else raw, (n, *shape), (gap, *inner),
                                               writeable=False)
        return lent
    out = np.empty((n, *shape), dtype)
    for i in range(n):
        out[i] = L.memory(int(data[i]), each, lease).view(dtype).reshape(shape)
    return out
