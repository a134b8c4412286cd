"""Exceptions of the package. Each is a tenon.Error and, if there is one, also the corresponding Python exception."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Error(Exception):
    """An error of the engine. ``where`` names what it is about, ``hint`` may suggest what to do."""

    kind = "internal"

    def __init__(self, message: str, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.where = where
        self.hint = hint


class InternalError(Error, RuntimeError):
    """A defect in Tenon, or a failed system call."""


class UsageError(Error, ValueError):
    """A bad argument: what was expected and what was found."""

    kind = "usage"


class ModelError(Error, ValueError):
    """A model that is missing, unreadable or not of the expected kind."""

    kind = "model"


class OutOfMemoryError(Error, MemoryError):
    """The plan does not fit the device, or memory ran out."""

    kind = "memory"


class NumericError(Error, ArithmeticError):
    """A value that is not finite where it must be, or an index of `gather` outside its axis."""

    kind = "numeric"


class DeviceError(Error, RuntimeError):
    """No usable device or driver; in a forked child, a pipeline that its parent was using."""

    kind = "device"


class CancelledError(Error):
    """Work that was cancelled by something other than Ctrl-C, which raises KeyboardInterrupt."""

    kind = "cancelled"


_BY_CODE = {
    1: InternalError,
    2: UsageError,
    3: ModelError,
    4: OutOfMemoryError,
    5: NumericError,
    6: DeviceError,
    130: CancelledError,
}


def make(code: int, message: str, where: str, hint: str) -> Error:
    """The exception for an error of the engine; called by the extension."""
    return _BY_CODE.get(code, InternalError)(message, where, hint)


@contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Errors about what the engine calls by one of the keys name the argument as Python's callers know it."""
    try:
        yield
    except UsageError as e:
        name = names.get(e.where)
        if name is None:
            raise
        raise UsageError(str(e).replace(f"[{e.where}]", f"[{name}]", 1), name, e.hint) from None
