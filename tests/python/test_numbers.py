"""Numbers and indices that NumPy treats specially."""

from __future__ import annotations

import numpy as np
import pytest

import tenon


def test_zeros_keep_their_sign():
    signs = np.array([1, -1, 1], "f4")
    k = tenon.fuse(lambda x, s: x / s)
    for s in (-0.0, 0.0, -0.0):  # an argument that is set anew
        with np.errstate(divide="ignore"):
            np.testing.assert_array_equal(k(signs, s), signs / np.float32(s))
    for shape in [(), (1,), (2, 1), (2, 3)]:
        zeros = np.full(shape, -0.0, "f4")
        for f in (lambda s: -s, lambda s: s * 3.0, lambda s: s + -0.0, lambda s: s - 0.0):
            np.testing.assert_array_equal(np.signbit(tenon.fuse(f)(zeros)), np.signbit(f(zeros)))
        broadcast = tenon.fuse(lambda x, s: x * s)(np.ones((2, 3), "f4"), zeros)
        assert np.signbit(broadcast).all()


def test_bool_is_no_number():
    f = tenon.fuse(lambda x, factor: x * factor)
    for flag in (True, False):
        with pytest.raises(TypeError, match="^factor: expected an array or a number, got bool$"):
            f(np.ones(3, "f4"), flag)
    assert f(np.ones(3, "f4"), 1).sum() == 3


def test_bool_is_no_index():
    with pytest.raises(TypeError, match="bool"):
        tenon.fuse(lambda x: x[True])(np.ones(3, "f4"))
