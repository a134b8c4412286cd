"""tenon.fuse on NumPy arrays, against NumPy in f64."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from conftest import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st

import tenon


def f64(x):
    return np.asarray(x, np.float64)


def silu(x):
    return x / (1 + np.exp(-x))


def test_the_sentence_of_the_readme(rng):
    x, g = (rng.standard_normal((37, 65), np.float32) for _ in range(2))
    k = tenon.fuse(lambda x, g: x * tenon.silu(g))
    y = k(x, g)
    assert isinstance(y, np.ndarray) and y.dtype == np.float32
    assert_close(y, f64(x) * silu(f64(g)), 1e-5)
    assert k.launches() == 1
    assert "x * silu(g)" in k.explain()
    assert "1 launch, 1 kernel (" in k.explain() and "FLOP" not in k.explain()  # no anchor, so nothing to count


@pytest.mark.parametrize(
    "name, traced, reference",
    [
        ("operators", lambda x, y: (x + y) * 2 - y / 3.0 + (1 - x) - (-y), lambda x, y: (x + y) * 2 - y / 3 + 1 - x + y),
        ("pow", lambda x, y: abs(x) ** 1.5 + y**2 + 2 / (1 + y * y), lambda x, y: abs(x) ** 1.5 + y**2 + 2 / (1 + y * y)),
        ("less", lambda x, y: tenon.where(x < y, x, y), np.minimum),
        ("greater", lambda x, y: tenon.where(x >= y, x, y), np.maximum),
        ("not_equal", lambda x, y: tenon.where(x != x, 0.0, x) + y, lambda x, y: x + y),
        ("maximum", lambda x, y: tenon.maximum(x, y) - tenon.minimum(x, 0.0), lambda x, y: np.maximum(x, y) - np.minimum(x, 0)),
        ("clamp", lambda x, y: tenon.clamp(x, -0.5, 0.5) + y, lambda x, y: np.clip(x, -0.5, 0.5) + y),
        ("roots", lambda x, y: tenon.sqrt(abs(x)) + tenon.rsqrt(y * y + 1), lambda x, y: np.sqrt(abs(x)) + 1 / np.sqrt(y * y + 1)),
        ("exp", lambda x, y: tenon.exp(x) + tenon.tanh(y) + tenon.sigmoid(x), lambda x, y: np.exp(x) + np.tanh(y) + 1 / (1 + np.exp(-x))),
        ("softmax", lambda x, y: tenon.softmax(x) * y, lambda x, y: np.exp(x) / np.exp(x).sum(-1, keepdims=True) * y),
        ("layer_norm", lambda x, y: tenon.layer_norm(x, eps=1e-5) + y, lambda x, y: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) + y),
        ("group_norm", lambda x, y: tenon.group_norm(x.reshape(1, *x.shape), 1, bias=y[0])[0], lambda x, y: (x - x.mean()) / np.sqrt(x.var() + 1e-5) + y[0]),
        ("rms_norm", lambda x, y: tenon.rms_norm(x, y[0]), lambda x, y: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * y[0]),
        ("sum", lambda x, y: tenon.sum(x * y, axis=1), lambda x, y: (x * y).sum(1)),
        ("mean", lambda x, y: tenon.mean(x, keepdim=True) + y, lambda x, y: x.mean(-1, keepdims=True) + y),
        ("max", lambda x, y: tenon.max(x) - tenon.absmax(y), lambda x, y: x.max(-1) - abs(y).max(-1)),
        ("views", lambda x, y: tenon.concat([x.T.reshape(-1, x.shape[0]), y.T], axis=0), lambda x, y: np.concatenate([x.T, y.T])),
        ("slices", lambda x, y: x[1:, None, :5] + y[0, 3] * x[-1], None),
        ("pad", lambda x, y: tenon.pad(x, [(1, 0), (0, 2)]) * 2, lambda x, y: np.pad(x, [(1, 0), (0, 2)]) * 2),
    ],
)
def test_operations(rng, name, traced, reference):
    x, y = (rng.standard_normal((6, 33), np.float32) for _ in range(2))
    if name == "slices":
        k = tenon.fuse(lambda x, y: x[1:, None, :5] + y[0, 3] * x[-1, :5])
        assert_close(k(x, y), x[1:, None, :5] + y[0, 3] * x[-1, :5], 1e-6)
        return
    k = tenon.fuse(traced)
    assert_close(k(x, y), reference(f64(x), f64(y)), 3e-5)
    assert k.launches() == (2 if name == "group_norm" else 1)  # a group's statistics come first


def test_every_pointwise_node_is_a_function():
    for name, *_ in tenon._core.pointwise_names():
        public = {"max": "maximum", "min": "minimum"}.get(name, name)
        assert callable(getattr(tenon, public)), name
        assert public in tenon.__all__


def test_several_results_in_one_launch(rng):
    x = rng.standard_normal((5, 64), np.float32)
    k = tenon.fuse(lambda x: {"y": x * 2, "again": x * 2, "scale": tenon.absmax(x), "same": x})
    out = k(x)
    assert list(out) == ["y", "again", "scale", "same"]
    assert_close(out["y"], 2 * x, 0)
    assert_close(out["again"], 2 * x, 0)
    assert_close(out["scale"], abs(x).max(-1), 0)
    assert_close(out["same"], x, 0)
    pair = tenon.fuse(lambda x: (x + 1, x - 1))
    assert isinstance(pair(x), tuple) and len(pair(x)) == 2 and pair.launches() == 1


def test_numbers_given_are_values_of_a_run_and_numbers_inside_are_constants(rng):
    x = rng.standard_normal(100).astype(np.float32)
    calls = []

    def scaled(x, a, b):
        calls.append(1)
        return x * a + b * 3

    k = tenon.fuse(scaled)
    for a, b in ((2.0, 1), (3, -0.5), (0.0, 0.0)):
        assert_close(k(x, a, b), np.float32(a) * x + np.float32(b * 3), 1e-5)
    assert len(calls) == 1
    k(x[:50], 1.0, 1.0)
    assert len(calls) == 2


def test_matmul_with_a_filled_epilogue(rng):
    x, w = rng.standard_normal((17, 40), np.float32), rng.standard_normal((23, 40), np.float32)
    b = rng.standard_normal(23).astype(np.float32)
    k = tenon.fuse(lambda x, w, b: tenon.silu(tenon.linear(x, w, b)))
    assert_close(k(x, w, b), silu(f64(x) @ f64(w).T + b), 5e-5)
    assert k.launches() == 1
    assert "silu(acc" in k.explain()
    m = tenon.fuse(lambda a, b: a @ b)
    assert_close(m(x, np.ascontiguousarray(w.T)), f64(x) @ f64(w).T, 5e-5)


def test_attention(rng):
    q, k, v = (rng.standard_normal((2, 3, 9, 16), np.float32) for _ in range(3))
    f = tenon.fuse(lambda q, k, v: tenon.attention(q, k, v, causal=True))
    s = f64(q) @ f64(k).swapaxes(-1, -2) / 4
    s[..., ~np.tri(9, dtype=bool)] = -np.inf
    p = np.exp(s - s.max(-1, keepdims=True))
    assert_close(f(q, k, v), p / p.sum(-1, keepdims=True) @ f64(v), 1e-4)


def test_gather_and_integer_arguments(rng):
    table, index = rng.standard_normal((11, 8), np.float32), np.array([3, 0, 10], np.int64)
    k = tenon.fuse(lambda t, i: tenon.gather(t, i) * 2)
    assert_close(k(table, index), table[index] * 2, 0)
    mask = np.array([True, False, True])
    assert_close(tenon.fuse(lambda m, t: tenon.where(m, t, 0.0))(mask, index.astype(np.float32)), [3, 0, 10], 0)


def test_types_of_results(rng):
    x = rng.standard_normal(64).astype(np.float16)
    assert tenon.fuse(lambda x: x * 2)(x).dtype == np.float16
    assert tenon.fuse(lambda x, y: x * y)(x, x.astype(np.float32)).dtype == np.float32
    assert tenon.fuse(lambda x: (x * 2).cast("f32"))(x).dtype == np.float32
    assert tenon.fuse(lambda x: tenon.cast(x, np.float32))(x).dtype == np.float32
    flags = tenon.fuse(lambda x: x > 0)(x)
    assert flags.dtype == np.bool_ and (flags == (x > 0)).all()
    rounded = tenon.fuse(lambda x: tenon.round_to(x.cast("f32"), "bf16"))(x)
    assert_close(rounded, x, 2.0**-7)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[:, 3:19],
        lambda a: a[::2],
        lambda a: a[:, ::3],
        lambda a: a[2:, None, 1::2],
        lambda a: np.broadcast_to(a[:, :1], a.shape),
        lambda a: np.broadcast_to(a[0], (4, *a[0].shape)),
        lambda a: a.reshape(4, 3, 6, 4).transpose(2, 0, 3, 1)[1:, :, ::2],
        lambda a: a[:0],
        lambda a: a[5, 7],
    ],
)
def test_strided_arrays_are_read_where_they_lie(rng, view):
    a = view(rng.standard_normal((12, 24), np.float32))
    k = tenon.fuse(lambda a: a * 2 + 1)
    assert_close(k(a), a * 2 + 1, 1e-6)
    assert_close(a, (k(a) - 1) / 2, 1e-6)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_shape_and_stride(data):
    rank = data.draw(st.integers(0, 4))
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(rank))
    whole = np.arange(int(np.prod([s + 2 for s in shape], dtype=int)), dtype=np.float32).reshape([s + 2 for s in shape])
    a = whole
    for axis in range(rank):
        begin, step = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 3))
        a = a[(slice(None),) * axis + (slice(begin, None, step),)]
    a = a.transpose(data.draw(st.permutations(range(rank))))
    b = data.draw(st.sampled_from([a, a.copy(), np.float32(3) + np.zeros((1,) * rank, np.float32)]))
    k = tenon.fuse(lambda a, b: a * 2 - b)
    try:
        found = k(a, b)
    except tenon.UsageError as e:  # for example every third element of rows of four
        assert "not a view of a dense array" in str(e)
        found = k(np.ascontiguousarray(a), np.ascontiguousarray(b))
    assert_close(found, a * 2 - b, 0)


def test_out_is_written_in_place(rng):
    x = rng.standard_normal((8, 8), np.float32)
    y = np.full((8, 8), np.nan, np.float32)
    k = tenon.fuse(lambda x: x + 1)
    assert k(x, out=y) is y
    assert_close(y, x + 1, 0)


def bad_outputs():
    x = np.zeros((4, 4), np.float32)
    read_only = np.zeros((4, 4), np.float32)
    read_only.flags.writeable = False
    shared = np.zeros((5, 4), np.float32)
    return [
        (x, x, "shares memory"),
        (shared[:4], shared[1:], "shares memory"),
        (x, read_only, "read-only"),
        (x, np.zeros((4, 8), np.float32)[:, ::2], "contiguous"),
        (x, np.zeros((4, 5), np.float32), r"expected f32\[4,4\]"),
        (x, np.zeros((4, 4), np.float16), r"expected f32\[4,4\]"),
    ]


@pytest.mark.parametrize("x, out, message", bad_outputs())
def test_bad_outputs_are_refused_and_not_written(x, out, message):
    before = out.copy()
    with pytest.raises(ValueError, match=message):
        tenon.fuse(lambda x: x + 1)(x, out=out)
    assert (out == before).all()


def test_two_outputs_that_overlap_are_refused():
    x, buffer = np.zeros(8, np.float32), np.zeros(12, np.float32)
    with pytest.raises(tenon.UsageError, match="shares memory"):
        tenon.fuse(lambda x: (x + 1, x + 2))(x, out=(buffer[:8], buffer[4:]))


@pytest.mark.parametrize(
    "function, arguments, kind, message",
    [
        (lambda x: x + 1, (np.zeros(3),), ValueError, "f64"),
        (lambda x: x + 1, (np.zeros(3, np.complex64),), ValueError, "complex64"),
        (lambda x: x + 1, ("text",), TypeError, "expected an array"),
        (lambda x: x + 1, (None,), TypeError, "expected an array"),
        (lambda x: x + 1, (3.0,), ValueError, "at least one array"),
        (lambda x: x + 1, (np.zeros(3, np.float32)[::-1],), ValueError, "negative stride"),
        (lambda x, y: x + y, (np.zeros(3, np.float32), np.zeros(4, np.float32)), ValueError, r"\[3\]"),
        (lambda x, y: x @ y, (np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)), ValueError, "do not fit"),
        (lambda x: 3, (np.zeros(3, np.float32),), TypeError, "return expressions"),
        (lambda x: (x, 3), (np.zeros(3, np.float32),), TypeError, "result.1"),
        (lambda x: x if x > 0 else -x, (np.zeros(3, np.float32),), TypeError, "truth value"),
        (lambda x: x + "a", (np.zeros(3, np.float32),), TypeError, "expression or a number"),
        (lambda x: x[5], (np.zeros(3, np.float32),), IndexError, "outside"),
        (lambda x: x[::2], (np.zeros(3, np.float32),), ValueError, "step 1"),
        (lambda x: tenon.sum(x, axis=2), (np.zeros((3, 3), np.float32),), ValueError, "axis 2 is outside"),
        (lambda x: tenon.sum(x, axis=(0, -2)), (np.zeros((3, 3), np.float32),), ValueError, "different axes"),
        (lambda x: x + np.zeros(3), (np.zeros(3, np.float32),), ValueError, "captured.0.*f64"),
        (lambda x: float(x), (np.zeros(3, np.float32),), TypeError, "no value"),
        (lambda x: x.cast("int12"), (np.zeros(3, np.float32),), TypeError, "dtype"),
        (lambda x, y: x, (np.zeros(3, np.float32),), TypeError, "y"),
        (lambda x: tenon.group_norm(x, 2.7), (np.zeros((1, 4), np.float32),), TypeError, "group_norm: groups: .*float"),
        (lambda x: tenon.group_norm(x, "2"), (np.zeros((1, 4), np.float32),), TypeError, "group_norm: groups: .*str"),
        (lambda x, e: tenon.group_norm(x, 2, eps=e), (np.zeros((1, 4), np.float32), 1e-5), TypeError, "group_norm: eps: expected a number, got Expr"),
        (lambda x: tenon.conv2d(x, x, padding=None), (np.zeros((1, 1, 1, 1), np.float32),), TypeError, "conv2d: expected whole numbers, got NoneType"),
        (lambda x: x.reshape(None), (np.zeros(3, np.float32),), TypeError, "reshape: expected whole numbers, got NoneType"),
    ],
)
def test_bad_functions_and_arguments(function, arguments, kind, message):
    with pytest.raises(kind, match=message):
        tenon.fuse(function)(*arguments)


def test_operations_outside_of_fuse_say_so():
    with pytest.raises(TypeError, match="inside a function"):
        tenon.silu(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="expected a function"):
        tenon.fuse(3)
    with pytest.raises(tenon.UsageError, match="not been called"):
        tenon.fuse(lambda x: x).explain()


def test_an_expression_of_another_function_is_refused(rng):
    kept = []
    x = rng.standard_normal(4).astype(np.float32)
    tenon.fuse(lambda x: kept.append(x) or x * 2)(x)
    with pytest.raises(ValueError, match="another"):
        tenon.fuse(lambda x: x + kept[0])(x)
    with pytest.raises(ValueError, match="another"):
        tenon.fuse(lambda x: kept[0])(x)


def test_explain_shows_what_stayed_apart(rng):
    x, w = rng.standard_normal((64, 64), np.float32), rng.standard_normal((64, 64), np.float32)
    k = tenon.fuse(lambda x, w: tenon.softmax(tenon.linear(x, w)), name="scores")
    text = k.explain(x, w)
    assert "gemm" in text and "rows" in text and "refused: " in text and "computed in #1" in text
    assert k.plan().startswith('plan "scores"')


def test_calls_from_several_threads(rng):
    k = tenon.fuse(lambda x, a: tenon.softmax(x) * a)
    xs = [rng.standard_normal((50, 64 + i)).astype(np.float32) for i in range(4)]
    wrong = []

    def work(i):
        for n in range(20):
            y = k(xs[i], float(n))
            e = np.exp(f64(xs[i]))
            if not np.abs(y - e / e.sum(-1, keepdims=True) * n).max() <= 1e-5 * max(n, 1):
                wrong.append((i, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_forked_child_can_go_on(rng):
    x = rng.standard_normal(1 << 16).astype(np.float32)
    k = tenon.fuse(lambda x: x * 2)
    k(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if (k(x) == x * 2).all() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_keyword_arguments_and_defaults(rng):
    x = rng.standard_normal(8).astype(np.float32)

    def scaled(x, scale=2.0):
        return x * scale

    k = tenon.fuse(scaled)
    assert_close(k(x), 2 * x, 0)
    assert_close(k(x, scale=3.0), 3 * x, 0)
    assert_close(k(x=x), 2 * x, 0)


def test_keyword_only_arguments(rng):
    x, y = (rng.standard_normal((3, 8)).astype(np.float32) for _ in range(2))
    calls = []

    def mixed(x, *more, scale, shift=1.0, **rest):
        calls.append(1)
        for m in more:
            x = x + m
        for name in sorted(rest):
            x = x * rest[name]
        return x * scale + shift

    k = tenon.fuse(mixed)
    assert_close(k(x, scale=y), x * y + 1, 1e-6)
    assert_close(k(x, scale=2.0, shift=3.0), x * 2 + 3, 1e-6)
    assert_close(k(x, y, y, scale=2.0), (x + y + y) * 2 + 1, 1e-5)
    assert_close(k(x, scale=y, b=y, a=2.0), x * 2 * y * y + 1, 1e-5)
    assert_close(k(x, scale=y, c=y, a=2.0), x * 2 * y * y + 1, 1e-5)
    assert len(calls) == 5
    assert_close(k(x, shift=4.0, scale=3.0), x * 3 + 4, 1e-5)
    out = np.empty_like(x)
    assert k(x, scale=y, out=out) is out
    assert_close(out, x * y + 1, 1e-6)
    assert k.launches(x, scale=y) == 1
    with pytest.raises(TypeError, match="scale"):
        k(x)


def test_remainders_and_floor_quotients_are_those_of_numpy(rng):
    values = np.array([0.0, 1.0, -1.0, 0.1, -0.1, 0.3, 2.5, -2.5, 7.0, -7.0, 1e-30, -1e-30, 1e6, 123456.7, np.inf, np.nan])
    a, b = (m.astype(np.float32).ravel() for m in np.meshgrid(values, values))
    a = np.concatenate([a, (rng.standard_normal(4000) * 100).astype(np.float32)])
    b = np.concatenate([b, rng.standard_normal(4000).astype(np.float32)])
    with np.errstate(all="ignore"):
        rest, quotient = a % b, a // b
        mine, mine_quotient = tenon.fuse(lambda a, b: (a % b, a // b))(a, b)
        by_number = tenon.fuse(lambda a: (a % 3, a // 3, 5.5 % a, 5.5 // a))(a)
        expected = (a % np.float32(3), a // np.float32(3), np.float32(5.5) % a, np.float32(5.5) // a)
    finite = np.isfinite(a) & np.isfinite(b) & (np.abs(quotient) < 2**23)
    assert finite.mean() > 0.8
    assert_close(mine[finite], rest[finite], 0)
    assert_close(mine_quotient[finite & (b != 0)], quotient[finite & (b != 0)], 0)
    by_zero = finite & (b == 0)
    assert np.isnan(mine[by_zero]).all()
    for found, want in zip(by_number, expected):
        good = np.isfinite(want) & np.isfinite(a) & (np.abs(want) < 2**23)
        assert_close(found[good], want[good], 0)


@pytest.mark.parametrize("f", [lambda a, b: a // b, lambda a, b: a % b])
def test_quotients_and_remainders_of_special_values_are_those_of_numpy(f):
    values = np.array([0.0, -0.0, 1.0, -1.0, 5.5, -5.5, np.inf, -np.inf, np.nan], np.float32)
    a, b = (m.ravel() for m in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = f(a, b)
    got = tenon.fuse(f)(a, b)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_arrays_from_elsewhere_are_inputs(rng):
    x = rng.standard_normal((4, 8)).astype(np.float32)
    w, b = rng.standard_normal((8, 3)).astype(np.float32), rng.standard_normal(3).astype(np.float32)
    calls = []

    def layer(x):
        calls.append(1)
        return tenon.silu(x @ w + b) + b * tenon.exp(b)

    k = tenon.fuse(layer)
    for _ in range(2):
        assert_close(k(x), silu(f64(x) @ w + b) + b * np.exp(f64(b)), 1e-5)
        b += 1  # read in place by every call
    assert len(calls) == 1
    assert_close(tenon.fuse(lambda x: w.T @ x.T)(x), w.T @ x.T, 1e-5)
    assert_close(tenon.fuse(lambda x: np.float32(2) * x - b[:1])(x), 2 * x - b[:1], 1e-6)
    assert_close(tenon.fuse(lambda x: tenon.linear(x, np.ascontiguousarray(w.T), b))(x), f64(x) @ w + b, 1e-5)
    assert_close(tenon.fuse(lambda x: tenon.concat([x, x0], axis=0))(x), np.concatenate([x, x0]), 0)
    assert_close(tenon.fuse(lambda x: w % x[0, 0])(x), w % x[0, 0], 0)


x0 = np.arange(8, dtype=np.float32)[None]


def test_numbers_alone_do_not_widen_a_result(rng):
    x = rng.standard_normal(8).astype(np.float16)
    y = tenon.fuse(lambda x, a: x * (a * 2))(x, 1.5)
    assert y.dtype == np.float16
    assert_close(y, x * np.float16(3), 0)


def test_sums_over_no_elements_are_refused():
    empty = np.ones((3, 0), np.float32)
    for name in ("sum", "mean", "max"):
        with pytest.raises(tenon.Error, match=rf"^{name}: reduces over axis -1 without elements of \[3, 0\]"):
            tenon.fuse(getattr(tenon, name))(empty)
    with pytest.raises(tenon.Error, match="without elements"):
        tenon.fuse(lambda a, b: a @ b)(empty, np.ones((0, 5), np.float32))


def test_numbers_that_fit_nothing_are_named():
    x = np.ones((2, 3), np.float32)
    huge = 10**400
    with pytest.raises(tenon.UsageError, match="scale.*expected a number that a float can hold"):
        tenon.fuse(lambda a, scale: a * scale)(x, huge)
    cases = {
        "mul": lambda a: a * huge,
        "reshape": lambda a: a.reshape(huge, 1),
        "broadcast_to": lambda a: tenon.broadcast_to(a, (huge, 2, 3)),
        "pad": lambda a: tenon.pad(a, [(huge, 0), (0, 0)]),
        "clamp": lambda a: tenon.clamp(a, 0, huge),
    }
    for name, function in cases.items():
        with pytest.raises(tenon.UsageError, match=rf"{name}: .*an integer of 1329 bits"):
            tenon.fuse(function)(x)
    for function in (lambda a: tenon.softmax(a, axis=(0, 1)), lambda a: tenon.concat([a, a], axis="x")):
        with pytest.raises(TypeError, match="(softmax|concat): axis: expected a whole number, got (tuple|str)"):
            tenon.fuse(function)(x)
    for function in (lambda a: a.reshape(2.5, 1), lambda a: tenon.pad(a, [("x", 0), (0, 0)])):
        with pytest.raises(TypeError, match="expected whole numbers"):
            tenon.fuse(function)(x)


def test_arrays_that_cannot_be_read_are_named():
    k = tenon.fuse(lambda a: a * 2)
    with pytest.raises(tenon.UsageError, match="multiple of its elements' 4 bytes"):
        k(np.frombuffer(bytearray(41), np.float32, 10, offset=1))
    k(np.ones(10, np.float32))
    with pytest.raises(tenon.UsageError, match="multiple of its elements' 4 bytes"):  # with a plan, too
        k(np.frombuffer(bytearray(41), np.float32, 10, offset=1))
    for array in (np.ones(3, ">f4"), np.array([None]), np.zeros(3, [("a", "f4")])):
        with pytest.raises(TypeError, match=r"^a: .*got ndarray of .*(f4|object).* \(DLPack only.*as with astype"):
            k(array)
    x = np.ones((3, 2), np.float32)
    assert tenon.fuse(lambda a: a[np.int64(1)])(x).shape == (2,)


def test_threads_are_checked():
    for threads in (-1, 1 << 40, 1.5, True):
        with pytest.raises(tenon.UsageError, match="threads: expected a whole number from 0 to 1024"):
            tenon.Pipeline.from_pretrained(threads=threads)
        with pytest.raises(tenon.UsageError, match="threads"):
            tenon.load("random:vit-s14", threads=threads)
    for threads in (0, -1, 10**30):
        with pytest.raises(tenon.UsageError, match="threads: expected a whole number from 1 to 1024"):
            tenon.set_num_threads(threads)
    with pytest.raises(tenon.UsageError, match="ordinal"):
        tenon.describe_device("cpu", 10**30)


def test_numbers_of_numpy_are_constants():
    x = np.ones(3, np.float32)
    for two in (np.float32(2), np.int64(2), np.float64(2)):
        assert (tenon.fuse(lambda a, two=two: a * two)(x) == 2).all()
