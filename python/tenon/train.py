"""Training with a loss written as a function over expressions, run by the engine's own steps; and the problems that the
embedded language model was trained on and can be trained on further."""

from __future__ import annotations

import json
import math
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _arrays, _checks, _core
from ._errors import ModelError, UsageError, renamed
from ._expr import Expr, Tracer

_BATCH = "batch."  # prefix of a batch's names in a plan, next to the parameters' names


def _betas(betas: Any) -> tuple[float, float]:
    two = _checks.pair(betas)
    if not isinstance(two, (tuple, list)) or len(two) != 2:
        raise UsageError(f"betas: expected two numbers, got {betas!r}", "betas")
    first, second = (_checks.real(b, "betas") for b in two)
    if not (0 <= first < 1 and 0 <= second < 1):
        raise UsageError(f"betas: expected numbers from 0 to below 1, got {betas!r}", "betas")
    return first, second


def _named(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what}: expected a mapping of names to arrays, got {type(value).__name__}")
    for name in value:
        if not isinstance(name, str):
            raise TypeError(f"{what}: expected names that are strings, got {name!r}")
    return {n: _arrays.resolved(v) for n, v in value.items()}


def _number(value: Any, name: str) -> Any:
    return _checks.real(value, name) if isinstance(value, numbers.Real) else value


_NAMES = {"clip": "max_grad_norm", "learning rate": "lr", "schedule": "lr_scheduler"}  # by the engine's
_DEFAULTS = {"adamw": ((0.9, 0.999), 1e-8), "lion": ((0.9, 0.99), None)}  # betas and eps of the engine's optimizers


def _identity(optimizer: str, betas: Any, eps: Any, rest: Sequence[float], schedule: Sequence[Any]) -> dict[str, Any]:
    """The options that a run must keep: a checkpoint has them, and another Trainer resumes it with the same. A default
    is None whether it was given or not, and the length of a run with a constant rate changes nothing."""
    default_betas, default_eps = _DEFAULTS.get(optimizer, (None, None))
    names = ("weight_decay", "max_grad_norm", "ema", "lr", "lr_scheduler", "lr_warmup_steps", "total_steps")
    options = {
        "optimizer": optimizer,
        "betas": None if betas == default_betas else betas,
        "eps": None if eps == default_eps else eps,
        **dict(zip(names, (*rest, *schedule))),
    }
    if options["lr_scheduler"] == "constant":
        options["total_steps"] = 0
    return options


class Trainer:
    """Trains parameters: forward, loss, gradients, clipping and optimizer run as plans of the engine.

        def loss(p, x, y):
            h = tenon.gelu(tenon.linear(x, p["w1"], p["b1"]))
            return tenon.mean((tenon.linear(h, p["w2"]) - y) ** 2, axis=None)

        trainer = tenon.train.Trainer(loss, {"w1": w1, "b1": b1, "w2": w2}, lr=1e-3)
        for x, y in batches:
            value = trainer.step(x=x, y=y)
        trained = trainer.parameters()           # {"w1": .., ..}, f32

    `loss(p, **batch)` is called with expressions, once for every combination of the batch's shapes and types, and
    returns one number; `p` maps names to parameters, f32. Parameters are copied from arrays in host memory of any
    floating-point type; masters, gradients and moments are f32, on `device`. A trainer must be used by one thread at a
    time.
    """

    def __init__(
        self,
        loss: Callable[..., Expr],
        parameters: Mapping[str, Any],
        *,
        optimizer: str = "adamw",
        lr: float = 1e-3,
        betas: Sequence[float] | None = None,
        eps: float | None = None,
        weight_decay: float = 0.0,
        max_grad_norm: float = 0.0,
        lr_scheduler: str = "constant",
        lr_warmup_steps: int = 0,
        total_steps: int = 0,
        ema: float = 0.0,
        device: str | None = "cpu",
    ) -> None:
        """`optimizer`: "adamw", "lion" or "sgd" (with betas[0] as momentum); None means its default. `max_grad_norm`:
        limit of the gradients' norm, 0: none. `lr_scheduler`: "constant", "linear" or "cosine", after
        `lr_warmup_steps`, down to 0 at `total_steps`. `ema`: decay of a moving average of the parameters, 0: none.
        `device`: "cpu" (None too), "cuda" or "cuda:1". `grad_norm` is NaN before the first step."""
        if not callable(loss):
            raise TypeError(f"loss: expected a function, got {type(loss).__name__}")
        for value, name in (("" if device is None else device, "device"), (optimizer, "optimizer"), (lr_scheduler, "lr_scheduler")):
            if not isinstance(value, str):
                raise TypeError(f"{name}: expected a string, got {type(value).__name__}")
        self._loss = loss
        self._given = _named(parameters, "parameters")
        self._shapes = {n: tuple(_core.read_array(a, n).shape) for n, a in self._given.items()}
        given = None if betas is None else _betas(betas)
        small = None if eps is None else _checks.real(eps, "eps")
        if small is not None and not small >= 0:  # the engine uses negative values for its own default
            raise UsageError(f"eps: expected a number of at least 0, got {eps!r}", "eps")
        rest = [_checks.real(v, n) for v, n in ((weight_decay, "weight_decay"), (max_grad_norm, "max_grad_norm"), (ema, "ema"))]
        self._schedule = (
            _checks.real(lr, "lr"),
            lr_scheduler,
            _checks.whole(lr_warmup_steps, "lr_warmup_steps", 0),
            _checks.whole(total_steps, "total_steps", 0),
        )
        if lr_scheduler in ("linear", "cosine") and not total_steps:
            raise UsageError(f"total_steps: expected at least 1 for lr_scheduler {lr_scheduler!r}, got 0", "total_steps")
        self._options = json.dumps(_identity(optimizer, given, small, rest, self._schedule))
        floats = (*(given or (-1.0, -1.0)), -1.0 if small is None else small, *rest)
        with renamed(_NAMES):
            self._rate(1)  # reports values out of range now
            self._core = _core.Trainer(device or "cpu", self._given, optimizer, *floats)
        self.grad_norm = math.nan

    def _rate(self, number: int) -> float:
        return _core.learning_rate(*self._schedule, number)

    @property
    def steps(self) -> int:
        """Steps so far."""
        return self._core.steps

    def _prepare(self, batch: Mapping[str, Any], accumulates: bool) -> str:
        """The plan for batches of these shapes and types, by its key."""
        read = {n: None if isinstance(v, numbers.Real) else _core.read_array(v, n) for n, v in batch.items()}
        key = repr((accumulates, [(n, a and (a.dtype, tuple(a.shape))) for n, a in read.items()]))
        if self._core.knows(key):
            return key
        graph = _core.Graph()
        p = {n: Expr(graph.param(n, list(shape)), graph, "f32") for n, shape in self._shapes.items()}
        given = {
            n: Expr(graph.scalar(_BATCH + n), graph, "")
            if a is None
            else Expr(graph.input(_BATCH + n, a.dtype, list(a.shape)), graph, a.dtype)
            for n, a in read.items()
        }
        tracer = Tracer(graph, [])
        with tracer:
            value = self._loss(p, **given)
        if not isinstance(value, Expr):
            raise TypeError(f"loss: expected the function to return one expression, got {type(value).__name__}")
        if math.prod(value.shape) != 1:
            raise UsageError(f"loss: expected the function to return one number, got shape {value.shape}", "loss")
        if tracer.captured:
            raise UsageError("loss: reads an array that is not an argument; make it part of the batch", "loss")
        self._core.plan(key, _core.make("reshape", [value.cast("f32")._value], dims=[]), accumulates)
        return key

    def step(self, *batches: Mapping[str, Any], **batch: Any) -> float:
        """One step on a batch, given by keyword: arrays in host memory and numbers. Several batches (`step({"x": ..},
        ..)`) make one step along the mean of their gradients. Returns the loss, or the mean of several; `grad_norm` is
        then the norm of all gradients before clipping. NumericError for a loss or gradient that is not finite: nothing
        has changed."""
        every = [_named(b, "batch") for b in (*batches, *([batch] if batch or not batches else []))]
        loss = 0.0
        for i, one in enumerate(every):
            key = self._prepare(one, len(every) > 1)
            loss += self._core.run(key, {_BATCH + n: _number(v, n) for n, v in one.items()}, i == 0) / len(every)
        self.grad_norm = self._core.update(self._rate(self.steps + 1), len(every))
        return loss

    def save(self, folder: str | os.PathLike[str], *, keep: int = 2, state: Any = None) -> None:
        """Writes `checkpoint-N` into the folder, N being the steps so far: parameters (`model.safetensors`), moments,
        averages, and `state`, any JSON that the loop needs to continue (its place in the data). Writing is atomic; the
        newest `keep` stay, 0 for all. UsageError: another process writes there, or the folder has a checkpoint of a
        later step; InternalError: the system cannot write."""
        self._core.save(os.fspath(folder), _checks.whole(keep, "keep", 0), self._options, json.dumps(state))

    def resume(self, folder: str | os.PathLike[str]) -> tuple[int, Any] | None:
        """Resumes from the folder's newest checkpoint, bit for bit: returns (steps, state), or None, with nothing
        changed, if there is none. UsageError names an option that differs (`total_steps` of a constant rate may);
        ModelError: it is of other parameters, or damaged. Nothing has changed then."""
        states: list[Any] = []

        def accept(place: str, state: str) -> None:
            try:
                states.append(json.loads(state))
            except (ValueError, RecursionError) as e:
                raise ModelError(f"{place}: state: expected JSON as Trainer.save writes it: {e}", place) from None

        return (self.steps, states[0]) if self._core.resume(os.fspath(folder), self._options, accept) else None

    def _read(self, averaged: bool) -> dict[str, Any]:
        out = {}
        for name, like in self._given.items():
            made = _arrays.empty_like(like, self._shapes[name], "f32")
            self._core.read(name, averaged, made)
            out[name] = _arrays.finish(like, made)
        return out

    def parameters(self) -> dict[str, Any]:
        """The current parameters: new f32 arrays of the library that each was given in."""
        return self._read(False)

    def averages(self) -> dict[str, Any]:
        """The parameters' moving averages, like `parameters`. UsageError without `ema`."""
        return self._read(True)


def sums(seed: int, first: int, count: int, split: str = "train") -> list[tuple[str, str]]:
    """Problems `first` to `first + count - 1` for a seed: questions ("Ann has 3 apples and buys 4. How many?") and
    worked answers ("3+4=7\\n#### 7"). `split` is "train" or "held-out": no question is in both, for any seeds."""
    if not isinstance(split, str):
        raise TypeError(f"split: expected a string, got {type(split).__name__}")
    number = _checks.integer(seed, "seed")
    if number < 0:
        raise UsageError(f"seed: expected a whole number of at least 0, got {number}", "seed")
    return _core.sums(number, _checks.whole(first, "first", 0), _checks.whole(count, "count", 0), split)
