"""`tenon.fuse`: a Python function over expressions becomes kernels on the caller's arrays."""

from __future__ import annotations

import inspect
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from . import _arrays, _core, _dtypes
from ._errors import UsageError
from ._expr import Expr

_ALL: weakref.WeakSet[Fused] = weakref.WeakSet()


class _Traced:
    """A function's plan for one set of shapes, types and strides, and how its results go back to the caller."""

    def __init__(self, program: Any, results: list[tuple[tuple[int, ...], str]], structure: Any) -> None:
        self.program = program
        self.results = results  # shape and type of every array that is written
        self.structure = structure  # (kind, keys, position of each of the caller's results)

    def pack(self, arrays: Sequence[Any]) -> Any:
        kind, keys, positions = self.structure
        values = [arrays[p] for p in positions]
        if kind is None:
            return values[0]
        return dict(zip(keys, values)) if kind is dict else kind(values)


def _flatten(result: Any) -> tuple[Any, list[str], list[Expr]]:
    if isinstance(result, Expr):
        return None, ["result"], [result]
    if isinstance(result, dict) and all(isinstance(k, str) for k in result):
        kind, keys, values = dict, list(result), list(result.values())
    elif isinstance(result, (tuple, list)):
        kind, keys, values = type(result), [f"result.{i}" for i in range(len(result))], list(result)
        kind = list if kind is list else tuple
    else:
        raise TypeError(f"fuse: expected the function to return expressions, got {type(result).__name__}")
    for key, value in zip(keys, values):
        if not isinstance(value, Expr):
            raise TypeError(f"fuse: {key}: expected an expression, got {type(value).__name__}")
    if not values:
        raise TypeError("fuse: expected the function to return at least one expression")
    return kind, keys, values


def _apart(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class Fused:
    """A function that runs as fused kernels. Call it with arrays and numbers; `explain` shows what became of it.

    The function is traced once for every combination of shapes, types, strides and device. Arrays are read where they
    lie. Numbers given as arguments are values of a run: another number costs no new plan. Numbers inside the function
    are constants of the plan.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        if not callable(function):
            raise TypeError(f"fuse: expected a function, got {type(function).__name__}")
        self._function = function
        self._name = name or getattr(function, "__name__", "fused").replace("<lambda>", "fused")
        self._signature = inspect.signature(function)
        self._cache: dict[bytes, _Traced] = {}
        self._last: _Traced | None = None
        self.__doc__ = getattr(function, "__doc__", None)
        _ALL.add(self)

    def _names(self, count: int) -> list[str]:
        names: list[str] = []
        for p in self._signature.parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                names += [f"{p.name}.{i}" for i in range(count - len(names))]
            elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                names.append(p.name)
        return names[:count]

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        bound = self._signature.bind(*args, **kwargs)
        if bound.kwargs:
            raise TypeError(f"{self._name}: keyword-only arguments are not supported: {', '.join(bound.kwargs)}")
        return bound.args

    def _read(self, args: tuple[Any, ...]) -> Any:
        names = self._names(len(args))
        torch = sys.modules.get("torch")
        if torch is not None and torch.is_grad_enabled():
            for name, a in zip(names, args):
                if isinstance(a, torch.Tensor) and a.requires_grad:
                    raise UsageError(
                        f"{name}: requires gradients, which {self._name} does not carry; "
                        "detach it or call under torch.no_grad()",
                        name,
                    )
        call = _core.Call(self._name, names, args)
        return call

    def _trace(self, call: Any, args: tuple[Any, ...]) -> _Traced:
        graph = _core.Graph()
        given: list[Any] = []
        for i, name in enumerate(call.names):
            if call.is_scalar(i):
                given.append(Expr(graph.scalar(name), graph, ""))
            else:
                given.append(Expr(call.input(graph, i), graph, call.dtype(i)))
        kind, keys, values = _flatten(self._function(*given))
        stored: dict[Any, int] = {}
        positions: list[int] = []
        named: list[Any] = []
        results: list[tuple[tuple[int, ...], str]] = []
        taken = set(call.names)
        for key, value in zip(keys, values):
            if value._graph is not graph:
                raise UsageError(f"{self._name}: {key} belongs to another traced function", key)
            dtype = value.dtype or "f32"
            final = value.cast(dtype)._value
            if final not in stored:
                stored[final] = len(named)
                named.append(_core.NamedValue(_apart(key, taken), final))
                results.append((tuple(value.shape), dtype))
            positions.append(stored[final])
        program = _core.Program(self._name, named, call)
        return _Traced(program, results, (kind, keys, positions))

    def _find(self, call: Any, args: tuple[Any, ...]) -> _Traced:
        traced = self._cache.get(call.key)
        if traced is None:
            traced = self._cache[call.key] = self._trace(call, args)
        self._last = traced
        return traced

    def _outputs(self, traced: _Traced, like: Any, out: Any) -> list[Any]:
        if out is None:
            return [_arrays.empty_like(like, shape, dtype) for shape, dtype in traced.results]
        kind, keys, positions = traced.structure
        if len(positions) != len(traced.results):
            raise UsageError(f"out: {self._name} returns one value under two names; out cannot hold both", "out")
        if kind is None:
            given = [out]
        elif kind is dict:
            if not isinstance(out, dict) or set(out) != set(keys):
                raise UsageError(f"out: expected a dict with the keys {', '.join(keys)}", "out")
            given = [out[k] for k in keys]
        else:
            if not isinstance(out, (tuple, list)) or len(out) != len(keys):
                raise UsageError(f"out: expected {len(keys)} arrays", "out")
            given = list(out)
        for key, array in zip(keys, given):
            _arrays.check_writable(array, key)
        return given

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Runs on `args`; results are new arrays of the first array's library and device, or `out`."""
        if kwargs or len(args) != len(self._signature.parameters):
            args = self._bind(args, kwargs)
        call = self._read(args)
        traced = self._find(call, args)
        like = call.first
        arrays = self._outputs(traced, like, out)
        traced.program.run(call, arrays)
        if out is not None:
            return out
        return traced.pack([_arrays.finish(like, a) for a in arrays])

    def _traced_for(self, args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> _Traced:
        if args or kwargs:
            args = self._bind(args, kwargs)
            return self._find(self._read(args), args)
        if self._last is None:
            raise UsageError(f"{what}: {self._name} has not been called yet; give {what} its arguments", what)
        return self._last

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """The plan for these arguments, or of the last call: every launch, what fills its holes, what stayed apart."""
        return self._traced_for(args, kwargs, "explain").program.explain()

    def plan(self, *args: Any, **kwargs: Any) -> str:
        """The plan as the text that the engine reads back."""
        return self._traced_for(args, kwargs, "plan").program.plan()

    def launches(self, *args: Any, **kwargs: Any) -> int:
        """Number of launches of one call."""
        return self._traced_for(args, kwargs, "launches").program.launches

    def __repr__(self) -> str:
        return f"<fused {self._name}, {len(self._cache)} plan(s)>"


def fuse(function: Callable[..., Any], name: str | None = None) -> Fused:
    """`function`, called once with expressions, as fused kernels on arrays.

        k = tenon.fuse(lambda x, g: x * tenon.silu(g))
        y = k(x, g)              # NumPy, PyTorch, CuPy or JAX arrays; y is one of the first array's kind
        k(x, g, out=y)           # into an array at hand
        print(k.explain())       # which launches, and what fills their holes

    Results have the type of the operands (f32 where those differ); arithmetic in between is f32. A function with
    matrix products, convolutions or attention takes one launch for each of them or more.
    """
    return Fused(function, name)


def _forget() -> None:
    for fused in _ALL:
        fused._cache.clear()
        fused._last = None


os.register_at_fork(after_in_child=_forget)  # a child has no threads of the parent's devices
