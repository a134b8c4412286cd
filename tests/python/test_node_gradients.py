"""The gradient of every node of the engine against PyTorch's autograd. The engine lists its nodes; each has a row."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest
from conftest import assert_close, needs_torch

import tenon
from tenon import _core

if importlib.util.find_spec("torch") is not None:
    import torch
    from torch.nn import functional as F

X, ROW, IMAGE, HEADS, KEYS = (4, 6), (6,), (2, 5, 4, 3), (2, 4, 3, 8), (2, 2, 5, 8)
PER_QUERY = (*HEADS[:3], 1)
SCALE = 0.3


def made(node, *operands, **attributes):
    """A node that no function of the package makes by itself."""
    return operands[0]._with(_core.make(node, [o._value for o in operands], **attributes), "f32")


def attention_node(node):
    return lambda *operands: made(node, *operands, ints=[1], nums=[SCALE])


def shared(k):
    """Keys or values, for each head of the queries."""
    return k.repeat_interleave(HEADS[1] // KEYS[1], 1)


def scores(q, k):
    hidden = torch.ones(HEADS[2], KEYS[2], dtype=torch.bool).triu(1 + KEYS[2] - HEADS[2])
    return (SCALE * q @ shared(k).mT).masked_fill(hidden, -torch.inf)


def attended(q, k, v):
    return scores(q, k).softmax(-1) @ shared(v)


def log_sum_exp(q, k, v):
    return scores(q, k).logsumexp(-1, True)


def scores_gradient(q, k, v, g, lse, delta):
    """Of the scores, and the probabilities."""
    p = (scores(q, k) - lse).exp()
    return p * (g @ shared(v).mT - delta), p


def query_gradient(q, k, *rest):
    ds, _ = scores_gradient(q, k, *rest)
    return SCALE * ds @ shared(k)


def key_gradient(q, k, v, g, *rest):
    ds, p = scores_gradient(q, k, v, g, *rest)
    return torch.cat([SCALE * ds.mT @ q, p.mT @ g], -1).unflatten(1, (KEYS[1], -1)).sum(2)


GRADIENT = [HEADS, KEYS, KEYS, HEADS, PER_QUERY, PER_QUERY]  # arguments of an attention's gradient
INDEX = np.array([[2, 0, 3], [2, 2, 1]], np.int32)

# By node: with Tenon, with PyTorch, shapes of the arguments, and the least number in these, if not -2.
ROWS = {
    "abs": (lambda x: tenon.abs(x), lambda x: x.abs(), [X]),
    "absmax": (lambda x: tenon.absmax(x), lambda x: x.abs().amax(-1), [X]),
    "add": (lambda a, b: a + b, lambda a, b: a + b, [X, ROW]),
    "attention": (lambda q, k, v: tenon.attention(q, k, v, SCALE, causal=True), attended, [HEADS, KEYS, KEYS]),
    "attention_key_gradient": (attention_node("attention_key_gradient"), key_gradient, GRADIENT),
    "attention_lse": (attention_node("attention_lse"), log_sum_exp, [HEADS, KEYS, KEYS]),
    "attention_query_gradient": (attention_node("attention_query_gradient"), query_gradient, GRADIENT),
    "attention_query_sums": (attention_node("attention_query_sums"), query_gradient, GRADIENT),
    "barrier": (lambda x: tenon.barrier(x * x, 1) * x, lambda x: x**3, [X]),
    "broadcast": (lambda x: tenon.broadcast_to(x, (3, 4, 6)), lambda x: x.expand(3, 4, 6), [(4, 1)]),
    "cast": (lambda x: tenon.cast(x, "f16"), lambda x: x.half().double(), [X]),
    "ceil": (lambda x: tenon.ceil(x) * x, lambda x: x.ceil() * x, [X]),
    "clamp": (lambda x: tenon.clamp(x, -1, 1), lambda x: x.clamp(-1, 1), [X]),
    "concat": (lambda a, b: tenon.concat([a, b * b, a], 0), lambda a, b: torch.cat([a, b * b, a]), [X, (3, 6)]),
    "conv2d": (
        lambda x, w: tenon.conv2d(x, w, stride=2, padding=[1, 0, 2, 1]),
        lambda x, w: F.conv2d(F.pad(x.permute(0, 3, 1, 2), (0, 1, 1, 2)), w, stride=2).permute(0, 2, 3, 1),
        [IMAGE, (4, 3, 3, 2)],
    ),
    "cos": (lambda x: tenon.cos(x), lambda x: x.cos(), [X]),
    "div": (lambda a, b: a / b, lambda a, b: a / b, [X, ROW], 0.3),
    "equal": (lambda a, b: (tenon.ceil(a) == tenon.ceil(b)) * a, lambda a, b: (a.ceil() == b.ceil()) * a, [X, X]),
    "erf": (lambda x: tenon.erf(x), lambda x: x.erf(), [X]),
    "exp": (lambda x: tenon.exp(x), lambda x: x.exp(), [X]),
    "flip": (lambda x: made("flip", x, ints=[1]), lambda x: x.flip(1), [X]),
    "floor": (lambda x: tenon.floor(x) * x, lambda x: x.floor() * x, [X]),
    "fma": (lambda a, b, c: tenon.fma(a, b, c), lambda a, b, c: a * b + c, [X, ROW, X]),
    "fmod": (lambda a, b: tenon.fmod(a, b), lambda a, b: a.fmod(b), [X, X], 0.3),
    "gather": (lambda x: tenon.gather(x, INDEX), lambda x: x[torch.from_numpy(INDEX)], [X]),
    "gelu": (lambda x: tenon.gelu(x), lambda x: F.gelu(x), [X]),
    "gelu_tanh": (lambda x: tenon.gelu_tanh(x), lambda x: F.gelu(x, approximate="tanh"), [X]),
    "leaky_relu": (lambda x: tenon.leaky_relu(x, 0.1), lambda x: F.leaky_relu(x, 0.1), [X]),
    "lerp": (lambda a, b, t: tenon.lerp(a, b, t), lambda a, b, t: a.lerp(b, t), [X, X, X]),
    "less": (lambda a, b: (a < b) * a, lambda a, b: (a < b) * a, [X, X]),
    "linear": (lambda x, w, b: tenon.linear(x, w, b), lambda x, w, b: F.linear(x, w, b), [(2, *X), (5, 6), (5,)]),
    "log": (lambda x: tenon.log(x), lambda x: x.log(), [X], 0.3),
    "materialize": (lambda x: tenon.materialize(x * x) * x, lambda x: x**3, [X]),
    "max": (lambda a, b: tenon.maximum(a, b), lambda a, b: a.maximum(b), [X, X]),
    "mean": (lambda x: tenon.mean(x, axis=0), lambda x: x.mean(0), [X]),
    "min": (lambda a, b: tenon.minimum(a, b), lambda a, b: a.minimum(b), [X, X]),
    "mul": (lambda a, b: a * b, lambda a, b: a * b, [X, ROW]),
    "neg": (lambda x: -x, lambda x: -x, [X]),
    "pad": (lambda x: tenon.pad(x, [(1, 0), (2, 3)]), lambda x: F.pad(x, (2, 3, 1, 0)), [X]),
    "pair_swap": (lambda x: made("pair_swap", x), lambda x: x.unflatten(-1, (3, 2)).flip(-1).flatten(-2), [X]),
    "permute": (lambda x: x.permute(2, 0, 3, 1), lambda x: x.permute(2, 0, 3, 1), [IMAGE]),
    "pow": (lambda a, b: a**b, lambda a, b: a**b, [X, X], 0.3),
    "quick_gelu": (lambda x: tenon.quick_gelu(x), lambda x: x * (1.702 * x).sigmoid(), [X]),
    "reduce_max": (lambda x: tenon.max(x), lambda x: x.amax(-1), [X]),
    "relu": (lambda x: tenon.relu(x), lambda x: x.relu(), [X]),
    "reshape": (lambda x: x.reshape(3, 8), lambda x: x.reshape(3, 8), [X]),
    "resize": (
        lambda x: tenon.resize_nearest(x, 7, 8),
        lambda x: F.interpolate(x.permute(0, 3, 1, 2), (7, 8)).permute(0, 2, 3, 1),
        [IMAGE],
    ),
    "round": (lambda x: tenon.round_to(x, "f16"), lambda x: x.half().double(), [X]),
    "rsqrt": (lambda x: tenon.rsqrt(x), lambda x: x.rsqrt(), [X], 0.3),
    "sigmoid": (lambda x: tenon.sigmoid(x), lambda x: x.sigmoid(), [X]),
    "sign": (lambda x: tenon.sign(x) * x, lambda x: x.sign() * x, [X]),
    "silu": (lambda x: tenon.silu(x), lambda x: F.silu(x), [X]),
    "sin": (lambda x: tenon.sin(x), lambda x: x.sin(), [X]),
    "slice": (lambda x: x[1:3, 2:], lambda x: x[1:3, 2:], [X]),
    "sqrt": (lambda x: tenon.sqrt(x), lambda x: x.sqrt(), [X], 0.3),
    "stop_gradient": (lambda x: tenon.stop_gradient(x) * x, lambda x: x.detach() * x, [X]),
    "sub": (lambda a, b: a - b, lambda a, b: a - b, [X, ROW]),
    "sum": (lambda x: tenon.sum(x), lambda x: x.sum(-1), [X]),
    "sumsq": (lambda x: tenon.sumsq(x), lambda x: (x * x).sum(-1), [X]),
    "tanh": (lambda x: tenon.tanh(x), lambda x: x.tanh(), [X]),
    "variance": (lambda x: tenon.variance(x), lambda x: x.var(-1, correction=0), [X]),
    "where": (lambda c, a, b: tenon.where(c > 0, a, b), lambda c, a, b: torch.where(c > 0, a, b), [X, X, X]),
}


def arguments(name, rng):
    shapes, *least = ROWS[name][2:]
    return [rng.uniform(*least or [-2], 2, s).astype(np.float32) for s in shapes]


def test_every_node_with_a_gradient_has_a_row():
    assert set(ROWS) == set(_core.differentiable_names())


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_of_its_node(rng, name):
    text = []

    def traced(*given):
        value = ROWS[name][0](*given)
        text.append(repr(value))
        return value

    tenon.fuse(traced)(*arguments(name, rng))
    assert re.search(rf"\b{name}(<[^>]*>)?\(", text[0])


@needs_torch
@pytest.mark.parametrize("name", ROWS)
def test_gradients_are_autograds(rng, name):
    ours, theirs = ROWS[name][:2]
    given = arguments(name, rng)
    exact = [torch.from_numpy(a).double().requires_grad_() for a in given]
    value = theirs(*exact)
    seed = rng.integers(1, 9, value.shape) / 4  # exact in every type
    loss = (value * torch.from_numpy(seed)).sum()
    wanted = torch.autograd.grad(loss, exact, allow_unused=True, materialize_grads=True)
    seed = seed.astype(np.float32)
    got, *found = tenon.value_and_grad(lambda *a: tenon.sum(ours(*a) * seed, axis=None))(*given)
    assert_close(got.reshape(()), loss.detach(), 1e-4 * max(1.0, float(loss.detach().abs())))
    for mine, other in zip(found, wanted, strict=True):
        assert_close(mine, other, 1e-4 * float(other.abs().max()))
