"""PyTorch's side of Lion: operators, the compiler, the optimizer."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import tenon
from conftest import assert_close, differing

torch = pytest.importorskip("torch")
import tenon.optim  # noqa: E402

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() and "cuda" in tenon.backend_names() else [])
OPTIONS = (1e-2, 0.9, 0.99, 0.1)


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def reference(p, m, g, lr, beta1, beta2, weight_decay):
    u = m * beta1 + g * (1 - beta1)
    return p * (1 - lr * weight_decay) - lr * u.sign(), m * beta2 + g * (1 - beta2)


def three(shape, device, dtype=torch.float32):
    return [torch.randn(shape, device=device).to(dtype) for _ in range(3)]


def close(found, expected, tolerance=1e-6):
    assert_close(found, expected, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_step(device, dtype):
    p, m, g = three((33, 65), device, dtype)
    options = (0.25, *OPTIONS[1:])  # a step larger than the tolerance
    new_p, new_m = reference(p.float(), m.float(), g.float(), *options)
    tenon.lion_step(p, m, g, *options)
    scale = torch.finfo(dtype).eps * 4
    close(p, new_p, scale)
    close(m, new_m, scale)


def negated(values):
    """A tensor of these values whose memory holds the negated numbers."""
    return torch._neg_view(-values)


def test_gradients_that_are_negated_lazily(device):
    p = torch.nn.Parameter(torch.tensor(2.0, device=device))
    q = torch.nn.Parameter(torch.tensor(3.0, device=device))
    for foreach in (None, False):
        p.grad = q.grad = None
        (torch.complex(p, q).conj() * torch.complex(torch.ones_like(p), torch.ones_like(p))).real.backward()
        assert q.grad.is_neg()
        tenon.optim.Lion([p, q], lr=0.5, foreach=foreach).step()
    close(p, torch.tensor(1.0), 0)
    close(q, torch.tensor(2.0), 0)
    p, m, g = three(5, device)
    twins = [(p.clone(), m.clone()) for _ in range(3)]
    tenon.lion_step(*twins[0], g, *OPTIONS)
    tenon.lion_step(*twins[1], negated(g), *OPTIONS)
    tenon.lion_foreach([p, twins[2][0]], [m.cpu().numpy(), twins[2][1]] if device == "cpu" else [m, twins[2][1]],
                       [g, negated(g)], *OPTIONS)  # fmt: skip
    for twin, n in (*twins[1:], (p, m)):
        close(twin, twins[0][0], 0)
        close(n, twins[0][1], 0)


def test_what_is_written_must_hold_its_numbers(device):
    for role in range(2):
        tensors = three(5, device)
        tensors[role] = negated(tensors[role])
        with pytest.raises(tenon.UsageError, match=rf"^\[{('param', 'exp_avg')[role]}\] .*negated"):
            tenon.lion_step(*tensors, *OPTIONS)


def test_a_step_inside_a_transform_of_functions(device):
    p, m, g = three(5, device)
    q, n = p.clone(), m.clone()
    tenon.lion_step(q, n, g, *OPTIONS)
    r, o = p.clone(), m.clone()

    def traced(x):
        tenon.lion_step(p, m, x, *OPTIONS)
        tenon.lion_foreach([r], [o], [x], *OPTIONS)
        return x.sum()

    torch.func.grad(traced)(g)
    for found in (p, r):
        close(found, q, 0)


def test_the_operator_is_registered_as_pytorch_wants_it():
    p, m, g = three(17, "cpu")
    torch.library.opcheck(torch.ops.tenon.lion_step.default, (p, m, g, *OPTIONS))
    torch.library.opcheck(torch.ops.tenon.lion_foreach.default, ([p], [m], [g], *OPTIONS))
    schema = str(torch.ops.tenon.lion_step.default._schema)
    assert "Tensor(a!) param, Tensor(b!) exp_avg, Tensor grad" in schema


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_compiler_takes_steps_without_a_graph_break(device, backend):
    def train(x, p, m, g, q, n, h):
        tenon.lion_step(p, m, g, *OPTIONS)
        tenon.lion_foreach([p, q], [m, n], [g, h], *OPTIONS)
        return x * p + q

    x, *tensors = (torch.randn(40, device=device) for _ in range(7))
    twin = [t.clone() for t in tensors]
    expected = train(x, *twin)
    found = torch.compile(train, fullgraph=True, backend=backend)(x, *tensors)
    close(found, expected, 0)
    for a, b in zip(tensors, twin):
        close(a, b, 0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_tensor_as_learning_rate_changes_without_another_compilation(device, backend):
    torch.compiler.reset()
    graphs = []

    def counting(module, inputs):
        graphs.append(1)
        return torch._dynamo.lookup_backend(backend)(module, inputs)

    @torch.compile(fullgraph=True, backend=counting)
    def step(p, m, g, lr):
        tenon.lion_step(p, m, g, lr, *OPTIONS[1:])
        tenon.lion_foreach([p], [m], [g], lr, *OPTIONS[1:])

    p, m, g = three(12, device)
    twin_p, twin_m = p.clone(), m.clone()
    for rate in (1e-2, 5e-2, 0.0):
        step(p, m, g, torch.tensor(rate))
        for _ in range(2):
            tenon.lion_step(twin_p, twin_m, g, torch.tensor(rate).item(), *OPTIONS[1:])
    close(p, twin_p, 0)
    close(m, twin_m, 0)
    assert len(graphs) == 1


@pytest.mark.parametrize("foreach", [None, False])
def test_the_optimizers_step_is_compiled_whole(device, foreach):
    torch.compiler.reset()
    net, twin = model(device), model(device)
    rate = torch.tensor(1e-2)
    options = {"weight_decay": 0.1, "foreach": foreach}
    optimizer, plain = tenon.optim.Lion(net.parameters(), lr=rate, **options), tenon.optim.Lion(twin.parameters(), lr=1e-2, **options)
    step = torch.compile(optimizer.step, fullgraph=True, backend="aot_eager")
    torch.manual_seed(2)
    for lr in (1e-2, 1e-3, 1e-2):
        rate.fill_(lr)
        plain.param_groups[0]["lr"] = rate.item()
        x = torch.randn(5, 7).to(device)
        for n, opt in ((net, optimizer), (twin, plain)):
            opt.zero_grad()
            n(x).square().mean().backward()
        step()
        plain.step()
    assert equal(net, twin)


def test_what_other_optimizers_can_is_refused_by_name():
    p = [torch.nn.Parameter(torch.ones(2))]
    for options, name in (({"fused": True}, "fused"), ({"differentiable": True}, "differentiable")):
        with pytest.raises(tenon.UsageError, match=f"{name}: expected"):
            tenon.optim.Lion(p, **options)
    tenon.optim.Lion(p, fused=None, differentiable=False)
    tenon.optim.Lion(p, fused=False)


class OwnParameter(torch.nn.Parameter):
    """A tensor whose class is not PyTorch's."""


@pytest.mark.parametrize("kind", [torch.nn.Parameter, OwnParameter])
def test_a_written_parameter_is_seen_by_autograd(device, kind):
    p, m, g = three(8, device)
    p = kind(p)
    loss = (p * p).sum()
    before = p._version
    tenon.lion_step(p, m, g, *OPTIONS)
    assert p._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def model(device, dtype=torch.float32):
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(7, 11), torch.nn.GELU(), torch.nn.Linear(11, 3))
    return layers.to(device=device, dtype=dtype)


def train(net, optimizer, steps, dtype=torch.float32):
    torch.manual_seed(2)
    device = next(net.parameters()).device
    for _ in range(steps):
        x = torch.randn(5, 7).to(device=device, dtype=dtype)
        optimizer.zero_grad()
        net(x).float().square().mean().backward()
        optimizer.step()


def equal(a, b):
    return all(bool((x == y).all()) for x, y in zip(a.state_dict().values(), b.state_dict().values()))


def test_optimizer_against_the_reference(device):
    net, twin = model(device), model(device)
    optimizer = tenon.optim.Lion(net.parameters(), lr=1e-2, weight_decay=0.1)
    moments = [torch.zeros_like(p) for p in twin.parameters()]
    torch.manual_seed(2)
    for _ in range(10):
        x = torch.randn(5, 7).to(device)
        for n in (net, twin):
            n.zero_grad()
            n(x).square().mean().backward()
        for p, q in zip(net.parameters(), twin.parameters()):
            close(p.grad, q.grad, 1e-4)
        optimizer.step()
        with torch.no_grad():
            for i, p in enumerate(twin.parameters()):
                new_p, moments[i] = reference(p, moments[i], p.grad, 1e-2, 0.9, 0.99, 0.1)
                p.copy_(new_p)
    for p, q in zip(net.parameters(), twin.parameters()):
        assert differing(p, q, 1e-5).mean() <= 0.05  # a gradient within rounding of 0 steps the other way


@pytest.mark.parametrize("foreach", [None, False])
def test_state_dict_goes_on_where_it_was(device, foreach):
    a, b = model(device), model(device)
    first = tenon.optim.Lion(a.parameters(), lr=1e-2, foreach=foreach)
    train(a, first, 4)
    b.load_state_dict(a.state_dict())
    second = tenon.optim.Lion(b.parameters(), lr=0.5)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(a, first, 4)
    train(b, second, 4)
    assert equal(a, b)


def test_groups_have_their_own_options(device):
    net = model(device)
    frozen = net[0].weight.detach().clone()
    optimizer = tenon.optim.Lion([{"params": net[0].parameters(), "lr": 0.0}, {"params": net[2].parameters()}], lr=0.1)
    train(net, optimizer, 1)
    assert bool((net[0].weight == frozen).all())
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3, device=device))], "weight_decay": 0.5})
    assert optimizer.param_groups[-1]["betas"] == (0.9, 0.99)


def test_a_step_names_the_group_with_a_bad_option(device):
    net = model(device)
    before = [p.detach().clone() for p in net.parameters()]
    for name, value in (("lr", -1.0), ("lr", "a"), ("lr", torch.tensor(-1.0)), ("betas", (0.9, 1.0)), ("betas", 3),
                        ("weight_decay", -1), ("non_finite", "x")):  # fmt: skip
        groups = [{"params": net[0].parameters()}, {"params": net[2].parameters(), name: value}]
        with pytest.raises(tenon.UsageError, match=rf"^param_groups\[1\]\.{name}: expected .*, got"):
            train(net, tenon.optim.Lion(groups), 1)
        assert all(bool((p == b).all()) for p, b in zip(net.parameters(), before)), "nothing was written"


def test_betas_may_be_any_sequence(device):
    for betas in (np.array([0.5, 0.75]), torch.tensor([0.5, 0.75]), [0.5, 0.75]):
        optimizer = tenon.optim.Lion(model(device).parameters(), betas=betas)
        assert tuple(optimizer.param_groups[0]["betas"]) == (0.5, 0.75)
        assert type(optimizer.param_groups[0]["betas"]) in (tuple, list), "so that a saved state needs no NumPy"
    for bad in ("00", np.ones(3), np.array(0.5), {0.5: 0, 0.75: 0}, np.array([0.5, 1.0])):
        with pytest.raises(tenon.UsageError, match="betas: expected two numbers"):
            tenon.optim.Lion(model(device).parameters(), betas=bad)


def test_closure_and_scheduler(device):
    net = model(device)
    optimizer = tenon.optim.Lion(net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(1, 7, device=device)).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).requires_grad
    scheduler.step()
    assert abs(optimizer.param_groups[0]["lr"] - 1e-3) <= 1e-12


def test_master_weights_keep_small_steps(device):
    torch.manual_seed(0)
    p = torch.nn.Parameter(torch.ones(64, device=device, dtype=torch.bfloat16))
    plain = torch.nn.Parameter(p.detach().clone())
    kept = tenon.optim.Lion([p], lr=1e-4, master_weights=True)
    lost = tenon.optim.Lion([plain], lr=1e-4)
    for _ in range(100):
        for q in (p, plain):
            q.grad = torch.ones_like(q)
        kept.step()
        lost.step()
    assert bool((plain == 1).all())
    close(p, torch.full_like(p, 0.99), 2.0**-8)
    other = tenon.optim.Lion([torch.nn.Parameter(p.detach().clone())], lr=1e-4, master_weights=True)
    other.load_state_dict(kept.state_dict())
    loaded = next(iter(other.state.values()))["master"]
    assert loaded.dtype == torch.float32 and bool((loaded == next(iter(kept.state.values()))["master"]).all())


def test_masters_follow_weights_that_others_change(device):
    """Weights loaded into the module after steps were made are not undone by the next step; others keep their bits."""
    net = torch.nn.Linear(4, 3).to(device, torch.bfloat16)
    optimizer = tenon.optim.Lion(net.parameters(), lr=1e-4, master_weights=True)

    def step():
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()

    def master():
        return optimizer.state[net.weight]["master"]

    step()
    before = master().clone()
    with torch.no_grad():
        net.weight[0, 1] = 5
    step()
    expected = before - 1e-4
    expected[0, 1] = 5 - 1e-4
    close(master(), expected)
    loaded = {"weight": torch.full((3, 4), 2.0), "bias": torch.zeros(3)}
    net.load_state_dict(loaded)
    step()
    close(master(), loaded["weight"].to(device) - 1e-4)
    assert bool((net.weight == master().to(torch.bfloat16)).all())
    saved = optimizer.state_dict()  # of other weights than these
    net.load_state_dict({n: v + 1 for n, v in loaded.items()})
    optimizer.load_state_dict(saved)
    step()
    close(master(), loaded["weight"].to(device) + 1 - 1e-4)


@pytest.mark.parametrize("foreach", [None, False])
def test_a_compiled_step_follows_weights_that_others_change(device, foreach):
    torch.compiler.reset()
    net = torch.nn.Linear(4, 3).to(device, torch.bfloat16)
    optimizer = tenon.optim.Lion(net.parameters(), lr=1e-4, master_weights=True, foreach=foreach)
    step = torch.compile(optimizer.step, backend="aot_eager")
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    for _ in range(2):
        step()
    kept = optimizer.state[net.bias]["master"].clone()
    loaded = {"weight": torch.full((3, 4), 2.0), "bias": net.bias.detach().clone()}
    net.load_state_dict(loaded)
    step()
    close(optimizer.state[net.weight]["master"], loaded["weight"].to(device) - 1e-4)
    close(optimizer.state[net.bias]["master"], kept - 1e-4)


def half_model_after_steps(device):
    net = model(device, torch.bfloat16)
    optimizer = tenon.optim.Lion(net.parameters(), lr=1e-3, master_weights=True)
    train(net, optimizer, 2, torch.bfloat16)
    return net, optimizer


def test_a_model_with_masters_may_become_f32(device):
    net, optimizer = half_model_after_steps(device)
    saved = copy.deepcopy(optimizer.state_dict())
    net.float()
    before = net[0].weight.detach().clone()
    train(net, optimizer, 2)
    assert bool((net[0].weight != before).any()) and not any("master" in s for s in optimizer.state.values())
    other = model(device)
    second = tenon.optim.Lion(other.parameters(), lr=1e-3, master_weights=True)
    second.load_state_dict(saved)
    train(other, second, 1)
    assert not any("master" in s for s in second.state.values())


def test_masters_go_where_a_hook_sends_their_parameters(device):
    net, optimizer = half_model_after_steps(device)
    order = [2, 0, 3, 1]
    shuffled = [list(net.parameters())[i] for i in order]
    other = tenon.optim.Lion(shuffled, lr=1e-3, master_weights=True)

    def reorder(_, given):
        return {**given, "state": {new: given["state"][old] for new, old in enumerate(order)}}

    other.register_load_state_dict_pre_hook(reorder)
    masters = []
    other.register_load_state_dict_post_hook(lambda o: masters.extend(o.state[p]["master"].dtype for p in shuffled))
    other.load_state_dict(optimizer.state_dict())
    for p in shuffled:
        close(other.state[p]["master"], optimizer.state[p]["master"], 0)
    assert masters == [torch.float32] * 4, "hooks see what steps will use"


def test_channels_last_and_foreign_gradients(device):
    p = torch.nn.Parameter(torch.randn(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last))
    before, g = p.detach().clone(), torch.randn(2, 3, 4, 5, device=device)
    p.grad = g
    tenon.optim.Lion([p], lr=0.25).step()
    close(p, before - 0.25 * g.sign())


def test_bad_options():
    p = [torch.nn.Parameter(torch.ones(2))]
    for options in ({"lr": -1.0}, {"betas": (1.0, 0.9)}, {"weight_decay": -1.0}, {"non_finite": "x"},
                    {"capturable": True, "non_finite": "raise"}):  # fmt: skip
        with pytest.raises(tenon.UsageError):
            tenon.optim.Lion(p, **options)
    for options in ({"lr": torch.ones(2)}, {"lr": "a"}, {"weight_decay": "a"}, {"betas": 0.9}, {"betas": ("a", 0.9)}):
        name = next(iter(options))
        with pytest.raises(tenon.UsageError, match=f"{name}: expected"):
            tenon.optim.Lion(p, **options)
    p[0].grad = torch.ones(2).to_sparse()
    with pytest.raises(tenon.UsageError, match="sparse"):
        tenon.optim.Lion(p).step()


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_a_graph_captures_steps():
    p = torch.nn.Parameter(torch.zeros(1 << 16, device="cuda"))
    p.grad = torch.ones_like(p)
    optimizer = tenon.optim.Lion([p], lr=0.5, capturable=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        optimizer.step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        optimizer.step()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    close(p, torch.full_like(p, -2.0), 0)


def test_equal_to_lion_pytorch(device):
    lion_pytorch = pytest.importorskip("lion_pytorch")
    net, twin = model(device), model(device)
    train(net, tenon.optim.Lion(net.parameters(), lr=1e-3, weight_decay=0.1), 5)
    train(twin, lion_pytorch.Lion(twin.parameters(), lr=1e-3, weight_decay=0.1, use_triton=False), 5)
    for p, q in zip(net.parameters(), twin.parameters()):
        close(p, q, 2.1e-3 * 5)
        assert differing(p, q, 1e-6).mean() <= 0.05


@pytest.mark.parametrize("foreach", [None, False])
def test_raise_writes_nothing_in_any_group(foreach):
    p, q = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    o = tenon.optim.Lion([{"params": [p]}, {"params": [q]}], lr=0.1, non_finite="raise", foreach=foreach)
    p.grad, q.grad = torch.ones(3), torch.full((3,), float("nan"))
    with pytest.raises(tenon.NumericError, match="nothing was written"):
        o.step()
    assert p.eq(1).all() and q.eq(1).all() and not o.state[p]["exp_avg"].any()
    q.grad = torch.ones(3)
    o.step()
    assert p.lt(1).all() and q.lt(1).all()


@pytest.mark.parametrize("master", [False, True])
def test_the_layout_may_change_between_steps(master):
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(3, 4, 3).to(torch.bfloat16 if master else torch.float32)
    other = copy.deepcopy(layer)
    optimizers = [tenon.optim.Lion(m.parameters(), lr=0.01, master_weights=master) for m in (layer, other)]
    for step in range(3):
        if step == 1:
            other.to(memory_format=torch.channels_last)
        for a, b in zip(layer.parameters(), other.parameters()):
            a.grad = torch.randn(a.shape).to(a.dtype)
            b.grad = a.grad.clone()
        for o in optimizers:
            o.step()
    for a, b in zip(layer.parameters(), other.parameters()):
        assert a.equal(b)


def test_infinite_learning_rates_are_refused():
    with pytest.raises(tenon.UsageError, match="lr"):
        tenon.optim.Lion([torch.nn.Parameter(torch.ones(1))], lr=float("inf"))


def test_moments_of_another_library():
    p, m, before = torch.ones(3), np.zeros(3, np.float32), torch.ones(3)
    tenon.lion_step(p, m, torch.ones(3), 0.1)
    assert (p < before).all() and (m > 0).all()
