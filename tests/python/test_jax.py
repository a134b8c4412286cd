"""tenon.fuse on JAX arrays."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import assert_close

import tenon

jax = pytest.importorskip("jax")


def test_results_are_of_jax(rng):
    x, y = (rng.standard_normal((37, 65), np.float32) for _ in range(2))
    k = tenon.fuse(lambda x, y: (x * tenon.silu(y), tenon.sum(x, -1)))
    product, sums = k(jax.numpy.asarray(x) * 2, jax.numpy.asarray(y))
    assert isinstance(product, jax.Array) and product.dtype == np.float32
    assert_close(np.asarray(product + 1), 2.0 * x * (y / (1 + np.exp(-y.astype(np.float64)))) + 1, 1e-5)
    assert_close(np.asarray(sums), 2.0 * x.astype(np.float64).sum(-1), 1e-5)
    assert np.array_equal(np.asarray(k(jax.numpy.asarray(x) * 2, y)[0]), np.asarray(product))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_types_of_sixteen_bits(rng, dtype):
    x = jax.numpy.asarray(rng.standard_normal(37, np.float32), dtype)
    y = tenon.fuse(lambda x: x * 2)(x)
    assert y.dtype == x.dtype
    assert (y == x * 2).all()


def test_arrays_found_outside_and_slices(rng):
    x, table = (jax.numpy.asarray(rng.standard_normal((6, 8), np.float32)) for _ in range(2))
    y = tenon.fuse(lambda x: x + table)(x)
    assert_close(np.asarray(y), np.asarray(x, np.float64) + np.asarray(table), 1e-6)
    assert_close(np.asarray(tenon.fuse(lambda x: x + 1)(x[:, ::2])), np.asarray(x, np.float64)[:, ::2] + 1, 1e-6)


def test_they_are_never_written_to(rng):
    x = jax.numpy.asarray(rng.standard_normal(8, np.float32))
    with pytest.raises(tenon.UsageError, match="immutable"):
        tenon.fuse(lambda x: x + 1)(x, out=x)
    with pytest.raises(tenon.UsageError, match="immutable"):
        tenon.lion_step(x, x * 0, x + 1)


def test_gradients(rng):
    x = jax.numpy.asarray(rng.standard_normal(8, np.float32))
    assert_close(np.asarray(tenon.grad(lambda x: tenon.sum(x * x, None))(x)[0]), 2 * np.asarray(x, np.float64), 1e-6)
