"""What all opened models have in common."""

from __future__ import annotations

from typing import Any

from . import _checks, _dtypes


def set_options(options: Any, device: str, dtype: Any, threads: int, fusion: bool) -> None:
    """What models of every kind are opened with."""
    options.device, options.threads, options.fusion = device, _checks.threads(threads), fusion
    type_name = _dtypes.network_type(dtype)
    if type_name:
        with _dtypes.named_dtype():
            options.set_dtype(type_name)


class Opened:
    """A model that the extension has opened."""

    def __init__(self, core: Any) -> None:
        self._core = core

    @property
    def name(self) -> str:
        """The model's name."""
        return self._core.name

    @property
    def device(self) -> str:
        """The device in words."""
        return self._core.device
