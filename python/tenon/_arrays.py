"""Differences between array libraries: creating an empty array, and the current stream."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Sequence
from typing import Any

from . import _core, _dtypes
from ._checks import real
from ._errors import UsageError


def library_of(array: Any) -> str:
    """Top-level module of the array's class: "numpy", "torch", "cupy", "jax"; "jax" for jaxlib too."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"  # subclasses are defined in other modules
    module = type(array).__module__.partition(".")[0]
    return "jax" if module.startswith("jax") else module


def wait_for_jax(values: Sequence[Any]) -> bool:
    """Waits until JAX has computed its arrays among these: nothing else can wait for its streams. Whether there are
    any; JAX must not go on before what reads them is done, either."""
    ours = [v for v in values if library_of(v) == "jax"] if "jax" in sys.modules else []
    for value in ours:
        value.block_until_ready()
    return bool(ours)


def is_negated(array: Any) -> bool:
    """Whether this is a tensor whose memory holds the negated numbers."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor) and array.is_neg()


def resolved(array: Any) -> Any:
    """The array, or a copy if its memory holds the negated numbers."""
    return array.resolve_neg() if is_negated(array) else array


def as_view(value: Any) -> Any:
    """The tensor, or a copy if no view of dense memory has its layout; anything else as it is."""
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor) or value.is_contiguous():
        return value
    try:
        _core.Call("gradient", ["gradient"], (value.detach(),)).input(_core.Graph(), 0)
    except UsageError:
        return value.contiguous()
    return value


def plain_numbers(names: Sequence[str], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values, with NumPy's numbers beside PyTorch's tensors as Python's: to PyTorch, too, they have no type."""
    typed = [isinstance(v, numbers.Real) and not isinstance(v, (int, float)) for v in values]
    if not any(typed) or all(library_of(v) != "torch" for v in values):
        return values
    return tuple(real(v, n) if t else v for n, v, t in zip(names, values, typed))


def _torch_empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, _dtypes.torch_name(dtype)), device=like.device)


def _numpy_empty(shape: tuple[int, ...], dtype: str, library: str = "numpy") -> Any:
    name = _dtypes.numpy_name(dtype)
    if name is None:
        raise UsageError(f"result: {library} has no element type {dtype}; cast the result to another", "result")
    module = __import__(library)
    return module.empty(shape, dtype=name)


def _cupy_empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    import cupy

    with cupy.cuda.Device(like.device.id):
        return _numpy_empty(shape, dtype, "cupy")


def empty_like(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An uninitialised array of the same library and device. JAX arrays are immutable: `finish` creates them."""
    library = library_of(like)
    if library == "torch":
        return _torch_empty(like, shape, dtype)
    if library == "cupy":
        return _cupy_empty(like, shape, dtype)
    if library == "jax":
        read = _core.read_array(like, "argument")
        return _core.new_array(list(shape), dtype, read)
    return _numpy_empty(shape, dtype)


def finish(like: Any, made: Any) -> Any:
    """The array to return to the caller for one made by `empty_like`."""
    if library_of(like) == "jax":
        import jax

        return jax.dlpack.from_dlpack(made)
    return made


def check_writable(array: Any, name: str) -> None:
    """Refuses arrays of libraries whose arrays are immutable, and tensors that negate what memory holds."""
    if library_of(array) == "jax":
        raise UsageError(f"{name}: JAX arrays are immutable; they cannot be written to", name)
    if is_negated(array):
        raise UsageError(
            f"{name}: expected a tensor to write to, got one that shows its memory's numbers negated; "
            "write to another and copy it",
            name,
        )


def current_stream(like: Any, ordinal: int) -> int:
    """The current CUDA stream of the array's library, or 0, CUDA's legacy stream, if the library has no such notion.
    The extension calls this for libraries without DLPack's C exchange table."""
    library = library_of(like)
    if library == "torch":
        torch = sys.modules["torch"]
        return int(torch.cuda.current_stream(ordinal).cuda_stream)
    if library == "cupy":
        import cupy

        return int(cupy.cuda.get_current_stream().ptr)
    return 0
