"""Devices that run kernels."""

from __future__ import annotations

from . import _checks, _core


def set_num_threads(threads: int) -> None:
    """Sets the number of CPU threads, 1 to 1024, of everything opened afterwards without `threads` of its own. Call it
    before the first fused function or `lion_step` runs: UsageError once they have started their threads."""
    _core.set_num_threads(_checks.whole(threads, "threads", 1, _checks.MOST_THREADS))


def describe_device(backend: str = "cpu", ordinal: int = 0) -> str:
    """A device in words, such as "cpu, avx2, 2 threads". `backend`: one of `backend_names()`; `ordinal`: which of
    several GPUs, from 0. On the CPU this starts its threads, so call set_num_threads before. Raises DeviceError if
    there is no such device."""
    return _core.describe_device(backend, _checks.whole(ordinal, "ordinal", 0))
