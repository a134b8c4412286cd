"""PyTorch's operators `tenon::lion_step`, `tenon::lion_foreach` and `tenon::fused`: schemas that declare what is
written, fake implementations for the compiler, and real ones for CPU and CUDA tensors on the current stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch

from . import _arrays, _core, _dtypes, _fuse
from ._checks import real
from ._errors import UsageError
from .lion import Options, as_float, run_lists


def _increment_version(arrays: list[Any]) -> None:
    """Tells autograd that tensors were written to. Arrays of other libraries may be among them."""
    try:
        torch.autograd.graph.increment_version(arrays)
    except (TypeError, RuntimeError):
        torch.autograd.graph.increment_version([a for a in arrays if isinstance(a, torch.Tensor)])


_OPTIONS = (
    'float beta1, float beta2, float weight_decay, float eps=0.0, bool maximize=False, str non_finite="propagate"'
)
_library = torch.library.Library("tenon", "DEF")
# One overload per kind of learning rate: as a tensor it can change without recompiling.
_RATES = {"": "float", ".tensor_lr": "Tensor"}
for _overload, _rate in _RATES.items():
    _library.define(
        f"lion_step{_overload}(Tensor(a!) param, Tensor(b!) exp_avg, Tensor grad, {_rate} lr, "
        + _OPTIONS
        + ", Tensor(c!)? master=None) -> ()"
    )
    _library.define(
        f"lion_foreach{_overload}(Tensor(a!)[] params, Tensor(b!)[] exp_avgs, Tensor[] grads, {_rate} lr, "
        + _OPTIONS
        + ", Tensor(c!)[]? masters=None) -> ()"
    )


# What steps of several lists that follow one another may refuse; nothing is written.
_library.define("lion_check(Tensor[] params, Tensor[] exp_avgs, Tensor[] grads, Tensor?[] masters) -> ()")


def _resolved(grads: Sequence[Any]) -> Sequence[Any]:
    """The gradients, as copies where memory holds the negated numbers. Lists are long: one call each, without a loop."""
    try:
        if not any(map(torch.Tensor.is_neg, grads)):
            return grads
    except TypeError:  # arrays of other libraries are among them
        pass
    return [_arrays.resolved(g) for g in grads]


def _step(
    param: Any,
    exp_avg: Any,
    grad: Any,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float = 0.0,
    maximize: bool = False,
    non_finite: str = "propagate",
    master: Optional[Any] = None,
) -> None:
    masters = None if master is None else [master]
    options = Options(lr, beta1, beta2, weight_decay, maximize, non_finite)
    run_lists([param], [exp_avg], _resolved([grad]), masters, options)
    _increment_version([param, exp_avg, *(masters or ())])


def _foreach(
    params: Sequence[Any],
    exp_avgs: Sequence[Any],
    grads: Sequence[Any],
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float = 0.0,
    maximize: bool = False,
    non_finite: str = "propagate",
    masters: Optional[Sequence[Any]] = None,
) -> None:
    options = Options(lr, beta1, beta2, weight_decay, maximize, non_finite)
    run_lists(params, exp_avgs, _resolved(grads), masters, options)
    _increment_version([*params, *exp_avgs, *(masters or ())])


def _check(params: Sequence[Any], exp_avgs: Sequence[Any], grads: Sequence[Any], masters: Sequence[Any]) -> None:
    _core.check_lion(params, exp_avgs, _resolved(grads), masters)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """The compiler's view of an operator that only writes to its arguments."""


for _overload in _RATES:
    for _name, _function in (("lion_step", _step), ("lion_foreach", _foreach)):
        for _key in ("CPU", "CUDA"):
            _library.impl(_name + _overload, _function, _key)
        torch.library.register_fake(f"tenon::{_name}{_overload}", _nothing)
for _key in ("CPU", "CUDA"):
    _library.impl("lion_check", _check, _key)
torch.library.register_fake("tenon::lion_check", _nothing)


def _number(value: Any, name: str) -> Any:
    """A number in the operators' form; a learning rate that is a tensor and symbols of a compiler are left alone."""
    if name == "lr" and isinstance(value, torch.Tensor):
        return value.detach()
    return value if isinstance(value, (float, torch.SymFloat)) else as_float(value, name)


def _in_schema_order(options: Options, eps: float) -> tuple[Any, ...]:
    return (
        _number(options.lr, "lr"),
        _number(options.beta1, "beta1"),
        _number(options.beta2, "beta2"),
        _number(options.weight_decay, "weight_decay"),
        eps,
        options.maximize,
        options.non_finite,
    )


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def eager() -> bool:
    """Whether neither a compiler nor a dispatch mode sees what runs, so that tensors have values."""
    return not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() == 0


def _direct(tensor: Any) -> bool:
    """Whether PyTorch's dispatcher would do nothing but call us: no compiler, no subclass, no dispatch mode, no
    torch.func transform."""
    return type(tensor) in _PLAIN and eager() and not torch._C._are_functorch_transforms_active()


def lion_step(param: Any, exp_avg: Any, grad: Any, options: Options, eps: float, master: Any) -> None:
    """tenon.lion_step on tensors. Parameters that require gradients are written as under torch.no_grad()."""
    given = _in_schema_order(options, eps)
    if _direct(param):
        _step(param, exp_avg, grad, *given, master)
        return
    with torch.no_grad():
        torch.ops.tenon.lion_step(param, exp_avg, grad, *given, master)


def lion_foreach(
    params: Sequence[Any],
    exp_avgs: Sequence[Any],
    grads: Sequence[Any],
    options: Options,
    eps: float,
    masters: Sequence[Any] | None,
) -> None:
    """tenon.lion_foreach on tensors."""
    given = _in_schema_order(options, eps)
    if _direct(params[0]):
        _foreach(params, exp_avgs, grads, *given, masters)
        return
    with torch.no_grad():
        torch.ops.tenon.lion_foreach(
            list(params), list(exp_avgs), list(grads), *given, None if masters is None else list(masters)
        )


Part = tuple[int, bool, Options]


def is_direct(tensors: Sequence[Any]) -> bool:
    """Whether PyTorch's dispatcher would do nothing but call us, for all of these tensors."""
    return len(tensors) > 0 and _direct(tensors[0]) and set(map(type, tensors)) <= set(_PLAIN)


def lion_steps(
    params: list[Any], exp_avgs: list[Any], grads: list[Any], masters: list[Any], parts: Sequence[Part]
) -> None:
    """Steps of consecutive parts of the lists in one call, which checks all of them before the first is written. For
    tensors that are direct. `masters` has None for those without. A part: (count, whether in one launch rather than
    one for each tensor, options)."""
    given = [
        (count, together, (*map(as_float, rates, Options._fields), bool(maximize), non_finite))
        for count, together, (*rates, maximize, non_finite) in parts
    ]
    _core.lion_steps(params, exp_avgs, _resolved(grads), masters, given)
    _increment_version([*params, *exp_avgs, *(m for m in masters if m is not None)])


def check_lion(params: list[Any], exp_avgs: list[Any], grads: list[Any], masters: list[Any]) -> None:
    """All checks of the steps that these tensors, which are not direct, will take in several calls. `masters` has None
    for those without."""
    torch.ops.tenon.lion_check(params, exp_avgs, grads, masters)


# ---- tenon.fuse -----------------------------------------------------------------------------------------------------

_library.define("fused(int handle, Tensor[] tensors, float[] numbers, str kinds, str[] keywords) -> Tensor[]")
_library.define(
    "fused_out(int handle, Tensor[] tensors, float[] numbers, str kinds, str[] keywords, Tensor(a!)[] out) -> ()"
)


def _bound(handle: int, tensors: Sequence[Any], floats: Sequence[float], kinds: str, keywords: Sequence[str]) -> Any:
    """The call's arguments in order: `kinds` has a t per tensor and an n per number."""
    rest = {"t": (t.detach() for t in tensors), "n": iter(floats)}
    values = tuple(next(rest[kind]) for kind in kinds)
    function, positional = _fuse.by_handle(handle), len(values) - len(keywords)
    return function, function._bind(values[:positional], dict(zip(keywords, values[positional:])))


def _fused(*call: Any) -> list[Any]:
    function, bound = _bound(*call)
    with torch.no_grad():
        return function._run(bound)[0]


def _fused_out(*call: Any) -> None:
    function, bound = _bound(*call[:-1])
    with torch.no_grad():
        function._run(bound, stored=call[-1])


def _trace_of(function: Any, bound: Any) -> Any:
    """The trace of a call, for compilers before there are arrays."""
    shapes = [tuple(int(n) for n in v.shape) if isinstance(v, torch.Tensor) else None for v in bound.values]
    dtypes = [_dtypes.name_of(v.dtype) if isinstance(v, torch.Tensor) else "" for v in bound.values]
    device = next(v.device for v in bound.values if isinstance(v, torch.Tensor))
    trace = function._trace(shapes, dtypes, device, bound)
    function._structure = trace.structure
    return trace


def structure_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The form of the results of a call."""
    return _trace_of(function, function._bind(args, kwargs)).structure


@torch.compiler.assume_constant_result
def _part(digits: str, index: int) -> str:
    """The kind of the results (-1), or the key of one, of the call that a compiler has just traced."""
    kind, keys = _fuse.by_handle(int(digits))._structure
    return ("" if kind is None else kind.__name__) if index < 0 else keys[index]


def compiled_structure(digits: str, count: int) -> Any:
    """The form of the `count` results of the call that a compiler has just traced; its thread is alone. Read as
    strings, which it takes for constants: an attribute would be that of an earlier call."""
    kind = {"": None, "list": list, "tuple": tuple, "dict": dict}[_part(digits, -1)]
    return kind, [_part(digits, i) for i in range(count)]


def _versions(captured: Sequence[tuple[str, Any]]) -> dict[str, int]:
    """How often tensors were written to, by name."""
    tensors = [(n, a) for n, a in captured if isinstance(a, torch.Tensor) and not a.is_inference()]
    return {n: a._version for n, a in tensors}


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    function, bound = _bound(*inputs)
    trace = _trace_of(function, bound)
    ctx.call = (function, trace, *inputs[2:])  # keeps the function alive
    ctx.versions = _versions(trace.captured)
    ctx.set_materialize_grads(False)  # a result that is not used has no gradient, rather than 0 times its slope
    ctx.save_for_backward(*inputs[1])


def _check_unwritten(captured: Sequence[tuple[str, Any]], versions: dict[str, int]) -> None:
    for name, now in _versions(captured).items():
        if now != versions.get(name, now):
            raise UsageError(
                f"{name}: expected its values of the forward pass, but it was modified by an inplace operation since",
                name,
            )


def _backward(ctx: Any, seeds: Sequence[Any]) -> Any:
    """Gradients of the tensors that need them: another fused function, of the call's arguments and the results'
    gradients."""
    function, trace, floats, kinds, keywords = ctx.call
    tensors = list(ctx.saved_tensors)
    needed = [bool(n) for n in ctx.needs_input_grad[1]]
    places = [i for i, kind in enumerate(kinds) if kind == "t"]
    given = tuple(i for i, s in enumerate(seeds) if s is not None and s.is_floating_point())
    grads: list[Any] = [None] * len(tensors)
    if given and any(needed):
        wrt = tuple(p for p, n in zip(places, needed) if n)
        back = trace.backward(f"{function._name}.backward", wrt, given)
        _check_unwritten(back._only.captured, ctx.versions)
        if not eager():
            function._compiled.add(back)
        call = (back._handle, tensors + [seeds[i] for i in given], floats, kinds + "t" * len(given), [])
        found = iter(torch.ops.tenon.fused(*call))
        grads = [next(found) if n else None for n in needed]
    # PyTorch treats anything but a list of tensors as one leaf, and an empty list as a list of tensors.
    return None, grads, None if floats else [], None, None if keywords else []


def _fake_fused(*call: Any) -> list[Any]:
    results = _trace_of(*_bound(*call)).results
    like = call[1][0]
    return [like.new_empty(shape, dtype=getattr(torch, _dtypes.torch_name(dtype))) for shape, dtype in results]


for _key in ("CPU", "CUDA"):
    _library.impl("fused", _fused, _key)
    _library.impl("fused_out", _fused_out, _key)
torch.library.register_fake("tenon::fused", _fake_fused)
torch.library.register_fake("tenon::fused_out", _nothing)
torch.library.register_autograd("tenon::fused", _backward, setup_context=_save, lib=_library)


def _check_tensor(name: str, tensor: Any, device: Any) -> None:
    """What the dispatcher reports without a name, or does not see: with one tensor on `meta` it computes nothing."""
    if tensor.layout is not torch.strided:
        raise UsageError(f"{name}: expected a dense tensor, got the layout {tensor.layout}", name)
    if tensor.device != device:
        raise UsageError(f"{name}: expected a tensor on {device} like the first one, got one on {tensor.device}", name)


@torch.compiler.allow_in_graph
def call_fused(digits: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> tuple[Any, ...]:
    """A call of a fused function as one operator, for autograd and torch.compile. Returns the arrays that it writes.
    `digits`: the function's handle."""
    handle = int(digits)
    function = _fuse.by_handle(handle)
    bound = function._bind(args, kwargs)
    bound.values = _arrays.plain_numbers(bound.names, bound.values)
    if out is not None and _fuse._wants_gradients(bound.values):
        raise UsageError("out: cannot be used while gradients are recorded; call under torch.no_grad()", "out")
    tensors = [v for v in bound.values if isinstance(v, torch.Tensor)]
    if not tensors:
        raise UsageError(f"{function._name}: expected at least one tensor among the arguments", function._name)
    for name, value in zip(bound.names, bound.values):
        if not isinstance(value, (torch.Tensor, int, float, torch.SymInt, torch.SymFloat)) or isinstance(value, bool):
            raise TypeError(f"{name}: expected a tensor or a number beside tensors, got {type(value).__name__}")
        if isinstance(value, torch.Tensor):
            _check_tensor(name, value, tensors[0].device)
    floats = [
        real(v, n) if isinstance(v, (int, float)) else float(v)  # the latter: a compiler's symbols
        for n, v in zip(bound.names, bound.values)
        if not isinstance(v, torch.Tensor)
    ]
    kinds = "".join("t" if isinstance(v, torch.Tensor) else "n" for v in bound.values)
    call = (handle, tensors, floats, kinds, list(bound.keywords))
    structure = _trace_of(function, bound).structure
    if out is None:
        return tuple(torch.ops.tenon.fused(*call))
    written = _fuse.unpack(structure, out, function._name)
    torch.ops.tenon.fused_out(*call, written)
    return tuple(written)
