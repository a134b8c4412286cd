"""Reductions of expressions, against NumPy in f64."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import assert_close

import tenon


def f64(x):
    return np.asarray(x, np.float64)


@pytest.mark.parametrize("axis", [0, 1, 2, -3, (0, 2), (1, 0), (2, 1), (0, 1, 2), None])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions_over_any_axes(rng, axis, keepdim):
    x = rng.standard_normal((5, 7, 9), np.float32)
    k = tenon.fuse(lambda x: (tenon.sum(x, axis=axis, keepdim=keepdim), tenon.max(x * x, axis=axis, keepdim=keepdim)))
    total, most = k(x)
    assert_close(total, f64(x).sum(axis, keepdims=keepdim), 1e-4)
    assert_close(most, (f64(x) ** 2).max(axis, keepdims=keepdim), 1e-5)
    if isinstance(axis, int):
        e = np.exp(f64(x))
        assert_close(tenon.fuse(lambda x: tenon.softmax(x, axis=axis))(x), e / e.sum(axis, keepdims=True), 1e-6)


def test_reductions_of_more_than_a_gpu_takes_at_once(rng):
    """Rows of over 262,144 elements are reduced in equal parts, then those."""
    x = rng.standard_normal((512, 1031), np.float32) + 1
    names = ["sum", "mean", "sumsq", "variance", "max", "absmax"]
    k = tenon.fuse(lambda x: tuple(getattr(tenon, name)(x, axis=None) for name in names))
    e = f64(x)
    for y, expected in zip(k(x), [e.sum(), e.mean(), (e * e).sum(), e.var(), e.max(), abs(e).max()]):
        assert_close(f64(y) / expected, np.array(1.0), 1e-6)
    assert "4,131968]" in k.plan(x)


def test_reductions_behind_views_of_any_size(rng):
    x = rng.standard_normal((256, 768)).astype(np.float32)
    y = tenon.fuse(lambda a: tenon.softmax(tenon.layer_norm(a))[:, 1:])(x)
    d = f64(x) - f64(x).mean(-1, keepdims=True)
    e = np.exp(d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5))
    assert_close(y, (e / e.sum(-1, keepdims=True))[:, 1:], 1e-6)
