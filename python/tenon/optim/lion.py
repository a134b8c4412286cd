"""Lion as a PyTorch optimizer: one launch for all parameters of a group with the same device and element types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch

from .. import _checks, _torch
from .._errors import NumericError, UsageError
from ..lion import Options

_NON_FINITE = ("propagate", "skip", "raise")
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_STATE = ("exp_avg", "master")
_OTHERS = re.compile("exp_avg_|max_exp_avg_sq$|momentum_buffer$")  # AdamW's, Adafactor's and SGD's, of any shape
_ARRAY = re.compile(r"\b(param|exp_avg|grad|master)\b(?:\[(\d+)\])?")


def _number(value: Any) -> float:
    """The value as a float; NaN, which every check refuses, if it is not a single number."""
    try:
        return float(value)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        return float("nan")


def _are_betas(values: Any) -> bool:
    values = _checks.pair(values)
    return isinstance(values, (tuple, list)) and len(values) == 2 and all(0.0 <= _number(b) < 1.0 for b in values)


def _check(name: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise UsageError(f"{name}: expected {expected}, got {value!r}", name)


def _check_options(group: dict[str, Any], where: str = "") -> None:
    lr, weight_decay, non_finite = group["lr"], group["weight_decay"], group["non_finite"]
    _check(f"{where}lr", lr, 0.0 <= _number(lr) < float("inf"), "a finite number of at least 0")
    _check(f"{where}betas", group["betas"], _are_betas(group["betas"]), "two numbers in [0, 1)")
    good_decay = 0.0 <= _number(weight_decay) < float("inf")
    _check(f"{where}weight_decay", weight_decay, good_decay, "a finite number of at least 0")
    _check(f"{where}non_finite", non_finite, non_finite in _NON_FINITE, f"one of {', '.join(_NON_FINITE)}")
    _check(
        f"{where}non_finite",
        non_finite,
        not (group["capturable"] and non_finite == "raise"),
        '"propagate" or "skip" in a capturable optimizer',
    )


def _options(group: dict[str, Any], non_finite: str) -> Options:
    """What the engine takes of them."""
    beta1, beta2 = group["betas"]
    return Options(group["lr"], beta1, beta2, group["weight_decay"], group["maximize"], non_finite)


def _version(tensor: Any) -> Optional[int]:
    """Changes with every write that PyTorch knows of; None where it counts none."""
    return None if tensor.is_inference() else tensor._version


def _name_of(group: dict[str, Any], index: int, place: int) -> str:
    names = group.get("param_names")
    return names[place] if names else f"param_groups[{index}].params[{place}]"


class _Launch(NamedTuple):
    """Tensors of a group that step together; `masters` is empty without master weights."""

    group: dict[str, Any]
    index: int  # of the group
    places: list[int]  # in the group's params
    params: list[Any]
    exp_avgs: list[Any]
    grads: list[Any]
    masters: list[Any]

    def name(self, role: str, i: int) -> str:
        """Name of an array of the launch that users know."""
        name = _name_of(self.group, self.index, self.places[i])
        return name if role == "param" else f"{name}.{role}"


def _named(error: Union[NumericError, UsageError], name: Callable[[str, int], str]) -> Union[NumericError, UsageError]:
    """The engine's error with arrays named as users know them: `name` takes a role and a place in the lists."""

    def known(text: str) -> str:
        return _ARRAY.sub(lambda m: name(m[1], int(m[2] or 0)), text)

    return type(error)(known(str(error)), known(error.where), error.hint)


def _check_types(launch: _Launch) -> None:
    for role, tensors in (("param", launch.params), ("grad", launch.grads)):
        for i, tensor in enumerate(tensors):
            if tensor.dtype not in _TYPES:
                name = launch.name(role, i)
                raise UsageError(f"{name}: expected f32, bf16 or f16, got {tensor.dtype}", name)


class _Lists(NamedTuple):
    """The tensors of several launches, one launch after the other; `masters` has None for those without."""

    launches: Sequence[_Launch]
    params: list[Any]
    exp_avgs: list[Any]
    grads: list[Any]
    masters: list[Any]

    @classmethod
    def of(cls, launches: Sequence[_Launch]) -> _Lists:
        lists = cls(launches, [], [], [], [])
        for launch in launches:
            lists.params.extend(launch.params)
            lists.exp_avgs.extend(launch.exp_avgs)
            lists.grads.extend(launch.grads)
            lists.masters.extend(launch.masters or [None] * len(launch.params))
        return lists

    def name(self, role: str, i: int) -> str:
        """Name of an array of the lists that users know."""
        for launch in self.launches:
            if i < len(launch.params):
                return launch.name(role, i)
            i -= len(launch.params)
        raise IndexError(role)


def _step_together(lists: _Lists) -> None:
    """All launches in one call, which refuses what it would refuse in any of them before the first one writes."""
    parts = [
        (len(of.params), of.group["foreach"] is not False, _options(of.group, of.group["non_finite"]))
        for of in lists.launches
    ]
    try:
        _torch.lion_steps(lists.params, lists.exp_avgs, lists.grads, lists.masters, parts)
    except (NumericError, UsageError) as e:
        raise _named(e, lists.name) from None


def _check_together(lists: _Lists) -> None:
    """What the engine would refuse in one launch, or in two that share memory, before the first of them writes."""
    try:
        _torch.check_lion(lists.params, lists.exp_avgs, lists.grads, lists.masters)
    except UsageError as e:
        raise _named(e, lists.name) from None


def _refuse_non_finite(launch: _Launch) -> None:
    for i, finite in enumerate(torch.stack([torch.isfinite(g).all().cpu() for g in launch.grads]).tolist()):
        if not finite:
            name = launch.name("grad", i)
            raise NumericError(f"{name}: is not finite; nothing was written", name)


class Lion(torch.optim.Optimizer):
    """Lion with decoupled weight decay (Chen et al. 2023).

    params: tensors, dicts of groups, or named parameters, as in all of torch.optim.
    lr: learning rate, typically a third to a tenth of AdamW's, a number or a tensor of one element (which can change
        without recompiling under torch.compile; one on a GPU makes every step wait for it).
    betas: (beta1, beta2) in [0, 1).
    weight_decay: decoupled; typically three to ten times AdamW's.
    eps: accepted for compatibility, and ignored.
    maximize: steps along the gradient instead of against it.
    foreach: False steps one tensor at a time; True and None take each group's tensors in one launch.
    capturable: steps may be captured in a CUDA graph. Learning rate and betas are then fixed at capture, and
        non_finite="raise", which waits for the device, is refused.
    master_weights: bf16 and f16 parameters keep an f32 copy that takes the steps; without it a step smaller than half
        the distance between neighbouring values is lost. Where something else changed a parameter (a module's
        load_state_dict; not through `.data`), the copy follows it at the next step; a compiled step, which cannot see
        whether something did, compares them every time. A parameter that has become f32 gives up its copy.
    non_finite: effect of a NaN or an infinity in a gradient: "propagate", "skip" (leaves its elements unchanged), or
        "raise" (NumericError names the tensor, nothing is written; needs another pass over the gradients).
    fused, differentiable: features of torch.optim's own optimizers; refused unless left at None and False.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-4,
        betas: Sequence[float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        eps: float = 0.0,
        maximize: bool = False,
        foreach: Optional[bool] = None,
        capturable: bool = False,
        master_weights: bool = False,
        non_finite: str = "propagate",
        differentiable: bool = False,
        fused: Optional[bool] = None,
    ) -> None:
        _check("fused", fused, not fused, "None or False: every step is one launch already (see foreach)")
        _check("differentiable", differentiable, not differentiable, "False: no gradient flows through a step")
        betas = _checks.pair(betas)
        defaults = dict(
            lr=lr,
            betas=betas,
            weight_decay=weight_decay,
            eps=eps,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            master_weights=master_weights,
            non_finite=non_finite,
        )
        _check_options(defaults)
        self._seen: dict[Any, Optional[int]] = {}
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._seen = {}  # versions of parameters with masters after their last step
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch.optim, except that the f32 copies of parameters stay f32. The state of another library's Lion is
        taken too; UsageError for that of another optimizer, and nothing is loaded then."""
        loaded: dict[str, Any] = {}  # as other hooks left it; they may order or rename its parameters

        def look(_: Any, given: dict[str, Any]) -> None:
            self._refuse_foreign(given)
            loaded.update(given)

        hooks = (
            self.register_load_state_dict_pre_hook(look),
            self.register_load_state_dict_post_hook(lambda _: self._restore_masters(loaded), prepend=True),
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _refuse_foreign(self, given: dict[str, Any]) -> None:
        """Groups that this class did not save must have Lion's state: its exp_avg, and no other moments. What users
        keep beside their own is theirs."""
        for index, (group, saved) in enumerate(zip(self.param_groups, given["param_groups"])):
            if "non_finite" in saved:
                continue
            for place, (param, key) in enumerate(zip(group["params"], saved["params"])):
                state = given["state"].get(key, {})
                moments = [n for n, kept in state.items() if torch.is_tensor(kept) and kept.shape == param.shape]
                moments = [n for n in moments if n not in _STATE and param.ndim]  # without axes: perhaps a step's count
                moments += [n for n in state if _OTHERS.match(str(n))]
                if state and (moments or not torch.is_tensor(state.get("exp_avg"))):
                    name, got = _name_of(group, index, place), ", ".join(map(str, state))
                    raise UsageError(f"{name}: expected Lion's state, exp_avg, got another optimizer's: {got}", name)

    def _restore_masters(self, loaded: dict[str, Any]) -> None:
        """Takes the f32 copies of parameters again, which torch.optim rounded to the parameters' types."""
        saved = [p for group in loaded["param_groups"] for p in group["params"]]
        ours = [p for group in self.param_groups for p in group["params"]]
        for key, param in zip(saved, ours):
            kept = loaded["state"].get(key, {}).get("master")
            if kept is not None:
                self.state[param]["master"] = kept.detach().to(device=param.device, dtype=torch.float32, copy=True)

    def _state_of(self, index: int, group: dict[str, Any], place: int) -> dict[str, Any]:
        param = group["params"][place]
        state = self.state[param]
        if "exp_avg" not in state:
            state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        if "master" in state or group["master_weights"]:
            if param.dtype == torch.float32:
                state.pop("master", None)  # from when it was of another type
            elif "master" not in state:
                state["master"] = param.detach().to(torch.float32, memory_format=torch.preserve_format, copy=True)
        for entry in _STATE:
            kept = state.get(entry)
            if kept is not None and (kept.stride() != param.stride() or kept.numel() != param.numel()):
                where = f"{_name_of(group, index, place)}.{entry}"
                state[entry] = self._like_parameter(param, kept, where)
        # A compiler would make the comparison a constant, so that a compiled step follows every time.
        if "master" in state and not (_torch.eager() and self._seen.get(param) == _version(param)):
            self._follow_parameter(param, state["master"])
        return state

    @staticmethod
    def _follow_parameter(param: Any, master: Any) -> None:
        """Where others changed the parameter, as a module's load_state_dict does, its copy must not undo that."""
        same = master.to(param.dtype) == param
        master.copy_(torch.where(same, master, param.to(torch.float32)))

    @staticmethod
    def _like_parameter(param: Any, kept: Any, where: str) -> Any:
        """Elements must be in the parameter's order, which `to(memory_format=..)` and a loaded state change."""
        if kept.shape != param.shape:
            shapes = f"{tuple(param.shape)}, got {tuple(kept.shape)}"
            raise UsageError(f"{where}: expected the parameter's shape, {shapes}", where)
        return torch.empty_like(param, dtype=kept.dtype).copy_(kept)

    @staticmethod
    def _grad_of(index: int, group: dict[str, Any], place: int) -> Any:
        param = group["params"][place]
        grad = param.grad
        if grad.is_sparse:
            where = f"{_name_of(group, index, place)}.grad"
            raise UsageError(f"{where}: expected a dense gradient, got a sparse one", where)
        if grad.stride() != param.stride():  # elements must be in the parameter's order
            grad = torch.empty_like(param).copy_(grad)
        return grad

    def _collect(self, index: int, group: dict[str, Any]) -> Iterable[_Launch]:
        plain: tuple[list[Any], ...] = ([], [], [], [], [])
        with_master: tuple[list[Any], ...] = ([], [], [], [], [])
        for place, param in enumerate(group["params"]):
            if param.grad is None:
                continue
            state = self._state_of(index, group, place)
            lists = with_master if "master" in state else plain
            lists[0].append(place)
            lists[1].append(param)
            lists[2].append(state["exp_avg"])
            lists[3].append(self._grad_of(index, group, place))
            if "master" in state:
                lists[4].append(state["master"])
        return [_Launch(group, index, *lists) for lists in (plain, with_master) if lists[0]]

    def _run(self, launch: _Launch, non_finite: str) -> None:
        group = launch.group
        options = (_options(group, non_finite), group["eps"])
        lists = (launch.params, launch.exp_avgs, launch.grads)
        first = 0
        try:
            if group["foreach"] is not False:
                _torch.lion_foreach(*lists, *options, launch.masters or None)
            else:
                for first, tensors in enumerate(zip(*lists)):
                    _torch.lion_step(*tensors, *options, launch.masters[first] if launch.masters else None)
        except (NumericError, UsageError) as e:
            raise _named(e, lambda role, at: launch.name(role, first + at)) from None

    def _run_apart(self, launches: Sequence[_Launch]) -> None:
        """One call for each launch, or for each tensor, as PyTorch's dispatcher has to see them."""
        apart = len(launches) > 1 or any(launch.group["foreach"] is False for launch in launches)
        if apart:  # a single launch looks before it writes
            for launch in launches:
                _check_types(launch)
            if _torch.eager():  # a compiler would drop what writes nothing
                _check_together(_Lists.of(launches))
            for launch in launches:
                if launch.group["non_finite"] == "raise":
                    _refuse_non_finite(launch)
        for launch in launches:
            policy = launch.group["non_finite"]
            self._run(launch, "propagate" if apart and policy == "raise" else policy)

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step of every parameter that has a gradient. Returns the result of `closure`, which is called first.
        UsageError names a group whose options the constructor would refuse, or a parameter that is not f32, bf16 or
        f16, has gaps, shares memory with another or has a state of another shape; nothing is written then."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if _torch.eager():  # a compiler would make every value a constant
            for i, group in enumerate(self.param_groups):
                _check_options(group, f"param_groups[{i}].")
        launches = [launch for i, group in enumerate(self.param_groups) for launch in self._collect(i, group)]
        if _torch.is_direct([p for launch in launches for p in launch.params]):
            _step_together(_Lists.of(launches))
        else:
            self._run_apart(launches)
        if _torch.eager():
            for launch in launches:
                if launch.masters:
                    self._seen.update((param, _version(param)) for param in launch.params)
        return loss
