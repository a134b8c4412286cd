"""Functions composed of nodes, for use in a function that `tenon.fuse` traces: norms, reductions, and one function per
pointwise node of the engine."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from . import _core, _dtypes, _node_docs
from ._checks import integer, real
from ._errors import UsageError
from ._expr import Expr, _apply, _axis, _captured, _integers, _lift, _only, permute, reshape


def cast(x: Expr, dtype: Any) -> Expr:
    """x converted to `dtype` (f64, f32, f16, bf16, e4m3, i64, i32, i16, i8, u8, bool, or a library's name); if it is a
    result, stored as that type. Floating-point types round to nearest even; e4m3 saturates at 448, also infinities.
    Integers truncate towards zero and saturate, NaN becomes 0; bool is whether x is not 0 (NaN is not)."""
    return _only(x, "cast").cast(dtype)


def round_to(x: Expr, dtype: Any) -> Expr:
    """x rounded to the nearest values of a floating-point `dtype` as `cast` rounds, but still computed with in f32.
    UsageError for integers and bool, to which only `cast` converts."""
    name = _dtypes.name_of(dtype)
    if name not in _dtypes.FLOATS:
        raise UsageError(f"round_to: expected a floating-point type, got {name}; tenon.cast converts to it", "round_to")
    return _only(x, "round_to")._view("round", dtype=name)


def softmax(x: Expr, axis: int = -1) -> Expr:
    """Softmax over one axis."""
    x = _only(x, "softmax")
    at = _axis(axis, x.ndim, "softmax")
    if at != x.ndim - 1:
        order = [i for i in range(x.ndim) if i != at] + [at]
        return permute(softmax(permute(x, order)), [order.index(i) for i in range(x.ndim)])
    if not x.shape[-1]:
        return _FUNCTIONS["exp"](x)  # as empty: there is no largest element to subtract
    e = _FUNCTIONS["exp"](x - _FUNCTIONS["max_last"](x))
    return e / _FUNCTIONS["sum_last"](e)


def layer_norm(x: Expr, weight: Expr | None = None, bias: Expr | None = None, eps: float = 1e-5) -> Expr:
    """(x - mean) / sqrt(var + eps) over the last axis with the biased variance, times weight plus bias."""
    x = _only(x, "layer_norm")
    d = x - _FUNCTIONS["mean_last"](x)
    y = d * _FUNCTIONS["rsqrt"](_FUNCTIONS["mean_last"](d * d) + eps)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def group_norm(
    x: Expr, groups: int, weight: Expr | None = None, bias: Expr | None = None, eps: float = 1e-5
) -> Expr:
    """(x - mean) / sqrt(var + eps) of x [N, .., C] over each sample's groups of consecutive channels with the biased
    variance, times weight [C] plus bias [C]; eps is not an expression."""
    x = _only(x, "group_norm")
    gamma, beta = (_lift(n if d is None else d, x._graph, "group_norm") for d, n in ((weight, 1.0), (bias, 0.0)))
    dtype = _dtypes.promote([_dtypes.promote([x.dtype]), *(e.dtype for e in (gamma, beta) if e.dtype)])
    count, small = integer(groups, "group_norm: groups"), real(eps, "group_norm: eps")
    return x._with(_core.group_norm(x._value, count, gamma._value, beta._value, small), dtype)


def rms_norm(x: Expr, weight: Expr | None = None, eps: float = 1e-6) -> Expr:
    """x / sqrt(mean(x^2) + eps) over the last axis, times weight."""
    x = _only(x, "rms_norm")
    y = x * _FUNCTIONS["rsqrt"](_FUNCTIONS["mean_last"](x * x) + eps)
    return y if weight is None else y * weight


def _axes(axis: Any, ndim: int, name: str) -> list[int]:
    """Axes to reduce over, ascending: from one number, several, or None for all."""
    if axis is None:
        return list(range(ndim))
    axes = sorted(_axis(a, ndim, name) for a in _integers(axis, name))
    if len(set(axes)) != len(axes) or not axes:
        raise UsageError(f"{name}: expected different axes, got {axis!r}", name)
    return axes


# A GPU's block has room for rows of so many elements.
_LONGEST_ROW = 1 << 18
# What reduces the reductions of equal parts of a row, and for which there is something.
_OF_PARTS = {"sum": "sum", "mean": "mean", "sumsq": "sum", "reduce_max": "reduce_max", "absmax": "reduce_max"}


def _reduce_rows(node: str, rows: Expr, dtype: str) -> Expr:
    """The last axis reduced to one element: longer rows than a GPU takes in equal parts, where they can be divided."""
    length = rows.shape[-1]
    part = next((n for n in range(_LONGEST_ROW, 1, -1) if length % n == 0), length) if length > _LONGEST_ROW else length
    if part < length and node == "variance":
        centred = rows - _reduce_rows("mean", rows, dtype)
        return _reduce_rows("mean", centred * centred, dtype)
    if part < length and node in _OF_PARTS:
        parts = _reduce_rows(node, reshape(rows, [*rows.shape[:-1], length // part, part]), dtype)
        return _reduce_rows(_OF_PARTS[node], reshape(parts, [*rows.shape[:-1], length // part]), dtype)
    return rows._with(_core.make(node, [rows._value], ints=[0]), dtype)


def _reduction(node: str, name: str) -> Callable[..., Expr]:
    def reduce(x: Expr, axis: int | Sequence[int] | None = -1, keepdim: bool = False) -> Expr:
        x = _only(x, name)
        axes = _axes(axis, x.ndim, name)
        kept = [i for i in range(x.ndim) if i not in axes]
        outer, inner = ([x.shape[i] for i in some] for some in (kept, axes))
        if math.prod(outer) and not math.prod(inner):
            raise UsageError(f"{name}: reduces over axis {axis!r} without elements of {list(x.shape)}", name)
        rows = reshape(permute(x, kept + axes), [*outer, math.prod(inner)])
        y = _reduce_rows(node, rows, _dtypes.promote([x.dtype]))
        return reshape(y, [1 if i in axes else x.shape[i] for i in range(x.ndim)] if keepdim else rows.shape[:-1])

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = _node_docs.reduction(name)
    return reduce


def _pointwise(node: str, name: str, operands: int, numbers: int) -> Callable[..., Expr]:
    dtype = "bool" if node in ("less", "equal") else None
    arguments, doc = _node_docs.pointwise(name, operands, numbers)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    types = ["Expr | float"] * operands + ["float"] * numbers
    signature = inspect.Signature([inspect.Parameter(n, kind, annotation=t) for n, t in zip(arguments, types)])

    def function(*args: Any, **kwargs: Any) -> Expr:
        try:
            args = signature.bind(*args, **kwargs).args
        except TypeError as e:
            raise TypeError(f"{name}: expected {', '.join(arguments)}: {e}") from None
        given = [real(n, name) for n in args[operands:]]
        if node == "where":
            args = tuple(map(_captured, args))
            kinds = [a.dtype for a in args[1:] if isinstance(a, Expr) and a.dtype]
            return _apply(node, args, given, _dtypes.promote(kinds) if kinds else None)
        return _apply(node, args[:operands], given, dtype, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__signature__ = signature.replace(return_annotation="Expr")  # type: ignore[attr-defined]
    return function


# NumPy's names where the node's own name has another meaning there; all others keep the node's name.
_POINTWISE = {"max": "maximum", "min": "minimum"}
_REDUCTIONS = {"reduce_max": "max"}


def _functions() -> dict[str, Callable[..., Expr]]:
    """One function per pointwise node and per reduction of the engine."""
    out = {}
    for node, *takes in _core.pointwise_names():
        name = _POINTWISE.get(node, node)
        out[name] = _pointwise(node, name, *takes)
    for node in _core.reduction_names():
        name = _REDUCTIONS.get(node, node)
        out[name] = _reduction(node, name)
    return out


NODES = _functions()
_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "exp": NODES["exp"],
    "rsqrt": NODES["rsqrt"],
    "max_last": lambda x: NODES["max"](x, keepdim=True),
    "sum_last": lambda x: NODES["sum"](x, keepdim=True),
    "mean_last": lambda x: NODES["mean"](x, keepdim=True),
}
