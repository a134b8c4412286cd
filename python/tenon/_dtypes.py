"""Names of element types, in the spellings of all libraries."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ._errors import renamed

FLOATS = ("f64", "f32", "f16", "bf16", "e4m3")

_NAMES = {
    "float64": "f64",
    "double": "f64",
    "float32": "f32",
    "float": "f32",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
    "bool_": "bool",
}
_KNOWN = frozenset(_NAMES.values())
_NUMPY = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "bool": "bool",
}
_TORCH = {**_NUMPY, "bf16": "bfloat16", "e4m3": "float8_e4m3fn"}


def name_of(dtype: Any) -> str:
    """Tenon's name for a type: "f32" for "f32", "float32", torch.float32, numpy.float32 or numpy.dtype("f4")."""
    if isinstance(dtype, str):
        text = dtype
    else:
        text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    text = text.rpartition(".")[2]
    found = text if text in _KNOWN else _NAMES.get(text)
    if found is None:
        raise TypeError(f"dtype: expected one of {', '.join(sorted(_KNOWN))} or a library's name for it, got {dtype!r}")
    return found


def network_type(dtype: Any) -> str:
    """The type that a model's networks compute in, in the engine's spelling ("" for None): a type by any library's name
    for it, or a string as the command line's `--type` takes it, "e4m3, bf16: text_encoder"."""
    if dtype is None:
        return ""
    if not isinstance(dtype, str) or not dtype.strip():
        return name_of(dtype)
    head, comma, exceptions = dtype.partition(",")
    head = head.strip().rpartition(".")[2]
    return _NAMES.get(head, head) + comma + exceptions


def named_dtype() -> AbstractContextManager[None]:
    """Errors about the type name the argument as Python's callers know it."""
    return renamed({"type": "dtype"})


def numpy_name(name: str) -> str | None:
    """NumPy's name, or None if NumPy has no such type."""
    return _NUMPY.get(name)


def torch_name(name: str) -> str:
    """PyTorch's name."""
    return _TORCH[name]


def promote(names: list[str]) -> str:
    """The type of a result: that of the operands, or f32 if they differ or are not floating-point."""
    floats = {n for n in names if n in FLOATS and n != "e4m3"}
    return floats.pop() if len(floats) == 1 else "f32"
