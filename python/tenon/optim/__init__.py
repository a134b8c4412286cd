"""Optimizers for PyTorch. Importing this module imports torch."""

from __future__ import annotations

try:
    import torch  # noqa: F401
except ImportError as e:
    raise ImportError("tenon.optim needs PyTorch: pip install torch") from e

from .lion import Lion

__all__ = ["Lion"]
