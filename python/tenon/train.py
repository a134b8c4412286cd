"""Training: the problems that the embedded language model was trained on, and is trained further on."""

from __future__ import annotations

from . import _checks, _core
from ._errors import UsageError


def sums(seed: int, first: int, count: int, split: str = "train") -> list[tuple[str, str]]:
    """Problems `first` to `first + count - 1` of a seed's: questions ("Ann has 3 apples and buys 4. How many?") and worked
    answers ("3+4=7\\n#### 7"). `split` is "train" or "held-out": no question is in both, whatever the seeds."""
    if not isinstance(split, str):
        raise TypeError(f"split: expected a string, got {type(split).__name__}")
    number = _checks.integer(seed, "seed")
    if number < 0:
        raise UsageError(f"seed: expected a whole number of at least 0, got {number}", "seed")
    return _core.sums(number, _checks.whole(first, "first", 0), _checks.whole(count, "count", 0), split)
