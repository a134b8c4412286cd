"""What runs the kernels."""

from __future__ import annotations

from . import _checks, _core


def set_num_threads(threads: int) -> None:
    """Threads of the processor, for everything that is opened afterwards; before its first use only."""
    _core.set_num_threads(_checks.whole(threads, "threads", 1, _checks.MOST_THREADS))


def describe_device(backend: str = "cpu", ordinal: int = 0) -> str:
    """A device in words. Raises DeviceError for one that is not there."""
    return _core.describe_device(backend, _checks.whole(ordinal, "ordinal", 0))
