"""Churon from Python: pipelines (bundles) and graphs (ONNX) through libchuron.so.

    pipeline = churon.Pipeline("iris")                 # a folder, a .churon file, a model file, a store name
    pipeline.run({"measures": [5.1, 3.5, 1.4, 0.2]})   # {"species": "setosa", …}

A Pipeline, a Graph and their methods may be used by many threads at once.
"""

from ._errors import (BusyError, CancelledError, ChuronError, CorruptError, InternalError, InvalidError, IOFailure,
                      LimitError, NoMemory, NotFoundError, UnsupportedError)
from ._graph import Graph, Port, Session
from ._library import library_path, version
from ._pipeline import Answer, Field, Pipeline, Sequence

__version__ = version()
__all__ = ["Answer", "BusyError", "CancelledError", "ChuronError", "CorruptError", "Field", "Graph", "IOFailure",
           "InternalError", "InvalidError", "LimitError", "NoMemory", "NotFoundError", "Pipeline", "Port", "Sequence",
           "Session", "UnsupportedError", "library_path", "version"]
