"""Exceptions of the package. Every one is a tenon.Error and, where Python has a word for it, that too."""

from __future__ import annotations


class Error(Exception):
    """An error of the engine. ``where`` names the thing, ``hint`` may say what to do."""

    kind = "internal"

    def __init__(self, message: str, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.where = where
        self.hint = hint


class InternalError(Error, RuntimeError):
    """A defect of Tenon's, or a failing system call."""


class UsageError(Error, ValueError):
    """A bad argument: what was expected and what was found."""

    kind = "usage"


class ModelError(Error, ValueError):
    """A model that is missing, unreadable or not what it claims."""

    kind = "model"


class OutOfMemoryError(Error, MemoryError):
    """The plan does not fit the device, or memory ran out."""

    kind = "memory"


class NumericError(Error, ArithmeticError):
    """A value that is not finite where one must be."""

    kind = "numeric"


class DeviceError(Error, RuntimeError):
    """No usable device or driver."""

    kind = "device"


class CancelledError(Error):
    """Work that was stopped on request."""

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
    """The exception of an engine's error; called by the extension."""
    return _BY_CODE.get(code, InternalError)(message, where, hint)
