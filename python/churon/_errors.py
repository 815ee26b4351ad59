"""Errors as exceptions: one class for each status of churon.h, one line of message each."""

from __future__ import annotations


class ChuronError(Exception):
    """`status`: the name that churon_status_name gives, "invalid"; the message names field, expected and got."""

    status = "error"


class InvalidError(ChuronError, ValueError):
    status = "invalid"


class CorruptError(ChuronError, ValueError):
    status = "corrupt"


class UnsupportedError(ChuronError, NotImplementedError):
    status = "unsupported"


class NotFoundError(ChuronError, LookupError):
    status = "not_found"


class LimitError(ChuronError):
    status = "limit"


class NoMemory(ChuronError, MemoryError):
    status = "no_memory"


class IOFailure(ChuronError, OSError):
    status = "io"


class BusyError(ChuronError):
    status = "busy"


class CancelledError(ChuronError):
    status = "cancelled"


class InternalError(ChuronError):
    status = "internal"


BY_STATUS = {1: InvalidError, 2: CorruptError, 3: UnsupportedError, 4: NotFoundError, 5: LimitError, 6: NoMemory,
             7: IOFailure, 8: BusyError, 9: CancelledError, 10: InternalError}


def error_of(status: int, message: str) -> ChuronError:
    return BY_STATUS.get(status, ChuronError)(message)
