"""What all opened models have in common."""

from __future__ import annotations

from typing import Any


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
