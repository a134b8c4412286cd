"""`tenon.fuse`: turns a Python function over expressions into kernels on the caller's arrays."""

from __future__ import annotations

import inspect
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from . import _arrays, _core
from ._errors import UsageError
from ._expr import Expr, Tracer, _captured

_ALL: weakref.WeakValueDictionary[int, Fused] = weakref.WeakValueDictionary()  # by handle
_HANDLES = itertools.count()


def by_handle(handle: int) -> Fused:
    """The function with that handle, by which PyTorch's operators refer to it."""
    return _ALL[handle]


class _Bound:
    """One call's arguments in the order of their names; the last of these are `keywords`."""

    __slots__ = ("keywords", "names", "values")

    def __init__(self, names: Sequence[str], values: tuple[Any, ...], keywords: tuple[str, ...]) -> None:
        self.names = names
        self.values = values
        self.keywords = keywords


class _Traced:
    """A function's plan for one set of shapes, types and strides, and how to return its results to the caller."""

    def __init__(
        self,
        program: Any,
        results: list[tuple[tuple[int, ...], str]],
        structure: Any,
        captured: list[tuple[str, Any]],
        key: bytes,
    ) -> None:
        self.program = program
        self.results = results  # shape and type of every array written
        self.structure = structure  # kind and keys of the results
        self.captured = captured  # arrays that the function uses besides its arguments, with their names
        self.key = key  # shapes, types and strides of arguments and captured arrays


def pack(structure: Any, arrays: Sequence[Any]) -> Any:
    """The results in the form that the function returns."""
    kind, keys = structure
    if kind is None:
        return arrays[0]
    if kind is dict:
        return dict(zip(keys, arrays))
    return list(arrays) if kind is list else tuple(arrays)


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


def _torch_compiles() -> bool:
    """Whether torch.compile is tracing; it traces this function too."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def _wants_gradients(values: Sequence[Any]) -> bool:
    """Whether PyTorch records gradients of one of these."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.is_grad_enabled():
        return False
    return any(isinstance(v, torch.Tensor) and v.requires_grad for v in values)


def _note_written(arrays: Sequence[Any]) -> None:
    """Tells autograd which tensors were written to."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.autograd.graph.increment_version([a for a in arrays if isinstance(a, torch.Tensor)])


class Fused:
    """A function that runs as fused kernels. Call it with arrays and numbers; `explain` shows its plan.

    The function is traced once for every combination of shapes, types, strides and device. Arrays are read in place.
    Numbers passed as arguments are inputs: another number needs no new plan. Numbers inside the function are constants
    of the plan; arrays inside it are those found when tracing, and are read anew by every call.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None, within: Any = None) -> None:
        """`within`: what is called within another fused function, if not `function` itself."""
        if not callable(function):
            raise TypeError(f"fuse: expected a function, got {type(function).__name__}")
        self._function = function
        self._within = within or function
        self._name = name or getattr(function, "__name__", "fused").replace("<lambda>", "fused")
        self._signature = inspect.signature(function)
        kinds = {p.kind for p in self._signature.parameters.values()}
        plain = kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._plain = list(self._signature.parameters) if plain else None
        self._cache: dict[tuple[tuple[str, ...], bytes], _Traced] = {}
        self._shapes: dict[Any, list[tuple[tuple[int, ...], str]]] = {}  # of results, by what determines them
        self._last: _Traced | None = None
        self._structure: Any = None  # of the last _result_types(), for PyTorch's operators
        self._backwards: dict[Any, Fused] = {}  # by arguments and results of the gradients
        self._handle = next(_HANDLES)
        self.__doc__ = getattr(function, "__doc__", None)
        _ALL[self._handle] = self
        if "torch" in sys.modules:
            from . import _torch  # registers operators before torch.compile needs them

    def _names(self, positional: int) -> list[str]:
        names: list[str] = []
        for p in self._signature.parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                names += [f"{p.name}.{i}" for i in range(positional - len(names))]
            elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                names.append(p.name)
        return names[:positional]

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Bound:
        if self._plain is not None and not kwargs and len(args) == len(self._plain):
            return _Bound(self._plain, args, ())
        bound = self._signature.bind(*args, **kwargs)
        keywords = tuple(bound.kwargs)
        taken: set[str] = set()  # a positional argument and a keyword may have the same name
        names = [_apart(n, taken) for n in (*self._names(len(bound.args)), *keywords)]
        return _Bound(names, (*bound.args, *bound.kwargs.values()), keywords)

    def _check_captured(self, captured: list[tuple[str, Any]]) -> None:
        for name, array in captured:
            if _wants_gradients([array]):
                raise UsageError(
                    f"{name}: requires gradients, but {self._name} passes gradients to its arguments only; "
                    "make it an argument, or detach it",
                    name,
                )
            if _arrays.is_negated(array):
                raise UsageError(f"{name}: its memory holds the negated numbers; use its resolve_neg()", name)

    def _backward(self, count: int, keywords: tuple[str, ...], wrt: tuple[int, ...], seeded: tuple[int, ...]) -> Fused:
        """A function of the `count` arguments and of gradients of the results, among those written, that `seeded`
        names. It returns a list: the gradients of the arguments that `wrt` names."""
        key = (count, keywords, wrt, seeded)
        if key not in self._backwards:

            def back(*given: Expr) -> list[Expr]:
                from ._grad import gradients

                positional = count - len(keywords)
                result = self._function(*given[:positional], **dict(zip(keywords, given[positional:count])))
                values = _flatten(result)[2]
                return gradients([values[i] for i in seeded], given[count:], [given[i] for i in wrt])

            self._backwards[key] = Fused(back, f"{self._name}.backward")
        return self._backwards[key]

    def _read(self, bound: _Bound) -> Any:
        bound.values = tuple(map(_arrays.resolved, bound.values))
        return _core.Call(self._name, bound.names, bound.values)

    def _evaluate(self, given: list[Expr], keywords: tuple[str, ...], tracer: Tracer) -> Any:
        """Calls the function with expressions: kind and keys of its results, and the results."""
        positional = len(given) - len(keywords)
        with tracer:
            result = self._function(*given[:positional], **dict(zip(keywords, given[positional:])))
        kind, keys, values = _flatten(result)
        for key, value in zip(keys, values):
            if value._graph is not tracer.graph:
                raise UsageError(f"{self._name}: {key} belongs to another traced function", key)
        return kind, keys, values

    def _trace(self, call: Any, bound: _Bound) -> _Traced:
        graph = _core.Graph()
        given: list[Any] = []
        for i, name in enumerate(call.names):
            if call.is_scalar(i):
                given.append(Expr(graph.scalar(name), graph, ""))
            else:
                given.append(Expr(call.input(graph, i), graph, call.dtype(i)))
        tracer = Tracer(graph, call.names)
        kind, keys, values = self._evaluate(given, bound.keywords, tracer)
        named: list[Any] = []
        results: list[tuple[tuple[int, ...], str]] = []
        taken = {*call.names, *(name for name, _ in tracer.captured)}
        for key, value in zip(keys, values):
            dtype = value.dtype or "f32"
            named.append(_core.NamedValue(_apart(key, taken), value.cast(dtype)._value))
            results.append((tuple(value.shape), dtype))
        whole = self._with_captured(call, bound, tracer.captured)
        program = _core.Program(self._name, named, whole)
        return _Traced(program, results, (kind, keys), tracer.captured, whole.key)

    def _with_captured(self, call: Any, bound: _Bound, captured: list[tuple[str, Any]]) -> Any:
        if not captured:
            return call
        self._check_captured(captured)
        names, arrays = zip(*captured)
        return _core.Call(self._name, [*bound.names, *names], (*bound.values, *arrays))

    def _find(self, call: Any, bound: _Bound) -> _Traced:
        key = (bound.keywords, call.key)
        traced = self._cache.get(key)
        if traced is None:
            traced = self._cache[key] = self._trace(call, bound)
        self._last = traced
        return traced

    def _result_types(self, shapes: Sequence[tuple[int, ...] | None], dtypes: Sequence[str], bound: _Bound) -> Any:
        """Shape and type of every array that a call with arguments of these shapes and types (None: a number) writes,
        and the form of the function's results; for compilers that ask before there are arrays."""
        key = (bound.keywords, tuple(shapes), tuple(dtypes))
        if key not in self._shapes:
            graph = _core.Graph()
            given = [
                Expr(graph.scalar(n), graph, "") if s is None else Expr(graph.input(n, d, list(s)), graph, d)
                for n, s, d in zip(bound.names, shapes, dtypes)
            ]
            tracer = Tracer(graph, bound.names)
            kind, keys, values = self._evaluate(given, bound.keywords, tracer)
            results = [(tuple(v.shape), v.dtype or "f32") for v in values]
            self._shapes[key] = (results, (kind, keys), tracer.captured)
        results, self._structure, captured = found = self._shapes[key]
        self._check_captured(captured)  # they may require gradients since
        return found[:2]

    def _outputs(self, traced: _Traced, like: Any, out: Any) -> list[Any]:
        if out is None:
            return [_arrays.empty_like(like, shape, dtype) for shape, dtype in traced.results]
        given = unpack(traced.structure, out, self._name)
        for key, array in zip(traced.structure[1], given):
            _arrays.check_writable(array, key)
            if _wants_gradients([array]):
                raise UsageError(f"{key}: requires gradients, and writing to it would change them", key)
        return given

    def _run(self, bound: _Bound, out: Any = None, stored: Any = None) -> tuple[list[Any], Any]:
        """The arrays that a call writes, and the form of the function's results. They are new, or those of
        `out`, which has that form, or `stored`."""
        call = self._read(bound)
        traced = self._find(call, bound)
        whole = self._with_captured(call, bound, traced.captured)
        if whole.key != traced.key:  # a captured array has another type, shape or strides since
            self._cache.pop((bound.keywords, call.key), None)
            traced = self._find(call, bound)
            whole = self._with_captured(call, bound, traced.captured)
        like = call.first
        arrays = list(stored) if stored is not None else self._outputs(traced, like, out)
        waits = _arrays.wait_for_jax((*bound.values, *(a for _, a in traced.captured)))
        traced.program.run(whole, arrays)
        if waits:
            traced.program.wait()
        if out is not None or stored is not None:
            _note_written(arrays)
        return [_arrays.finish(like, a) for a in arrays], traced.structure

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Runs on `args`; results are new arrays of the first array's library and device, or `out`. If PyTorch records
        gradients of an argument, they flow through the call. Within another fused function it is part of that one."""
        if out is None and Tracer.current() is not None:
            # Arrays that the function around this one found outside are its inputs, too.
            args, kwargs = tuple(map(_captured, args)), {n: _captured(v) for n, v in kwargs.items()}
            if any(isinstance(v, Expr) for v in (*args, *kwargs.values())):
                return self._within(*args, **kwargs)
        if _torch_compiles() or _wants_gradients((*args, *kwargs.values())):
            from . import _torch

            arrays = _torch.call_fused(self._handle, args, kwargs, out)
            # A compiler cannot look it up, but its thread is alone.
            structure = self._structure if _torch_compiles() else _torch.structure_of(self, args, kwargs)
        else:
            arrays, structure = self._run(self._bind(args, kwargs), out)
        return pack(structure, arrays) if out is None else out

    def __reduce__(self) -> Any:
        """Copies are functions of their own, without plans."""
        return Fused, (self._function, self._name, self._within)

    def _traced_for(self, args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> _Traced:
        if args or kwargs:
            bound = self._bind(args, kwargs)
            return self._find(self._read(bound), bound)
        if self._last is None:
            raise UsageError(f"{what}: {self._name} has not been called yet; pass its arguments to {what}", what)
        return self._last

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """The plan for these arguments, or for the last call: every launch, what fills its holes, what stayed apart."""
        return self._traced_for(args, kwargs, "explain").program.explain()

    def plan(self, *args: Any, **kwargs: Any) -> str:
        """The plan as text that the engine can parse."""
        return self._traced_for(args, kwargs, "plan").program.plan()

    def launches(self, *args: Any, **kwargs: Any) -> int:
        """Number of launches in one call."""
        return self._traced_for(args, kwargs, "launches").program.launches

    def __repr__(self) -> str:
        return f"<fused {self._name}, {len(self._cache)} plan(s)>"


def unpack(structure: Any, out: Any, name: str) -> list[Any]:
    """The caller's arrays to write to, in the order of the stored results."""
    kind, keys = structure
    if kind is None:
        return [out]
    if kind is dict:
        if not isinstance(out, dict) or set(out) != set(keys):
            raise UsageError(f"out: expected a dict with the keys {', '.join(keys)}", "out")
        return [out[k] for k in keys]
    if not isinstance(out, (tuple, list)) or len(out) != len(keys):
        raise UsageError(f"out: expected {len(keys)} arrays", "out")
    return list(out)


def fuse(function: Callable[..., Any], name: str | None = None) -> Fused:
    """Turns `function`, which is called with expressions, into fused kernels on arrays.

        k = tenon.fuse(lambda x, g: x * tenon.silu(g))
        y = k(x, g)              # NumPy, PyTorch, CuPy or JAX arrays; y is of the first array's kind
        k(x, g, out=y)           # into an existing array
        print(k.explain())       # which launches, and what fills their holes

    Results have the operands' type (f32 if those differ); arithmetic in between is f32. A function with matrix
    products, convolutions or attention takes at least one launch for each of them. Arguments may be given by position
    or keyword; arrays that the function uses besides its arguments are read too. torch.compile sees a call as one
    operator.
    """
    return Fused(function, name)


def _forget() -> None:
    for fused in list(_ALL.values()):
        fused._cache.clear()
        fused._last = None


os.register_at_fork(after_in_child=_forget)  # a child has none of the parent's device threads
