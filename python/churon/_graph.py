"""Graphs (ONNX): tensors in, tensors out."""

from __future__ import annotations

import ctypes as c
import os
from dataclasses import dataclass
from typing import Mapping, Optional, Sequence as SequenceOf, Union

import numpy as np

from . import _library as L
from ._errors import InvalidError


@dataclass(frozen=True)
class Port:
    """An input or an output. dtype: None for what is no tensor that numpy can hold; shape: None: any; -1: open."""

    name: str
    dtype: Optional[np.dtype]
    shape: Optional[tuple]
    dim_names: tuple


def _port(p: L.PortStruct) -> Port:
    dtype = np.dtype(object) if p.dtype == L.STRING else np.dtype(L.NUMPY[p.dtype]) if p.dtype in L.NUMPY else None
    return Port(p.name.decode(), dtype, tuple(p.dims[:p.rank]) if p.has_rank else None,
                tuple(n.decode() if n else None for n in p.dim_names[:p.rank]))


class Graph:
    """An .onnx file, opened and checked. run() may be called by many threads: each call takes a session of its own."""

    def __init__(self, path: Union[str, os.PathLike], threads: int = 0, max_memory: int = 0):
        options = L.GraphOptions(c.sizeof(L.GraphOptions), threads, max_memory)
        self._handle = L.opened(L.lib.churon_graph_open, os.fsencode(path), c.byref(options))
        self.inputs = tuple(self._port(L.lib.churon_graph_input, i) for i in range(L.lib.churon_graph_inputs(self._handle)))
        self.outputs = tuple(self._port(L.lib.churon_graph_output, i) for i in range(L.lib.churon_graph_outputs(self._handle)))
        self._idle: list = []

    def _port(self, function, i: int) -> Port:
        port, err = L.PortStruct(c.sizeof(L.PortStruct)), L.Error()
        L.check(function(self._handle, i, c.byref(port), c.byref(err)), err)
        return _port(port)

    def session(self) -> "Session":
        return Session(self)

    def run(self, inputs: Union[Mapping[str, np.ndarray], SequenceOf[np.ndarray]], timeout: float = 0) -> dict:
        """{output: array}. The arrays are the caller's own."""
        try:
            session = self._idle.pop()
        except IndexError:
            session = Session(self)
        try:
            return session.run(inputs, timeout=timeout)
        finally:
            self._idle.append(session)

    def __del__(self):
        if getattr(self, "_handle", None):
            L.lib.churon_graph_close(self._handle)
            self._handle = None


class Session:
    """What a run of a graph needs; one thread at a time. Inputs are not copied if they lie in row-major order."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._handle = L.opened(L.lib.churon_session_open, graph._handle)

    def run(self, inputs: Union[Mapping[str, np.ndarray], SequenceOf[np.ndarray]], timeout: float = 0, lend: bool = False) -> dict:
        """{output: array}. lend: the arrays are the session's memory, not copied: they hold what the newest run
        gave, and must not be read after the session's next one."""
        ports = self.graph.inputs
        if not isinstance(inputs, Mapping):
            inputs = dict(zip((p.name for p in ports), inputs))
        unknown = set(inputs) - {p.name for p in ports}
        if unknown:
            raise InvalidError(f"inputs: expected {', '.join(p.name for p in ports)}, got {sorted(unknown)[0]!r}")
        tensors, keep = np.zeros(len(ports), L.TENSOR), []
        for i, p in enumerate(ports):
            if inputs.get(p.name) is not None:
                _fill(tensors[i:i + 1], np.asarray(inputs[p.name]), keep, f"input {p.name!r}")
        out, err = np.zeros(len(self.graph.outputs), L.TENSOR), L.Error()
        options = L.RunOptions(c.sizeof(L.RunOptions), timeout, None)
        L.check(L.lib.churon_session_run(self._handle, tensors.ctypes.data, out.ctypes.data, c.byref(options), c.byref(err)), err)
        return {p.name: array_of(t, self, lend) for p, t in zip(self.graph.outputs, out) if t["dtype"]}

    def __del__(self):
        if getattr(self, "_handle", None):
            L.lib.churon_session_close(self._handle)
            self._handle = None


def _fill(tensor: np.ndarray, array: np.ndarray, keep: list, what: str) -> None:
    if array.dtype.kind in "OUS":
        elements, bytes_ = L.text_elements(array)
        keep += [elements, bytes_]
        number = L.STRING
    else:
        elements = np.ascontiguousarray(array)
        keep.append(elements)
        number = L.CHURON.get(elements.dtype)
        if number is None:
            raise InvalidError(f"{what}: expected an element type of ONNX, got {array.dtype}")
    if array.ndim > L.MAX_RANK:
        raise InvalidError(f"{what}: expected at most {L.MAX_RANK} dimensions, got {array.ndim}")
    tensor["dtype"], tensor["rank"], tensor["bytes"], tensor["data"] = number, array.ndim, elements.nbytes, elements.ctypes.data
    tensor["dims"][0, :array.ndim] = array.shape


def array_of(t, owner: object, lend: bool) -> Optional[np.ndarray]:
    """A churon_tensor as an array: a copy, or the library's memory with `owner` kept alive."""
    shape, number = tuple(int(d) for d in t["dims"][:t["rank"]]), int(t["dtype"])
    if number == L.STRING:
        return L.texts(int(t["data"]), int(t["bytes"]) // L.TEXT.itemsize, shape, owner)
    if number not in L.NUMPY:
        raise InvalidError(f"output: expected an element type that numpy has, got number {number}")
    array = L.memory(int(t["data"]), int(t["bytes"]), owner).view(L.NUMPY[number]).reshape(shape)
    return array if lend else array.copy()
