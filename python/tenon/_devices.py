"""Devices that run kernels."""

from __future__ import annotations

from . import _checks, _core


def set_num_threads(threads: int) -> None:
    """Sets the number of CPU threads for everything opened afterwards; call it before the first use."""
    _core.set_num_threads(_checks.whole(threads, "threads", 1, _checks.MOST_THREADS))


def describe_device(backend: str = "cpu", ordinal: int = 0) -> str:
    """A device in words. Raises DeviceError if there is no such device."""
    return _core.describe_device(backend, _checks.whole(ordinal, "ordinal", 0))
