"""The comparison of these tests: faults that it must detect."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import assert_close


def test_what_agrees():
    x = np.arange(12.0).reshape(3, 4)
    assert_close(x, x, 0)
    assert_close(x + 1e-7, x, 1e-6)
    assert_close(x * 1.001, x, 0.002 * x)
    assert_close([np.inf, -np.inf], [np.inf, -np.inf], 0)
    assert_close(np.zeros((0, 3)), np.zeros((0, 3)), 0)
    assert_close(3.0, 3, 0)


@pytest.mark.parametrize("at", [0, 100, 199])
def test_a_planted_nan_fails(at):
    want = np.linspace(-1, 1, 200, dtype=np.float32)
    got = want.copy()
    got[at] = np.nan
    for found, expected in ((got, want), (want, got), (got, got)):
        with pytest.raises(AssertionError, match=rf"1 of 200 differ, the first at \({at},\)"):
            assert_close(found, expected, 1e9)


def test_a_dropped_tile_fails():
    want = np.linspace(-1, 1, 4096).reshape(64, 64)
    got = want.copy()
    got[16:24, 32:40] = 0
    with pytest.raises(AssertionError, match=r"64 of 4096 differ, the first at \(16, 32\)"):
        assert_close(got, want, 1e-3)


def test_shapes_and_infinities_count():
    for got, want, tolerance in (
        (np.ones((2, 3)), np.ones((3, 2)), 1),
        (np.ones((1, 3)), np.ones(3), 1),
        ([1.0], [np.inf], np.inf),
        ([np.inf], [1.0], 1e300),
        ([np.inf], [-np.inf], np.inf),
        ([1.0], [1.5], np.nan),
    ):
        with pytest.raises(AssertionError):
            assert_close(got, want, tolerance)
