"""Gradients of functions over expressions: they are expressions too, and fused like any others."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Union

from . import _core
from ._dtypes import FLOATS
from ._errors import UsageError
from ._expr import Expr
from ._fuse import Fused, signature_of

_LEAVES = itertools.count()
Argnums = Union[int, str, Sequence[Union[int, str]], None]


def gradients(values: Sequence[Expr], seeds: Sequence[Expr | None], wrt: Sequence[Expr]) -> list[Expr]:
    """Gradients, f32, of the sum over seed * value (without seeds: ones) with respect to each of `wrt`."""
    totals: list[Any] = [None] * len(wrt)
    leaves = [w._value for w in wrt]
    for value, seed in zip(values, seeds):
        start = None if seed is None else seed.cast("f32")._value
        for i, found in enumerate(_core.gradients(value._value, start, leaves)):
            totals[i] = found if totals[i] is None else _core.make("add", [totals[i], found])
    return [Expr(t, w._graph, "f32") for t, w in zip(totals, wrt)]


def _leaf(like: Expr) -> Expr:
    """A new leaf of an expression's shape and type, in its graph."""
    name, graph = f"argument {next(_LEAVES)}", like._graph
    if not like.dtype:
        return Expr(graph.scalar(name), graph, "")
    return Expr(graph.input(name, like.dtype, list(like.shape)), graph, like.dtype)


def _chosen(argnums: Argnums, signature: inspect.Signature, args: Any, kwargs: Any) -> tuple[list[Expr], bool]:
    """The arguments to differentiate by, and whether one alone was named."""
    if argnums is None:
        every = [v for v in (*args, *kwargs.values()) if isinstance(v, Expr) and v.dtype in FLOATS]
        if not every:
            raise UsageError("grad: no argument is an array of floats", "grad")
        return every, False
    alone = isinstance(argnums, (int, str))
    named = signature.bind(*args, **kwargs).arguments
    found = []
    for which in (argnums,) if isinstance(argnums, (int, str)) else argnums:
        try:
            value = {**kwargs, **named}[which] if isinstance(which, str) else args[which]
        except LookupError:
            what = f"{'named' if isinstance(which, str) else 'at position'} {which!r}"
            raise UsageError(
                f"grad: the call has no argument {what}; its arguments are {', '.join(named)}", "argnums"
            ) from None
        if not isinstance(value, Expr) or (value.dtype and value.dtype not in FLOATS):
            raise UsageError(f"grad: argument {which!r} is neither an array of floats nor a number", "argnums")
        found.append(value)
    if not found:
        raise UsageError("grad: argnums names no argument", "argnums")
    return found, alone


def _differentiated(function: Any, argnums: Argnums, with_value: bool) -> Fused:
    inner = function._function if isinstance(function, Fused) else function
    if not callable(inner):
        raise TypeError(f"grad: expected a function, got {type(function).__name__}")
    signature = signature_of(inner, "grad")

    @functools.wraps(inner)
    def both(*args: Any, **kwargs: Any) -> Any:
        value = inner(*args, **kwargs)
        if not isinstance(value, Expr):
            raise TypeError(f"grad: expected the function to return one expression, got {type(value).__name__}")
        if math.prod(value.shape) != 1:
            raise UsageError(f"grad: expected the function to return one number, got shape {value.shape}", "grad")
        wrt, alone = _chosen(argnums, signature, args, kwargs)
        found = gradients([value], [None], wrt)
        if with_value:
            return (value, *found)
        return found[0] if alone else tuple(found)

    def within(*args: Any, **kwargs: Any) -> Any:
        """Differentiates by leaves that nothing else depends on, then puts the caller's expressions in their place."""
        given = (*args, *kwargs.values())
        fresh = [_leaf(v) if isinstance(v, Expr) else v for v in given]  # one argument may be given twice
        found = both(*fresh[: len(args)], **dict(zip(kwargs, fresh[len(args) :])))
        values = list(found) if isinstance(found, tuple) else [found]
        pairs = [(leaf._value, v._value) for leaf, v in zip(fresh, given) if isinstance(v, Expr)]
        replaced = _core.substitute([v._value for v in values], *map(list, zip(*pairs)))
        out = [Expr(new, old._graph, old.dtype) for new, old in zip(replaced, values)]
        return tuple(out) if isinstance(found, tuple) else out[0]

    name = getattr(inner, "__name__", "fused").replace("<lambda>", "fused")
    fused = Fused(both, f"{name}.gradient", within)
    fused._recipe = (_differentiated, (function, argnums, with_value))
    return fused


def grad(function: Callable[..., Any] | Fused, argnums: Argnums = None) -> Fused:
    """The gradients of `function`, which returns one number, as a fused function of the same arguments.

        dw = tenon.grad(loss, "w")(w, x)          # one gradient
        dw, dx = tenon.grad(loss)(w, x)           # one per floating-point array, in order

    `argnums` names the arguments to differentiate by. A position or a name alone gives the gradient itself; several
    give a tuple, in their order. None, the default, means every floating-point array, and gives a tuple even if there
    is only one (JAX's default is argument 0). Gradients are f32 and have the shape of their argument. UsageError if the
    function does not return one number, or an argument is not an array of floats or a number.
    """
    return _differentiated(function, argnums, False)


def value_and_grad(function: Callable[..., Any] | Fused, argnums: Argnums = None) -> Fused:
    """Like `grad`, but the fused function returns one flat tuple, (value, gradient, ..), from one plan: also with one
    gradient, and not nested as in JAX."""
    return _differentiated(function, argnums, True)
