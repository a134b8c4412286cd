"""What tenon.fuse takes for a function's inputs: arguments of any name, and arrays found outside."""

from __future__ import annotations

import numpy as np
from conftest import assert_close

import tenon


def f64(x):
    return np.asarray(x, np.float64)


def test_an_unused_argument_may_have_the_name_of_a_temporary(rng):
    x, w = (rng.standard_normal((64, 64), np.float32) for _ in range(2))
    k = tenon.fuse(lambda x, w, t0: tenon.rms_norm(tenon.linear(x, w)))
    few = np.zeros(1, np.float32)
    y = f64(x) @ f64(w).T
    for _ in range(2):
        assert_close(k(x, w, few), y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-6), 1e-4)
        assert few == 0


def test_a_function_within_another_reads_its_arrays_anew(rng):
    x, w = (rng.standard_normal(37, np.float32) for _ in range(2))
    twice = tenon.fuse(lambda w: w * 2)
    k = tenon.fuse(lambda x: x + twice(w))
    assert_close(k(x), f64(x) + 2 * f64(w), 1e-6)
    w += 1
    assert_close(k(x), f64(x) + 2 * f64(w), 1e-6)
    by_name = tenon.fuse(lambda x, w: x - w)
    assert_close(tenon.fuse(lambda x: by_name(x, w=w))(x), f64(x) - f64(w), 1e-6)


def test_arguments_of_one_name_are_apart(rng):
    a, b = (rng.standard_normal(37, np.float32) for _ in range(2))
    k = tenon.fuse(lambda x, /, **rest: x - rest["x"])
    assert_close(k(a, x=b), f64(a) - f64(b), 1e-6)
    assert_close(k(a, x=b[:1]), f64(a) - f64(b[:1]), 1e-6)


def test_where_counts_the_types_of_arrays_found_outside(rng):
    x, table = rng.standard_normal(37).astype(np.float16), rng.standard_normal(37, np.float32)
    y = tenon.fuse(lambda x: tenon.where(x > 0, table, x))(x)
    assert y.dtype == np.float32
    assert np.array_equal(y, np.where(x > 0, table, x))
