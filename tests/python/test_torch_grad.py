"""Gradients against PyTorch's autograd, and fused functions that train inside PyTorch."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from conftest import assert_close

import tenon

torch = pytest.importorskip("torch")
F = torch.nn.functional


def mlp(x, w, b, v):
    h = tenon.gelu(tenon.linear(tenon.rms_norm(x, v), w, b))
    return tenon.mean((tenon.softmax(h) - 0.1) ** 2, axis=None)


def torch_mlp(x, w, b, v):
    normed = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * v
    return ((torch.softmax(F.gelu(F.linear(normed, w, b)), -1) - 0.1) ** 2).mean()


def attended(q, k, v):
    return tenon.sum(tenon.attention(q, k, v, causal=True) ** 2, axis=None)


def torch_attended(q, k, v):
    return (F.scaled_dot_product_attention(q, k, v, is_causal=True) ** 2).sum()


def convolved(x, w):
    return tenon.sum(tenon.silu(tenon.conv2d(x, w, padding=1)), axis=None)


def torch_convolved(x, w):
    y = F.conv2d(x.permute(0, 3, 1, 2), w, padding=1)
    return F.silu(y).sum()


CASES = [
    (mlp, torch_mlp, [(6, 32), (48, 32), (48,), (32,)]),
    (attended, torch_attended, [(2, 3, 5, 16), (2, 3, 5, 16), (2, 3, 5, 16)]),
    (convolved, torch_convolved, [(2, 6, 5, 4), (8, 4, 3, 3)]),
    (
        lambda x, y: tenon.sum(tenon.exp(x.T[1:] - y) / (1 + tenon.abs(y)) + tenon.max(x, axis=None), axis=None),
        lambda x, y: (torch.exp(x.T[1:] - y) / (1 + y.abs()) + x.max()).sum(),
        [(6, 6), (5, 6)],
    ),
]


@pytest.mark.parametrize("ours, theirs, shapes", CASES)
def test_against_autograd(ours, theirs, shapes):
    torch.manual_seed(3)
    arguments = [torch.randn(s) for s in shapes]
    exact = [a.double().requires_grad_() for a in arguments]
    value = theirs(*exact)
    wanted = torch.autograd.grad(value, exact)
    got, *grads = tenon.value_and_grad(ours)(*arguments)
    assert_close(got.reshape(()), value.detach(), 1e-4 * max(1.0, float(value.detach().abs())))
    for found, expected in zip(grads, wanted):
        assert_close(found, expected, 1e-4 * float(expected.abs().max()))


def test_what_is_not_selected_gets_no_gradient():
    x = torch.tensor([-1.0, 4.0, -2.0, 0.25])
    for ours, theirs in (
        (lambda a: tenon.sqrt(tenon.relu(a)), lambda a: a.relu().sqrt()),
        (lambda a: tenon.sqrt(tenon.maximum(a, 0)), lambda a: a.maximum(torch.zeros(4)).sqrt()),
        (lambda a: tenon.sqrt(tenon.clamp(a, 0, 9)), lambda a: a.clamp(0, 9).sqrt()),
        (lambda a: tenon.rsqrt(tenon.where(a > 0, a, 0)), lambda a: torch.where(a > 0, a, 0).rsqrt()),
    ):
        mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        tenon.fuse(ours)(mine).sum().backward()
        theirs(other).sum().backward()
        assert_close(mine.grad, other.grad, 1e-6)


def test_a_result_that_is_not_used_adds_nothing():
    x = torch.tensor([0.0, 4.0, -1.0], requires_grad=True)
    y, root = tenon.fuse(lambda a: (a * 2, tenon.sqrt(a)))(x)
    y.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [2, 2, 2]
    root[1].backward()
    assert x.grad[1] == 2.25


def test_a_fused_function_trains_inside_pytorch():
    torch.manual_seed(5)
    layer = tenon.fuse(lambda x, w, b, a: (tenon.silu(tenon.linear(x, w, b)) * a, x * 2))
    x = torch.randn(9, 16, requires_grad=True)
    w, b = torch.nn.Parameter(torch.randn(24, 16)), torch.nn.Parameter(torch.randn(24))

    def total(call, x, w, b):
        y, z = call(x, w, b, 0.5)
        return (y.sigmoid() * torch.linspace(-1, 1, 24).to(y.dtype)).sum() + (z[:, ::2] ** 2).sum()

    def plain(x, w, b, a):
        return F.silu(F.linear(x, w, b)) * a, x * 2

    total(layer, x, w, b).backward()
    exact = [t.detach().double().requires_grad_() for t in (x, w, b)]
    total(plain, *exact).backward()
    for found, expected in zip((x, w, b), exact):
        assert_close(found.grad, expected.grad, 1e-4 * float(expected.grad.abs().max()))
    x.grad = None
    layer(x, w.detach(), b.detach(), 0.5)[1].sum().backward()  # of one result, by one argument
    assert_close(x.grad, torch.full((9, 16), 2.0), 0)


def test_gradients_of_half_types_and_what_is_refused():
    k = tenon.fuse(lambda x, i: (x * x, i < 2))
    x, i = torch.randn(6, dtype=torch.bfloat16, requires_grad=True), torch.arange(6)
    y, below = k(x, i)
    assert y.requires_grad and below.dtype == torch.bool
    y.float().sum().backward()
    assert x.grad.dtype == torch.bfloat16
    assert_close(x.grad, 2 * x.detach().double(), 0.02 * 8)
    with pytest.raises(tenon.UsageError, match="out: cannot be used"):
        tenon.fuse(lambda x: x * 2)(x, out=torch.empty(6, dtype=torch.bfloat16))
    with pytest.raises(tenon.UsageError, match="captured.0: requires gradients"):
        tenon.fuse(lambda y: y * x)(x)
    with torch.no_grad():
        assert not k(x, i)[0].requires_grad


def test_through_torch_compile():
    torch.manual_seed(7)
    k = tenon.fuse(lambda x, w: tenon.gelu(tenon.linear(x, w)))
    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(6, 8, requires_grad=True)
    torch.compile(lambda x, w: (k(x + 1, w) ** 2).sum(), backend="aot_eager", fullgraph=True)(x, w).backward()
    exact = [t.detach().double().requires_grad_() for t in (x, w)]
    (F.gelu(F.linear(exact[0] + 1, exact[1])) ** 2).sum().backward()
    for found, expected in zip((x, w), exact):
        assert_close(found.grad, expected.grad, 1e-4 * float(expected.grad.abs().max()))


def test_a_trainers_path_is_pytorchs(rng):
    from test_grad import network, weights

    first = weights(rng)
    batches = [
        [
            (rng.standard_normal((16, 8)).astype(np.float32), rng.standard_normal((16, 3)).astype(np.float32))
            for _ in "ab"
        ]
        for _ in range(12)
    ]
    trainer = tenon.train.Trainer(network, first, lr=3e-3, weight_decay=0.1, max_grad_norm=0.5)
    p = {n: torch.nn.Parameter(torch.from_numpy(v).double()) for n, v in first.items()}
    optimizer = torch.optim.AdamW(p.values(), lr=3e-3, weight_decay=0.1)
    for micro in batches:
        got = trainer.step(*({"x": x, "y": y} for x, y in micro))
        optimizer.zero_grad()
        wanted = 0.0
        for x, y in micro:
            h = F.gelu(F.linear(torch.from_numpy(x).double(), p["up.weight"], p["up.bias"]))
            loss = ((F.linear(h, p["down.weight"]) - torch.from_numpy(y).double()) ** 2).mean() / 2
            loss.backward()
            wanted += float(loss.detach())
        norm = torch.nn.utils.clip_grad_norm_(p.values(), 0.5)
        optimizer.step()
        assert abs(got - wanted) < 1e-4 * wanted and abs(trainer.grad_norm - float(norm)) < 1e-3 * float(norm)
    for name, value in trainer.parameters().items():
        assert_close(value, p[name].detach(), 1e-4)


@pytest.mark.parametrize(
    "function, plain",
    [
        (lambda a, b: a + b, torch.add),
        (lambda a, b: (a + b) * a, lambda a, b: (a + b) * a),
        (lambda a, b: tenon.silu(a + b), lambda a, b: F.silu(a + b)),
        (lambda a, b: a * 2.0, lambda a, b: a * 2.0),
    ],
)
def test_arguments_with_equal_gradients(function, plain):
    values = [torch.randn(3) for _ in range(2)]
    ours, theirs = ([v.clone().requires_grad_() for v in values] for _ in range(2))
    tenon.fuse(function)(*ours).sum().backward()
    plain(*theirs).sum().backward()
    for a, b in zip(ours, theirs):
        assert_close(a.grad, torch.zeros(3) if b.grad is None else b.grad, 1e-5)
    assert ours[0].grad.data_ptr() != ours[1].grad.data_ptr()  # autograd adds in place


def test_backward_outlives_the_function():
    x = torch.randn(3, requires_grad=True)
    loss = tenon.fuse(lambda x: x * x)(x).sum()
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    first.sum().backward()
    assert_close(x.grad, torch.full((3,), 2.0), 1e-6)


def test_no_rows():
    x, b, w = (torch.randn(s, requires_grad=True) for s in [(0, 8), (8,), (4, 8)])
    (tenon.fuse(lambda x, b: x * b)(x, b).sum() + tenon.fuse(tenon.linear)(x, w).sum()).backward()
    assert x.grad.shape == (0, 8) and not b.grad.any() and not w.grad.any()


def test_writes_are_seen_by_autograd():
    k = tenon.fuse(lambda x: x * 5)
    w, y = torch.randn(3, requires_grad=True), torch.ones(3)
    product = (w * y).sum()
    k(torch.ones(3), out=y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    for out in (w, w * 2):
        with pytest.raises(tenon.UsageError, match="requires gradients"):
            k(torch.ones(3), out=out)


def test_other_arguments_beside_tensors():
    k, x = tenon.fuse(lambda x, s: x * s), torch.ones(3, requires_grad=True)
    for other in (None, "2", np.ones(3), True):
        with pytest.raises(TypeError, match="^s: expected a tensor or a number"):
            k(x, other)


class Setting:
    scale = 1.0
    several = False


def test_gradients_are_of_what_ran():
    setting, x = Setting(), torch.arange(1.0, 5.0, requires_grad=True)
    k = tenon.fuse(lambda x: (x * setting.scale, x) if setting.several else x * setting.scale)
    k(x.detach())
    setting.scale, setting.several = 0.5, True
    y = k(x)
    setting.scale = 0.25
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert y.tolist() == x.tolist() and grad.tolist() == [1.0] * 4
    turned = k(x.detach().reshape(2, 2).T.contiguous().T.reshape(4))
    assert turned.tolist() == x.tolist()


def test_gradients_read_the_arrays_that_the_call_read():
    setting, x = Setting(), torch.ones(4, requires_grad=True)
    setting.scale = torch.full((4,), 2.0)
    k = tenon.fuse(lambda x: x * x * setting.scale)
    first = k(x)
    setting.scale = torch.full((4,), 5.0)
    first.sum().backward()
    assert x.grad.tolist() == [4.0] * 4


def test_results_keep_the_names_of_their_trace():
    names, x = ["a", "b"], torch.ones(4, requires_grad=True)
    k = tenon.fuse(lambda x: {n: x * (i + 1.0) for i, n in enumerate(names)})
    k(x.detach())
    names.reverse()
    found = k(x)
    assert found["a"].tolist() == [1.0] * 4 and found["b"].tolist() == [2.0] * 4
    found["b"].sum().backward()
    assert x.grad.tolist() == [2.0] * 4


def test_compiled_gradients_are_of_what_ran():
    torch.compiler.reset()
    setting, x = Setting(), torch.ones(4, requires_grad=True)
    k = tenon.fuse(lambda x: x * x * setting.scale)
    net = torch.compile(lambda x: k(x) * 3, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        x.grad = None
        y = net(x)
        setting.scale = 0.5
        y.sum().backward()
        assert y.tolist() == [3.0] * 4 and x.grad.tolist() == [6.0] * 4


def test_a_captured_tensor_may_not_change_before_its_gradient():
    x, factor, shift = torch.ones(4, requires_grad=True), torch.ones(4), torch.zeros(4)
    k = tenon.fuse(lambda x: x * factor + shift)
    y = k(x)
    shift.add_(1)  # no gradient reads it
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert grad.tolist() == [1.0] * 4
    y = k(x)
    factor.fill_(0)
    with pytest.raises(tenon.UsageError, match="^captured.0: .*modified by an inplace operation"):
        y.sum().backward()
    y = k(x)
    factor.data = torch.ones(2, 4)[0].half()
    with pytest.raises(tenon.UsageError, match="^captured.0: expected the type and shape of the forward pass"):
        y.sum().backward()
    k(x).sum().backward()
    assert x.grad.tolist() == [1.0] * 4


def test_a_captured_tensor_may_be_of_inference():
    x = torch.ones(4, requires_grad=True)
    with torch.inference_mode():
        factor = torch.full((4,), 3.0)
    tenon.fuse(lambda x: x * factor)(x).sum().backward()
    assert x.grad.tolist() == [3.0] * 4


@pytest.mark.parametrize("number", [np.float32(2), np.int64(2), np.float64(2), Fraction(2)])
def test_numbers_of_other_types_beside_tensors(number):
    k, x = tenon.fuse(lambda x, s: x * s), torch.ones(3, dtype=torch.float16)
    for requires in (False, True):
        y = k(x.requires_grad_(requires), number)
        assert y.dtype == torch.float16 and y.tolist() == [2.0] * 3 and y.requires_grad == requires
    with pytest.raises(tenon.UsageError, match="^s: expected a number that a float can hold"):
        k(x, 10**400)


USES = [
    lambda y: torch.diag_embed(y).cumsum(-1),
    lambda y: torch.slice_scatter(y.new_zeros(3, 7), y, 1, 0, 7, 2).cumsum(0),
]


@pytest.mark.parametrize("use", USES, ids=["diagonal", "every second column"])
def test_gradients_of_results_in_any_layout(use):
    """PyTorch chooses how what it passes back lies in memory."""
    k = tenon.fuse(lambda x: tenon.tanh(x) * x)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(11))
    mine, compiled, exact = x.clone().requires_grad_(), x.clone().requires_grad_(), x.double().requires_grad_()
    (first,) = torch.autograd.grad(use(k(mine)).sin().sum(), mine, create_graph=True)
    (wanted,) = torch.autograd.grad(use(exact.tanh() * exact).sin().sum(), exact, create_graph=True)
    assert_close(first, wanted, 1e-4)
    torch.compiler.reset()
    torch.compile(lambda x: use(k(x)).sin().sum(), backend="aot_eager")(compiled).backward()
    assert_close(compiled.grad, wanted, 1e-4)
    (second,) = torch.autograd.grad((first**2).sum(), mine)
    (wanted,) = torch.autograd.grad((wanted**2).sum(), exact)
    assert_close(second, wanted, 1e-3 * max(1.0, float(wanted.abs().max())))


def test_a_gradient_that_is_given_in_any_layout():
    k = tenon.fuse(lambda x: x * 2)
    x, seed = torch.randn(3, 4, requires_grad=True), torch.randn(3, 7)[:, ::2]
    k(x).backward(seed)
    assert_close(x.grad, 2 * seed, 1e-6)
