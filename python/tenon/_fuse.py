"""`tenon.fuse`: turns a Python function over expressions into kernels on the caller's arrays."""

from __future__ import annotations

import copy
import functools
import importlib
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


class _Trace:
    """What a function returned when it was called with expressions. Its plans, the form of its results and its
    gradients are all of one trace: a later call of the function might return something else."""

    def __init__(self, names: Sequence[str], given: list[Expr], structure: Any, values: list[Expr], tracer: Any) -> None:
        self.names = names  # of the arguments
        self.given = given  # the arguments
        self.structure = structure  # kind and keys of the results
        self.values = values
        self.results = [(tuple(v.shape), v.dtype or "f32") for v in values]  # shape and type of every array written
        self.captured: list[tuple[str, Any]] = list(tracer.captured)  # arrays used besides the arguments, with names
        self.leaves: list[Expr] = list(tracer.leaves.values())  # those arrays as expressions
        self._backwards: dict[Any, Fused] = {}  # by arguments and results of the gradients

    def changed(self) -> str | None:
        """The name of a captured array that has another type or shape since."""
        for (name, array), leaf in zip(self.captured, self.leaves):
            now = _core.read_array(array, name)
            if (now.dtype, tuple(now.shape)) != (leaf.dtype, tuple(leaf.shape)):
                return name
        return None

    def backward(self, name: str, wrt: tuple[int, ...], seeded: tuple[int, ...]) -> Fused:
        """A function of the arguments and of gradients of the results, among those written, that `seeded` names. It
        returns a list: the gradients of the arguments that `wrt` names."""
        key = (wrt, seeded)
        if key not in self._backwards:
            from ._grad import gradients

            graph, seeds = self.values[0]._graph, []
            taken = {*self.names, *(n for n, _ in self.captured)}
            names = [_apart(f"gradient.{i}", taken) for i in seeded]
            for n, (shape, dtype) in zip(names, (self.results[i] for i in seeded)):
                seeds.append(Expr(graph.input(n, dtype, list(shape)), graph, dtype))
            found = gradients([self.values[i] for i in seeded], seeds, [self.given[i] for i in wrt])
            kind, keys, values = _flatten(found)
            tracer = Tracer(graph, [])
            for (n, array), leaf in zip(self.captured, self.leaves):
                if _reads(values, leaf, _apart(n, taken)):
                    tracer.captured.append((n, array))
                    tracer.leaves[id(array)] = leaf
            trace = _Trace([*self.names, *names], [*self.given, *seeds], (kind, keys), values, tracer)
            self._backwards[key] = _Backward(name, trace)
        return self._backwards[key]


class _Planned:
    """A function's plan for one set of shapes, types and strides."""

    def __init__(self, program: Any, trace: _Trace, key: bytes) -> None:
        self.program = program
        self.trace = trace
        self.key = key  # shapes, types and strides of arguments and captured arrays


def _reads(values: Sequence[Expr], leaf: Expr, other: str) -> bool:
    """Whether an array takes part in these values: they change with it. `other`: a name that no input has."""
    by = leaf._graph.input(other, leaf.dtype, list(leaf.shape))
    before = [v._value for v in values]
    return any(a != b for a, b in zip(before, _core.substitute(before, [leaf._value], [by])))


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


def _stand_for_others(values: Sequence[Any]) -> bool:
    """Whether tensors among these are only seen through PyTorch's operators: a dispatch mode watches or replaces every
    call, or a tensor's class does so for its own, and such tensors may have no memory."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    watched, plain = torch._C._len_torch_dispatch_stack() > 0, torch.Tensor.__torch_dispatch__
    return any(isinstance(v, torch.Tensor) and (watched or type(v).__torch_dispatch__ is not plain) for v in values)


def _note_written(arrays: Sequence[Any]) -> None:
    """Tells autograd which tensors were written to."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.autograd.graph.increment_version([a for a in arrays if isinstance(a, torch.Tensor)])


def signature_of(function: Callable[..., Any], what: str) -> inspect.Signature:
    """The arguments of a function; TypeError for a built-in one that does not say what it takes."""
    try:
        return inspect.signature(function)
    except ValueError:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"{what}: expected a Python function, got {name}, which does not name its arguments") from None


def _found(module: str, name: str) -> Any:
    """What a loaded module has under a name with dots, or None."""
    return functools.reduce(lambda found, part: getattr(found, part, None), name.split("."), sys.modules.get(module))


def _imported(module: str, name: str) -> Any:
    """What a module has under a name with dots: how pickle finds it in another process."""
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


class Fused:
    """A function that runs as fused kernels. Call it with arrays and numbers; `explain` shows its plan.

    The function is traced once for every combination of shapes, types and device (for arrays other than PyTorch's also
    of strides); results and gradients are those of that one trace. Arrays are read in place. Numbers passed as
    arguments are inputs: another number needs no new plan. Numbers inside the function are constants of the plan;
    arrays inside it are those found when tracing, and are read anew by every call.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None, within: Any = None) -> None:
        """`within`: what is called within another fused function, if not `function` itself."""
        if not callable(function):
            raise TypeError(f"fuse: expected a function, got {type(function).__name__}")
        self._function = function
        self._within = within or function
        self._recipe: tuple[Callable[..., Fused], tuple[Any, ...]] = (Fused, (function, name, within))  # of a copy
        self._name = name or getattr(function, "__name__", "fused").replace("<lambda>", "fused")
        self._signature = signature_of(function, "fuse")
        kinds = {p.kind for p in self._signature.parameters.values()}
        plain = kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._plain = list(self._signature.parameters) if plain else None
        self._cache: dict[tuple[tuple[str, ...], bytes], _Planned] = {}
        self._traces: dict[Any, _Trace] = {}  # by shapes, types and device
        self._last: _Planned | None = None
        self._structure: Any = None  # of the last call of PyTorch's operators
        self._compiled: set[Fused] = set()  # gradients that compiled graphs name by their handles
        self._handle = next(_HANDLES)
        self._digits = str(self._handle)  # to a compiler a constant; the number would become a variable of its graph
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

    def _read(self, bound: _Bound) -> Any:
        bound.values = _arrays.plain_numbers(bound.names, tuple(map(_arrays.resolved, bound.values)))
        return _core.Call(self._name, bound.names, bound.values)

    def _evaluate(self, shapes: Sequence[Any], dtypes: Sequence[str], bound: _Bound) -> _Trace:
        """Calls the function with expressions of these shapes and types; a shape of None is a number."""
        graph = _core.Graph()
        given = [
            Expr(graph.scalar(n), graph, "") if s is None else Expr(graph.input(n, d, list(s)), graph, d)
            for n, s, d in zip(bound.names, shapes, dtypes)
        ]
        positional = len(given) - len(bound.keywords)
        tracer = Tracer(graph, bound.names)
        with tracer:
            result = self._function(*given[:positional], **dict(zip(bound.keywords, given[positional:])))
        kind, keys, values = _flatten(result)
        for key, value in zip(keys, values):
            if value._graph is not graph:
                raise UsageError(f"{self._name}: {key} belongs to another traced function", key)
        return _Trace(bound.names, given, (kind, keys), values, tracer)

    def _trace(self, shapes: Sequence[Any], dtypes: Sequence[str], place: Any, bound: _Bound) -> _Trace:
        """The one trace for these shapes and types at a place: a new one only if a captured array has another type or
        shape since."""
        key = (bound.keywords, tuple(shapes), tuple(dtypes), place)
        old = self._traces.get(key)
        if old is not None:
            self._check_captured(old.captured)  # they may require gradients since
            if old.changed() is None:
                return old
        new = self._evaluate(shapes, dtypes, bound)
        if self._traces.get(key) is old:  # else another thread was first
            self._traces[key] = new
            for plan in [k for k, p in list(self._cache.items()) if p.trace is old]:
                self._cache.pop(plan, None)
        self._check_captured(new.captured)
        return self._traces[key]

    def _planned(self, call: Any, bound: _Bound) -> _Planned:
        graph, places = _core.Graph(), range(len(call.names))
        shapes = [None if call.is_scalar(i) else call.input(graph, i).shape for i in places]  # refuses other layouts
        dtypes = ["" if call.is_scalar(i) else call.dtype(i) for i in places]
        place = call.first.device if _arrays.library_of(call.first) == "torch" else call.key
        trace = self._trace(shapes, dtypes, place, bound)
        named: list[Any] = []
        taken = {*call.names, *(name for name, _ in trace.captured)}
        for key, value, (_, dtype) in zip(trace.structure[1], trace.values, trace.results):
            named.append(_core.NamedValue(_apart(key, taken), value.cast(dtype)._value))
        whole = self._with_captured(call, bound, trace.captured)
        return _Planned(_core.Program(self._name, named, whole), trace, whole.key)

    def _with_captured(self, call: Any, bound: _Bound, captured: list[tuple[str, Any]]) -> Any:
        if not captured:
            return call
        self._check_captured(captured)
        names, arrays = zip(*captured)
        return _core.Call(self._name, [*bound.names, *names], (*bound.values, *arrays))

    def _find(self, call: Any, bound: _Bound) -> _Planned:
        key = (bound.keywords, call.key)
        planned = self._cache.get(key)
        if planned is None:
            planned = self._cache[key] = self._planned(call, bound)
        self._last = planned
        return planned

    def _outputs(self, trace: _Trace, like: Any, out: Any) -> list[Any]:
        if out is None:
            return [_arrays.empty_like(like, shape, dtype) for shape, dtype in trace.results]
        given = unpack(trace.structure, out, self._name)
        for key, array in zip(trace.structure[1], given):
            _arrays.check_writable(array, key)
            if _wants_gradients([array]):
                raise UsageError(f"{key}: requires gradients, and writing to it would change them", key)
        return given

    def _run(self, bound: _Bound, out: Any = None, stored: Any = None) -> tuple[list[Any], Any]:
        """The arrays that a call writes, and the form of the function's results. They are new, or those of
        `out`, which has that form, or `stored`."""
        call = self._read(bound)
        planned = self._find(call, bound)
        whole = self._with_captured(call, bound, planned.trace.captured)
        if whole.key != planned.key:  # a captured array has another type, shape or strides since
            self._cache.pop((bound.keywords, call.key), None)
            planned = self._find(call, bound)
            whole = self._with_captured(call, bound, planned.trace.captured)
        like = call.first
        arrays = list(stored) if stored is not None else self._outputs(planned.trace, like, out)
        waits = _arrays.wait_for_jax((*bound.values, *(a for _, a in planned.trace.captured)))
        planned.program.run(whole, arrays)
        if waits:
            planned.program.wait()
        if out is not None or stored is not None:
            _note_written(arrays)
        return [_arrays.finish(like, a) for a in arrays], planned.trace.structure

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Runs on `args`; results are new arrays of the first array's library and device, or `out`. If PyTorch records
        gradients of an argument, they flow through the call. Within another fused function it is part of that one."""
        if out is None and Tracer.current() is not None:
            # Arrays that the function around this one found outside are its inputs, too.
            args, kwargs = tuple(map(_captured, args)), {n: _captured(v) for n, v in kwargs.items()}
            if any(isinstance(v, Expr) for v in (*args, *kwargs.values())):
                return self._within(*args, **kwargs)
        given = (*args, *kwargs.values())
        if _torch_compiles() or _wants_gradients(given) or _stand_for_others(given):
            from . import _torch

            arrays = _torch.call_fused(self._digits, args, kwargs, out)
            if _torch_compiles():
                structure = _torch.compiled_structure(self._digits, len(arrays))
            else:
                structure = _torch.structure_of(self, args, kwargs)
        else:
            arrays, structure = self._run(self._bind(args, kwargs), out)
        return pack(structure, arrays) if out is None else out

    def __reduce__(self) -> Any:
        """For pickle: a decorated function is what its module has under its name, as pickle does with functions; others
        are made anew, without plans."""
        place = (getattr(self._function, n, None) for n in ("__module__", "__qualname__"))
        module, name = (part if isinstance(part, str) else "" for part in place)
        return (_imported, (module, name)) if _found(module, name) is self else self._recipe

    def __copy__(self) -> Fused:
        """Copies are functions of their own, without plans."""
        make, given = self._recipe
        return make(*given)

    def __deepcopy__(self, memo: dict[int, Any]) -> Fused:
        make, given = self._recipe
        return make(*copy.deepcopy(given, memo))  # a method is that of the copied object

    def _planned_for(self, args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> _Planned:
        if args or kwargs:
            bound = self._bind(args, kwargs)
            return self._find(self._read(bound), bound)
        if self._last is None:
            raise UsageError(f"{what}: {self._name} has not been called yet; pass its arguments to {what}", what)
        return self._last

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """The plan for these arguments, or for the last call: every launch, what fills its holes, what stayed apart."""
        return self._planned_for(args, kwargs, "explain").program.explain()

    def plan(self, *args: Any, **kwargs: Any) -> str:
        """The plan as text that the engine can parse."""
        return self._planned_for(args, kwargs, "plan").program.plan()

    def launches(self, *args: Any, **kwargs: Any) -> int:
        """Number of launches in one call."""
        return self._planned_for(args, kwargs, "launches").program.launches

    def __repr__(self) -> str:
        return f"<fused {self._name}, {len(self._cache)} plan(s)>"


class _Backward(Fused):
    """Gradients of a function's trace, which is the only one that they have. Its arguments are those of the call, which
    were read before, and gradients of results in whatever layout PyTorch has made them."""

    def __init__(self, name: str, trace: _Trace) -> None:
        super().__init__(lambda *given: trace.values, name)
        self._only = trace

    def __copy__(self) -> _Backward:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> _Backward:
        return self

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Bound:
        return _Bound(self._only.names, args, ())

    def _read(self, bound: _Bound) -> Any:
        bound.values = tuple(map(_arrays.as_view, bound.values))
        return super()._read(bound)

    def _trace(self, shapes: Sequence[Any], dtypes: Sequence[str], place: Any, bound: _Bound) -> _Trace:
        self._check_captured(self._only.captured)
        if name := self._only.changed():
            raise UsageError(f"{name}: expected the type and shape of the forward pass", name)
        return self._only


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
