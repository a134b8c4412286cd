"""Lion on NumPy arrays: the update against NumPy, its edge cases, and what is refused before anything is written."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from conftest import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st

import tenon


def reference(p, m, g, lr, beta1, beta2, weight_decay):
    """One step in f32, rounding each product and sum, as the kernels do."""
    f = np.float32
    u = f(beta1) * m + f(1 - beta1) * g
    return p * f(1 - lr * weight_decay) - f(lr) * np.sign(u), f(beta2) * m + f(1 - beta2) * g


def three(rng, shape):
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]


def test_two_steps_of_the_published_vector():
    p = np.array([1, -2, 0.5, 0, 3, -1], np.float32)
    m = np.array([0, 0.5, -0.5, 0, 1, 0.1], np.float32)
    g = np.array([0.3, -4.5, 4.5, 0, -9, -0.95], np.float32)
    tenon.lion_step(p, m, g, 1e-2, 0.9, 0.99, 0.1)
    strict = [0, 3, 5]  # the others cancel exactly in real arithmetic: their sign depends on rounding alone
    assert_close(p[strict], [0.98900002, 0, -0.98900002], 1e-7)
    assert_close(m, [0.00299999723, 0.450000048, -0.450000048, 0, 0.900000095, 0.0895000100], 2e-7)
    tenon.lion_step(p, m, g, 1e-2, 0.9, 0.99, 0.1)
    assert_close(p[strict], [0.97801107, 0, -0.97801107], 1e-7)
    assert_close(m, [0.00596999470, 0.400500089, -0.400500089, 0, 0.801000178, 0.0791050196], 3e-7)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=0, max_size=12),
    st.floats(0, 0.1),
    st.floats(0, 0.999),
    st.floats(0, 0.9999),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_lists_of_any_shapes_equal_the_reference(shapes, lr, beta1, beta2, weight_decay, seed):
    rng = np.random.default_rng(seed)
    tensors = [three(rng, shape) for shape in shapes]
    expected = [reference(p, m, g, lr, beta1, beta2, weight_decay) for p, m, g in tensors]
    params, exp_avgs, grads = ([t[i] for t in tensors] for i in range(3))
    tenon.lion_foreach(params, exp_avgs, grads, lr, beta1, beta2, weight_decay)
    for p, m, (new_p, new_m) in zip(params, exp_avgs, expected):
        assert_close(p, new_p, 0)
        assert_close(m, new_m, 0)


def test_a_thousand_steps_are_exact(rng):
    p, m, _ = three(rng, 513)
    q, n = p.copy(), m.copy()
    for _ in range(1000):
        g = rng.standard_normal(513).astype(np.float32)
        tenon.lion_step(p, m, g, 1e-3, 0.9, 0.99, 0.1)
        q, n = reference(q, n, g, 1e-3, 0.9, 0.99, 0.1)
    assert_close(m, n, 0)
    assert_close(p, q, 0)


def test_decay_alone_where_gradient_and_momentum_are_zero():
    p, m, g = np.full(5, 2, np.float32), np.zeros(5, np.float32), np.zeros(5, np.float32)
    for _ in range(10):
        tenon.lion_step(p, m, g, lr=0.1, weight_decay=0.5)
    assert_close(p, np.full(5, 2 * 0.95**10), 1e-6)
    assert_close(m, np.zeros(5), 0)


def test_types_and_master_copies(rng):
    p, m, g = (x.astype(np.float16) for x in three(rng, 100))
    master = p.astype(np.float32)
    for _ in range(20):
        tenon.lion_step(p, m, g, lr=1e-5, weight_decay=0.0, master=master)
    assert_close(p, master.astype(np.float16), 0)
    assert (np.abs(master - p.astype(np.float32)) <= 1e-3).all() and (master != p).any()


@pytest.mark.parametrize("policy", ["propagate", "skip", "raise"])
def test_gradients_that_are_not_finite(rng, policy):
    tensors = [three(rng, 70) for _ in range(3)]
    tensors[1][2][[3, 9]] = [np.nan, np.inf]
    params, exp_avgs, grads = ([t[i] for t in tensors] for i in range(3))
    before = [p.copy() for p in params + exp_avgs]
    if policy == "raise":
        params[2], exp_avgs[2], grads[2] = (a[2].astype(np.float16) for a in (params, exp_avgs, grads))
        before = [p.copy() for p in params + exp_avgs]
        with pytest.raises(tenon.NumericError, match=r"grad\[1\]"):
            tenon.lion_foreach(params[::-1][:2] + params[:1], exp_avgs[::-1][:2] + exp_avgs[:1],
                               grads[::-1][:2] + grads[:1], non_finite=policy)  # fmt: skip
        for now, then in zip(params + exp_avgs, before):
            assert_close(now, then, 0)
        return
    tenon.lion_foreach(params, exp_avgs, grads, lr=0.5, non_finite=policy)
    assert (params[0] != before[0]).all()
    if policy == "skip":
        assert_close(params[1][[3, 9]], before[1][[3, 9]], 0)
        assert_close(exp_avgs[1][[3, 9]], before[4][[3, 9]], 0)
    else:
        assert np.isnan(params[1][3]) and np.isnan(exp_avgs[1][3]) and np.isinf(exp_avgs[1][9])
    others = np.delete(np.arange(70), [3, 9])
    assert (params[1][others] != before[1][others]).all()


def test_maximize_takes_the_other_direction(rng):
    p, m, g = three(rng, 30)
    q, n = p.copy(), m.copy()
    tenon.lion_step(p, m, g, maximize=True)
    tenon.lion_step(q, n, -g)
    assert_close(p, q, 0)
    assert_close(m, n, 0)


def test_dense_arrays_in_another_order_of_axes(rng):
    p, m, g = (x.transpose(2, 0, 1) for x in three(rng, (4, 5, 6)))
    new_p, new_m = reference(p, m, g, 1e-2, 0.9, 0.99, 0.1)
    tenon.lion_step(p, m, g, 1e-2, 0.9, 0.99, 0.1)
    assert_close(p, new_p, 0)
    assert_close(m, new_m, 0)


def zeros(n=8, dtype=np.float32):
    return np.zeros(n, dtype)


def read_only():
    a = zeros()
    a.flags.writeable = False
    return a


def overlapping():
    a = np.zeros(24, np.float32)
    return a[:8], a[7:15], a[16:]


@pytest.mark.parametrize(
    "arrays, options, message",
    [
        ((zeros(), zeros(), zeros(9)), {}, r"grad.*expected the shape of param"),
        ((zeros(), zeros((2, 4)), zeros()), {}, r"exp_avg.*shape"),
        ((zeros(dtype=np.float64), zeros(), zeros()), {}, "param.*f32, bf16 or f16.*f64"),
        ((zeros(), zeros(), zeros(dtype=np.int32)), {}, "grad.*i32"),
        ((zeros((4, 8))[:, ::2], zeros((4, 4)), zeros((4, 4))), {}, "param.*gaps"),
        ((zeros((4, 4)), zeros((4, 4)).T, zeros((4, 4))), {}, "exp_avg.*strides"),
        ((read_only(), zeros(), zeros()), {}, "param.*read-only"),
        (overlapping(), {}, "exp_avg.*shares memory with param"),
        ((zeros(), zeros(), zeros()), {"lr": -1}, "lr"),
        ((zeros(), zeros(), zeros()), {"lr": float("nan")}, "lr"),
        ((zeros(), zeros(), zeros()), {"beta1": 1.0}, "beta1"),
        ((zeros(), zeros(), zeros()), {"beta2": 10**400}, "beta2: expected a number that a float can hold"),
        ((zeros(), zeros(), zeros()), {"lr": "a"}, "lr: expected a number"),
        ((zeros(), zeros(), zeros()), {"beta2": -0.1}, "beta2"),
        ((zeros(), zeros(), zeros()), {"weight_decay": -1}, "weight_decay"),
        ((zeros(), zeros(), zeros()), {"non_finite": "ignore"}, "non_finite"),
        ((zeros(), zeros(), zeros()), {"master": zeros()}, "master"),
        ((zeros(dtype=np.float16),) * 1 + (zeros(dtype=np.float16), zeros(dtype=np.float16)), {"master": zeros(dtype=np.float16)}, "master"),
    ],
)
def test_what_is_refused_and_that_nothing_is_written(arrays, options, message):
    before = [a.copy() for a in arrays]
    if arrays[2].flags.writeable:
        arrays[2].fill(1)
        before[2].fill(1)
    before = [a.copy() for a in arrays]
    with pytest.raises(ValueError, match=message):
        tenon.lion_step(*arrays, **options)
    for a, b in zip(arrays, before):
        assert_close(a, b, 0)


def test_one_gradient_may_serve_two_parameters_but_no_array_is_written_twice(rng):
    p, m, g = three(rng, 16)
    q, n = p + 1, m + 1
    tenon.lion_foreach([p, q], [m, n], [g, g])
    with pytest.raises(ValueError, match=r"param\[1\] shares|shares memory with param\[0\]"):
        tenon.lion_foreach([p, p], [m, n], [g, g.copy()])
    with pytest.raises(ValueError, match="exp_avgs.*expected 2 arrays"):
        tenon.lion_foreach([p, q], [m], [g, g])
    with pytest.raises(TypeError, match=r"grad\[1\]"):
        tenon.lion_foreach([p, q], [m, n], [g, None])
    with pytest.raises(TypeError, match=r"^master\[1\]: expected an array"):
        tenon.lion_foreach([p, q], [m, n], [g, g], masters=[p.copy(), None])
    with pytest.raises(tenon.UsageError, match=r"^\[grad\] expected f32, bf16 or f16, got complex64"):
        tenon.lion_step(p, m, g.astype(np.complex64))
    for i, name in enumerate(("params", "exp_avgs", "grads")):
        lists = [[p], [m], [g]]
        lists[i] = (a for a in lists[i])
        with pytest.raises(TypeError, match=f"^{name}: expected a list of arrays, got generator"):
            tenon.lion_foreach(*lists)


def test_a_list_that_was_checked_is_checked_again_when_it_changes(rng):
    p, m, g = three(rng, 64)
    for _ in range(3):
        tenon.lion_foreach([p], [m], [g])
    with pytest.raises(ValueError, match="grad.*shape"):
        tenon.lion_foreach([p], [m], [g[:32]])
    with pytest.raises(ValueError, match="shares memory"):
        tenon.lion_foreach([p], [m], [p])


def test_explain_shows_the_expression():
    text = tenon.explain_lion("bf16", master=True)
    assert "sign" in text and "one launch" in text


def test_optimizers_without_torch_say_what_to_install():
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import tenon\n"
        "try:\n"
        "    import tenon.optim\n"
        "except ImportError as e:\n"
        "    assert str(e) == 'tenon.optim needs PyTorch: pip install torch', e\n"
        "else:\n"
        "    raise SystemExit('no error')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
