"""Optimizers for PyTorch. Importing this module imports torch."""

from __future__ import annotations

from .lion import Lion

__all__ = ["Lion"]
