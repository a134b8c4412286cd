"""Checks of arguments."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from ._errors import UsageError

MOST_THREADS = 1024


def whole(value: Any, name: str, least: int = 1, most: int = 2**31 - 1) -> int:
    """`value` (an int, or NumPy's) if it is from `least` to `most`; otherwise UsageError names it."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= value <= most:
        return int(value)
    kind = "a positive whole number" if least == 1 else f"a whole number of at least {least}"
    if isinstance(value, numbers.Integral) and value > most:
        kind += f", at most {most}"
    if most < 2**31 - 1:
        kind = f"a whole number from {least} to {most}"
    raise UsageError(f"{name}: expected {kind}, got {shown(value)}", name)


def threads(value: Any) -> int:
    """A number of threads; 0: not given."""
    return whole(value, "threads", 0, MOST_THREADS)


def batch_invariant(deterministic: Any) -> bool:
    """Whether `deterministic`, "run" or "batch", asks for results that are the same in every batch."""
    if deterministic not in ("run", "batch"):
        raise UsageError(f"deterministic: expected 'run' or 'batch', got {deterministic!r}", "deterministic")
    return deterministic == "batch"


def memory(value: Any, name: str) -> str:
    """An amount of memory in the extension's form: bytes, a string such as "10GB", or "" for None."""
    if value is None:
        return ""
    if isinstance(value, str) and value:
        return value
    return f"{whole(value, name, 1, 2**62)}B"


def real(value: Any, name: str) -> float:
    """`value` as a float; UsageError for an integer too large for a float, TypeError if it is not a number."""
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"{name}: expected a number that a float can hold, got {shown(value)}", name) from None


def integer(value: Any, name: str) -> int:
    """`value` as a 64-bit int; UsageError for a larger one, TypeError if it is not an integer or is a bool."""
    if isinstance(value, bool):
        raise TypeError(f"{name}: expected whole numbers, got bool")
    try:
        number = int(value.__index__())
    except AttributeError:
        raise TypeError(f"{name}: expected whole numbers, got {type(value).__name__}") from None
    if not -(2**63) <= number < 2**63:
        raise UsageError(f"{name}: expected numbers of at most 64 bits, got {shown(number)}", name)
    return number


def pair(value: Any) -> Any:
    """Two numbers in another kind of sequence, such as a NumPy array, as a tuple; anything else as it is."""
    if isinstance(value, (tuple, list, str, bytes, Mapping)) or not hasattr(value, "__getitem__"):
        return value
    try:
        first, second = (float(v) for v in value)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        return value
    return first, second


def text(value: str, name: str) -> str:
    """`value` if it has no unpaired surrogates: UsageError names the first."""
    try:
        value.encode()
    except UnicodeEncodeError as e:
        raise UsageError(f"{name}: character {e.start} is an unpaired surrogate", name) from None
    return value


def shown(value: Any) -> str:
    """repr of a value; for a huge integer its size."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)
