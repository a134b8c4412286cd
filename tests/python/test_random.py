"""Random functions over arrays of mixed types and layouts: values and types as NumPy's in f64, and gradients that do not
depend on where the arrays lie."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from conftest import assert_close

import tenon

FLOATS = ("float32", "float16")
DTYPES = (*FLOATS, "float32", "int32", "uint8", "bool")
EXTENTS = (0, 1, 1, 2, 3, 4, 5, 7, 9, 16, 17, 33)
LARGEST, MOST = 1e3, 4000  # larger values and arrays are left out


def promoted(*dtypes):
    floats = set(dtypes) & set(FLOATS)
    return floats.pop() if len(floats) == 1 else "float32"


class Program:
    """A function, grown step by step beside its reference: every value is (f64 reference, type, node)."""

    def __init__(self, seed, steps=8):
        self.random, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.arguments, self.values = [], []
        self.argument([self.extent() for _ in range(self.random.randint(1, 4))])
        for _ in range(steps):
            self.step(*self.random.choice(self.values[-2:]), self.random.choice(STEPS))

    def extent(self):
        return self.random.choice(EXTENTS)

    def argument(self, shape, dtype=None, below=None):
        """A new argument, dense or not; whole numbers from 0 if `below` says so."""
        dtype = dtype or self.random.choice(DTYPES)
        order = list(range(len(shape)))
        if self.random.random() < 0.3:
            self.random.shuffle(order)
        gaps = [self.random.choice((1, 1, 1, 2)) for _ in shape]
        memory = [shape[i] * gaps[i] for i in order]
        drawn = self.numbers.standard_normal(memory) * (1 if dtype in FLOATS else 4)
        drawn = self.numbers.integers(0, below, memory) if below else abs(drawn) if dtype == "uint8" else drawn
        drawn = drawn > 0 if dtype == "bool" else drawn.astype(dtype)
        a = np.transpose(drawn, [order.index(i) for i in range(len(shape))])
        a = a[tuple(slice(None, None, gap) for gap in gaps)]
        if shape and self.random.random() < 0.1:
            a = np.broadcast_to(a[:1] if shape[0] else a, shape)
        self.arguments.append(a)
        n = len(self.arguments) - 1
        self.values.append((a.astype(np.float64), dtype, lambda v: v[n]))
        return self.values[-1]

    def add(self, reference, dtype, node):
        small = reference.size <= MOST and np.isfinite(reference).all() and (abs(reference) < LARGEST).all()
        if small:
            self.values.append((reference, dtype, node))

    def operand(self, shape):
        """An existing or new value that broadcasts to the shape."""
        fits = lambda s: len(s) <= len(shape) and all(a in (1, b) for a, b in zip(s[::-1], shape[::-1]))
        found = [v for v in self.values if fits(v[0].shape)]
        if found and self.random.random() < 0.6:
            return self.random.choice(found)
        return self.argument([d if self.random.random() < 0.7 else 1 for d in shape])

    def step(self, x, dtype, node, kind):
        r = self.random
        if kind in UNARY:
            traced, reference = UNARY[kind]
            self.add(reference(x), promoted(dtype), lambda v: traced(node(v)))
        elif kind in BINARY:
            traced, reference = BINARY[kind]
            y, other, second = self.operand(x.shape)
            self.add(reference(x, y), promoted(dtype, other), lambda v: traced(node(v), second(v)))
        elif kind == "where":
            y, other, second = self.operand(x.shape)
            mask, _, third = self.argument(x.shape, "bool")
            self.add(np.where(mask, x, y), promoted(dtype, other), lambda v: tenon.where(third(v), node(v), second(v)))
        elif kind == "index":
            part = lambda d: slice(r.randint(0, d), r.randint(0, d)) if r.random() < 0.7 or not d else r.randint(-d, d - 1)
            key = tuple(map(part, x.shape))
            self.add(x[key], dtype, lambda v: node(v)[key])
        elif kind == "permute":
            axes = r.sample(range(x.ndim), x.ndim)
            self.add(x.transpose(axes), dtype, lambda v: tenon.permute(node(v), axes))
        elif kind == "reshape":
            shape = (-1, x.shape[-1]) if x.ndim and x.size else x.shape[::-1]
            self.add(x.reshape(shape), dtype, lambda v: node(v).reshape(shape))
        elif kind == "pad":
            counts = [(r.randint(0, 2), r.randint(0, 2)) for _ in x.shape]
            self.add(np.pad(x, counts) if x.ndim else x, dtype, lambda v: tenon.pad(node(v), counts))
        elif x.ndim:
            self.along_an_axis(x, dtype, node, kind)

    def along_an_axis(self, x, dtype, node, kind):
        axis = self.random.randrange(x.ndim)
        if kind == "concat":
            y, other, second = self.argument([self.extent() if i == axis else d for i, d in enumerate(x.shape)])
            joined = dtype if dtype == other else promoted(dtype, other)
            self.add(np.concatenate([x, y], axis), joined, lambda v: tenon.concat([node(v), second(v)], axis))
        elif kind == "gather" and x.shape[0]:
            y, _, second = self.argument([self.random.randint(1, 4)], "int32", x.shape[0])
            self.add(x[y.astype(int)], dtype, lambda v: tenon.gather(node(v), second(v)))
        elif kind in REDUCTIONS and 0 not in x.shape:
            axes = None if self.random.random() < 0.2 else tuple(sorted({axis, self.random.randrange(x.ndim)}))
            self.add(REDUCTIONS[kind](x, axes), promoted(dtype), lambda v: getattr(tenon, kind)(node(v), axes))
        elif kind == "group_norm" and x.ndim > 1 and 0 not in x.shape:
            groups = math.gcd(x.shape[-1], self.random.choice((1, 2, 3)))
            parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
            apart = parts - parts.mean((1, 3), keepdims=True)
            normed = (apart / np.sqrt((apart * apart).mean((1, 3), keepdims=True) + 1e-2)).reshape(x.shape)
            self.add(normed, promoted(dtype), lambda v: tenon.group_norm(node(v), groups, eps=1e-2))
        elif kind == "matmul" and x.shape[-1]:
            w, other, second = self.argument([x.shape[-1], 1 + self.extent()], "float32")
            self.add(x @ w, promoted(dtype, other), lambda v: node(v) @ second(v))


UNARY = {
    "silu": (tenon.silu, lambda x: x / (1 + np.exp(-x))),
    "tanh": (tenon.tanh, np.tanh),
    "root": (lambda x: tenon.sqrt(abs(x) + 0.5), lambda x: np.sqrt(abs(x) + 0.5)),
    "scaled": (lambda x: 1 - x * 0.5, lambda x: 1 - x * 0.5),
}
BINARY = {
    "add": (lambda x, y: x + y, np.add),
    "sub": (lambda x, y: y - x, lambda x, y: y - x),
    "mul": (lambda x, y: x * y, np.multiply),
    "maximum": (tenon.maximum, np.maximum),
}
REDUCTIONS = {"sum": np.sum, "mean": np.mean, "max": np.max, "variance": np.var}
STEPS = [*UNARY, *BINARY, *REDUCTIONS, *"where index permute reshape pad concat gather group_norm matmul".split()]


def test_what_is_drawn():
    masks = np.concatenate([a.ravel() for seed in range(100) for a in Program(seed).arguments if a.dtype == bool])
    assert 0.3 < masks.mean() < 0.7


@pytest.mark.parametrize("part", range(10))
def test_random_functions(part):
    for seed in range(30 * part, 30 * part + 30):
        p = Program(seed)
        wanted = p.values[-3:]
        found = tenon.fuse(lambda *a: [node(a) for _, _, node in wanted])(*p.arguments)
        scale = max(1, *(abs(v[0]).max(initial=0) for v in p.values))
        for y, (reference, dtype, _) in zip(found, wanted):
            assert y.dtype == dtype, seed
            assert_close(y, reference, (2e-3 if dtype == "float16" else 1e-4) * scale)


@pytest.mark.parametrize("part", range(10))
def test_gradients_of_any_layout(part):
    differentiated = 0
    for seed in range(40 * part, 40 * part + 40):
        p = Program(seed)
        result, _, node = p.values[-1]
        by = [i for i, a in enumerate(p.arguments) if a.dtype == np.float32 and a.size]
        if not by or not result.size:
            continue
        differentiated += 1
        slopes = tenon.grad(lambda *a: tenon.sum(tenon.tanh(node(a)), None) + tenon.sum(a[by[0]] * 0, None), by)
        dense = [a.copy(order="C") for a in p.arguments]
        for found, wanted in zip(slopes(*p.arguments), slopes(*dense)):
            assert_close(found, wanted, 1e-5 * max(1, abs(wanted).max()))
    assert differentiated >= 10
