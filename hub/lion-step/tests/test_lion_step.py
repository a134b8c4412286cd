"""Compares the step with PyTorch's own arithmetic; run with the built kernel on the path."""

import pytest
import torch

import lion_step as kernel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPTIONS = (1e-2, 0.9, 0.99, 0.1)


def reference(p, m, g, lr, beta1, beta2, weight_decay):
    u = m * beta1 + g * (1 - beta1)
    return p * (1 - lr * weight_decay) - lr * u.sign(), m * beta2 + g * (1 - beta2)


def three(shape, dtype=torch.float32):
    return [torch.randn(shape, device=DEVICE).to(dtype) for _ in range(3)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(0,), (1,), (33, 65), (4096 * 3 + 5,)])
def test_one_step(dtype, shape):
    p, m, g = three(shape, dtype)
    options = (0.25, *OPTIONS[1:])  # a step larger than the limit
    new_p, new_m = reference(p.float(), m.float(), g.float(), *options)
    kernel.lion_step(p, m, g, *options)
    for found, expected in ((p, new_p), (m, new_m)):
        limit = torch.finfo(dtype).eps * 2 * expected.abs().clamp(min=1)
        assert bool(((found.float() - expected).abs() <= limit).all())


def test_many_tensors_and_odd_addresses():
    tensors = [[t[1:] if i % 2 else t for t in three(i * 37 % 5000 + 2)] for i in range(300)]
    expected = [reference(p, m, g, *OPTIONS) for p, m, g in tensors]
    params, exp_avgs, grads = ([t[i] for t in tensors] for i in range(3))
    kernel.lion_foreach(params, exp_avgs, grads, *OPTIONS)
    for p, m, (new_p, new_m) in zip(params, exp_avgs, expected):
        assert bool(((p - new_p).abs() <= 1e-6 * new_p.abs().clamp(min=1)).all())
        assert bool(((m - new_m).abs() <= 1e-6 * new_m.abs().clamp(min=1)).all())


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda p, m, g: (p, m, g[:-1]), "grad: expected shape"),
        (lambda p, m, g: (p.double(), m, g), "param: expected float32"),
        (lambda p, m, g: (p, m.half(), g), "exp_avg: expected"),
        (lambda p, m, g: (p.view(4, 2).T, m.view(2, 4), g.view(2, 4)), "param: expected a contiguous"),
        (lambda p, m, g: (p, p, g), "share memory"),
    ],
)
def test_what_is_refused(change, message):
    arguments = change(*three(8))
    before = [a.clone() for a in arguments]
    with pytest.raises((ValueError, RuntimeError), match=message):
        kernel.lion_step(*arguments, *OPTIONS)
    assert all(bool((a == b).all()) for a, b in zip(arguments, before))


def test_lists_share_nothing_that_is_written():
    (p, m, g), (_, n, _) = three(8), three(8)
    before = [a.clone() for a in (p, m, n)]
    with pytest.raises((ValueError, RuntimeError), match="share memory"):
        kernel.lion_foreach([p, p], [m, n], [g, g])
    assert all(bool((a == b).all()) for a, b in zip((p, m, n), before))
    kernel.lion_foreach([p, p.clone()], [m, n], [g, g])


@pytest.mark.parametrize("change", [{"lr": float("inf")}, {"lr": float("nan")}, {"weight_decay": float("inf")}])
def test_numbers_that_are_not_finite_are_refused(change):
    p, m, g = three(8)
    before = p.clone()
    (name,) = change
    with pytest.raises((ValueError, RuntimeError), match=f"{name}: expected a finite"):
        kernel.lion_step(p, m, g, **change)
    assert bool((p == before).all())


def test_empty_lists_are_left_alone():
    kernel.lion_foreach([], [], [])
    with pytest.raises((ValueError, RuntimeError), match="lists of one length"):
        kernel.lion_foreach([], [torch.ones(1)], [])


@pytest.mark.parametrize("lists", [False, True])
def test_a_written_tensor_is_seen_by_autograd(lists):
    p = torch.nn.Parameter(torch.ones(3, device=DEVICE))
    m = torch.zeros_like(p, requires_grad=True)
    losses = [(p * p).sum(), (m * m).sum()]
    if lists:
        kernel.lion_foreach([p], [m], [torch.ones_like(p)], lr=0.5)
    else:
        kernel.lion_step(p, m, torch.ones_like(p), lr=0.5)
    for loss in losses:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    with torch.inference_mode():
        kernel.lion_step(*three(3))


def test_the_compiler_takes_it_whole():
    def train(p, m, g):
        kernel.lion_step(p, m, g, *OPTIONS)
        return p * 2

    p, m, g = three(64)
    q, n = p.clone(), m.clone()
    expected = train(q, n, g)
    assert bool((torch.compile(train, fullgraph=True, backend="aot_eager")(p, m, g) == expected).all())
    assert bool((p == q).all()) and bool((m == n).all())
