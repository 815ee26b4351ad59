"""libchuron.so and the structures of churon.h, by ctypes. A call releases the interpreter's lock while it runs."""

from __future__ import annotations

import ctypes as c
import os
import pathlib

import numpy as np

from ._errors import error_of

MAX_RANK = 12


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("message", c.c_char * 508)]


class Tensor(c.Structure):
    _fields_ = [("dtype", c.c_int), ("rank", c.c_uint32), ("dims", c.c_int64 * MAX_RANK), ("data", c.c_void_p),
                ("bytes", c.c_size_t), ("lent", c.c_bool)]


class Text(c.Structure):
    _fields_ = [("data", c.c_void_p), ("len", c.c_size_t)]


class PortStruct(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("dtype", c.c_int), ("has_rank", c.c_bool), ("rank", c.c_uint32),
                ("dims", c.c_int64 * MAX_RANK), ("dim_names", c.c_char_p * MAX_RANK)]


class GraphOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("threads", c.c_uint32), ("max_memory", c.c_uint64)]


class RunOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("timeout_s", c.c_double), ("wanted", c.c_void_p)]


class FieldStruct(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("type", c.c_char_p), ("kind", c.c_int), ("dtype", c.c_int),
                ("required", c.c_bool)]


class PipelineInfo(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("version", c.c_char_p), ("task", c.c_char_p),
                ("digest", c.c_char_p), ("inputs", c.c_size_t), ("outputs", c.c_size_t)]


# Arrays of many values are numpy arrays of these, which have the layout of the structures.
VALUE = np.dtype({"names": ["kind", "n", "word", "rate"], "formats": ["<i4", "<u8", "<u8", "<f8"], "offsets": [0, 8, 16, 24],
                  "itemsize": 32})
TENSOR = np.dtype({"names": ["dtype", "rank", "dims", "data", "bytes", "lent"],
                   "formats": ["<i4", "<u4", ("<i8", (MAX_RANK,)), "<u8", "<u8", "?"], "offsets": [0, 4, 8, 104, 112, 120],
                   "itemsize": 128})
ANSWER = np.dtype({"names": ["status", "message", "outputs"], "formats": ["<i4", "<u8", "<u8"], "offsets": [0, 8, 16],
                   "itemsize": 24})
TEXT = np.dtype([("data", "<u8"), ("len", "<u8")])
assert c.sizeof(Tensor) == TENSOR.itemsize

MISSING, FLAG, INT, FLOAT, TEXT_KIND, BYTES, DATE, TIME, IMAGE, AUDIO, TENSOR_KIND, LIST, RECORD = range(13)
STRING = 8  # element type
NUMPY = {1: "f4", 2: "u1", 3: "i1", 4: "u2", 5: "i2", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8", 12: "u4", 13: "u8",
         14: "c8", 15: "c16"}
CHURON = {np.dtype(name): number for number, name in NUMPY.items()}


def library_path() -> str:
    """Where libchuron.so is: CHURON_LIBRARY, else beside this file (in a wheel), else build/release of the sources."""
    if os.environ.get("CHURON_LIBRARY"):
        return os.environ["CHURON_LIBRARY"]
    here = pathlib.Path(__file__).resolve().parent
    for path in (here / "libchuron.so", here.parents[1] / "build" / "release" / "libchuron.so"):
        if path.exists():
            return str(path)
    raise ImportError("libchuron.so: expected it in the package or in build/release, found neither: set CHURON_LIBRARY")


def _load() -> c.CDLL:
    lib = c.CDLL(library_path())
    p, e, size = c.c_void_p, c.POINTER(Error), c.c_size_t
    takes = {
        "churon_graph_open": [c.POINTER(p), c.c_char_p, c.POINTER(GraphOptions), e], "churon_graph_close": [p],
        "churon_graph_inputs": [p], "churon_graph_outputs": [p],
        "churon_graph_input": [p, size, c.POINTER(PortStruct), e], "churon_graph_output": [p, size, c.POINTER(PortStruct), e],
        "churon_session_open": [c.POINTER(p), p, e], "churon_session_close": [p],
        "churon_session_run": [p, p, p, c.POINTER(RunOptions), e],
        "churon_pipeline_open": [c.POINTER(p), c.c_char_p, c.c_uint32, e], "churon_pipeline_close": [p],
        "churon_pipeline_describe": [p, c.POINTER(PipelineInfo), e],
        "churon_pipeline_field": [p, c.c_bool, size, c.POINTER(FieldStruct), e],
        "churon_pipeline_session_open": [c.POINTER(p), p, c.c_bool, e], "churon_pipeline_session_close": [p],
        "churon_pipeline_run": [p, p, size, c.c_double, p, e],
        "churon_pipeline_run_json": [p, c.c_char_p, size, c.c_double, c.POINTER(p), c.POINTER(size), e],
    }
    for name, argtypes in takes.items():
        function = getattr(lib, name, None)
        if function is None:
            raise ImportError(f"{library_path()}: expected {name}, found none: it was built without CHURON_PIPELINE")
        function.argtypes = argtypes
        function.restype = None if name.endswith("_close") else size if name.endswith(("_inputs", "_outputs")) else c.c_int
    lib.churon_version.restype = c.c_char_p
    return lib


lib = _load()


def version() -> str:
    return lib.churon_version().decode()


def check(status: int, err: Error) -> None:
    if status:
        raise error_of(status, err.message.decode("utf-8", "replace"))


def opened(function, *arguments) -> c.c_void_p:
    """A new object of the library: function(&out, arguments…, &err)."""
    out, err = c.c_void_p(), Error()
    check(function(c.byref(out), *arguments, c.byref(err)), err)
    return out


def memory(address: int, size: int, owner: object) -> np.ndarray:
    """The bytes at an address as a read-only array that keeps `owner` alive."""
    if size == 0:
        return np.zeros(0, np.uint8)
    buffer = (c.c_char * size).from_address(address)
    buffer.owner = owner  # ctypes arrays have a dictionary; numpy keeps the buffer
    array = np.frombuffer(buffer, np.uint8)
    array.flags.writeable = False
    return array


def texts(address: int, count: int, shape: tuple, owner: object = None) -> np.ndarray:
    """Elements of a string tensor as an array of str; bytes where they are no UTF-8."""
    views = memory(address, count * TEXT.itemsize, owner).view(TEXT)
    out = np.empty(count, object)
    for i, view in enumerate(views):
        raw = c.string_at(int(view["data"]), int(view["len"])) if view["len"] else b""
        try:
            out[i] = raw.decode()
        except UnicodeDecodeError:
            out[i] = raw
    return out.reshape(shape)


def text_elements(array: np.ndarray) -> tuple:
    """An array of str or bytes as elements of a string tensor; the second part must live as long."""
    flat = [x.encode() if isinstance(x, str) else bytes(x) for x in array.reshape(-1).tolist()]
    keep = c.create_string_buffer(b"".join(flat) + b"\0")
    views = np.zeros(len(flat), TEXT)
    lengths = np.array([len(x) for x in flat], np.uint64)
    views["len"] = lengths
    views["data"] = c.addressof(keep) + np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.uint64) if len(flat) else 0
    return views, keep
