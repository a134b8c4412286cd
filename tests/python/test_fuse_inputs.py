"""What tenon.fuse takes for a function's inputs: arguments of any name, and arrays found outside."""

from __future__ import annotations

import numpy as np
import pytest
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


def test_masks_are_not_dropped():
    x, masked = np.ones(3, np.float32), np.ma.masked_greater(np.arange(3, dtype=np.float32), 1)
    k = tenon.fuse(lambda a, b: a * b)
    message = r"\] expected an array without a mask, got a numpy.ma.MaskedArray; fill it first"
    for arguments, name in (((masked, x), "a"), ((x, masked), "b")):
        with pytest.raises(tenon.UsageError, match=rf"^\[{name}{message}"):
            k(*arguments)
    with pytest.raises(tenon.UsageError, match=message):
        tenon.fuse(lambda a: a * masked)(x)
    with pytest.raises(tenon.UsageError, match=message):
        k(x, x, out=masked)
    assert_close(k(x, masked.filled(0)), [0, 1, 0], 0)


def test_what_operations_cannot_take_is_named():
    x, empty = np.ones((3, 2), np.float32), np.ones((0, 2), np.float32)
    index = np.zeros(1, np.int32)
    for message, function, arrays in (
        ("^pad: expected a pair .* got 1$", lambda a: tenon.pad(a, 1), (x,)),
        ("^pad: expected a pair", lambda a: tenon.pad(a, [1, 1]), (x,)),
        ("^concat: expected at least one expression, got none", lambda a: tenon.concat([]), (x,)),
        (r"^gather: expected x to have rows to select, got shape \(0, 2\)", tenon.gather, (empty, index)),
    ):
        with pytest.raises(tenon.UsageError, match=message):
            tenon.fuse(function, "f")(*arrays)
    assert tenon.fuse(tenon.gather)(empty, index[:0]).shape == (0, 2)
    with pytest.raises(TypeError, match="^fuse: expected a Python function, got int, which does not name"):
        tenon.fuse(int)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_softmax_of_nothing_is_empty(axis):
    for dtype in (np.float32, np.float16):
        x = np.ones((3, 0) if axis else (0, 3), dtype)
        y = tenon.fuse(lambda a: tenon.softmax(a, axis))(x)
        assert y.shape == x.shape and y.dtype == dtype
