"""tenon.fuse on PyTorch tensors (on the CPU here; the same file also runs with a GPU)."""

from __future__ import annotations

import copy
import threading

import pytest

import tenon
from conftest import assert_close as close

torch = pytest.importorskip("torch")
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() and "cuda" in tenon.backend_names() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types(device, dtype):
    x, g = (torch.randn(33, 70, device=device).to(dtype) for _ in range(2))
    y = tenon.fuse(lambda x, g: x * tenon.silu(g))(x, g)
    assert y.dtype == dtype and y.device == x.device
    expected = x.double() * torch.nn.functional.silu(g.double())
    close(y, expected, torch.finfo(dtype).eps * 2 * expected.abs().clamp(min=1))


def test_views_misaligned_and_strided(device):
    base = torch.randn(40, 42, device=device)
    k = tenon.fuse(lambda x: x * 2 + 1)
    for x in (base.T, base[1:, 1:], base[:, ::2], base.flatten()[3:], base[::5, 7], base.unsqueeze(1).expand(40, 3, 42)):
        close(k(x), x * 2 + 1, 1e-6)


def test_matmul_epilogue(device):
    x, w, b = torch.randn(64, 96, device=device), torch.randn(80, 96, device=device), torch.randn(80, device=device)
    k = tenon.fuse(lambda x, w, b: tenon.gelu(tenon.linear(x, w, b)))
    close(k(x, w, b), torch.nn.functional.gelu(torch.nn.functional.linear(x.double(), w.double(), b.double())), 2e-4)
    assert k.launches() == 1


def test_numbers_and_out(device):
    x, y = torch.randn(1000, device=device), torch.empty(1000, device=device)
    k = tenon.fuse(lambda x, a: x * a)
    for a in (1.5, 2.5, -1.0):
        assert k(x, a, out=y) is y
        close(y, x * a, 1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, device="meta"),
        lambda: torch.empty(0, device="meta"),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.ones(3).to_mkldnn(),
    ],
    ids=["meta", "no elements", "coo", "csr", "mkldnn"],
)
def test_tensors_without_memory_are_refused_by_name(make):
    bad = make()
    good = torch.ones(bad.shape)
    k = tenon.fuse(lambda x, y: x * 2 + y)
    for a, b, name in ((bad, 1.0, "x"), (bad, bad, "x"), (good, bad, "y"), (good.requires_grad_(), bad, "y")):
        with pytest.raises(tenon.UsageError, match=rf"^(\[{name}\]|{name}:)"):
            k(a, b)
    with pytest.raises(tenon.UsageError, match=r"^\[out\]"):
        k(good.detach(), 1.0, out=bad)
    with pytest.raises(tenon.UsageError, match=r"^\[grad\]"):
        tenon.lion_step(good.detach(), torch.zeros(bad.shape), bad)


def test_tensors_without_elements(device):
    x = torch.empty(0, 3, device=device, requires_grad=True)
    y = tenon.fuse(lambda x, y: x * 2 + y)(x, x.detach())
    y.backward(y.detach())
    assert y.shape == x.grad.shape == (0, 3)


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_the_current_stream_is_used():
    stream = torch.cuda.Stream()
    x = torch.randn(1 << 22, device="cuda")
    k = tenon.fuse(lambda x: x * 2)
    with torch.cuda.stream(stream):
        y = x
        for _ in range(20):
            y = k(y)
    stream.synchronize()
    close(y, x * 2.0**20, 1)


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_a_graph_captures_a_fused_call():
    x, y = torch.randn(4096, device="cuda"), torch.empty(4096, device="cuda")
    k = tenon.fuse(lambda x: x * 2 + 1)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        k(x, out=y)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        k(x, out=y)
    x.fill_(3.0)
    graph.replay()
    torch.cuda.synchronize()
    close(y, torch.full_like(y, 7.0), 0)


@pytest.fixture(params=["eager", "aot_eager"])
def compiled(request):
    """torch.compile of whole graphs."""
    torch.compiler.reset()
    return lambda function: torch.compile(function, fullgraph=True, backend=request.param)


def test_the_compiler_takes_a_call_whole(device, compiled):
    k = tenon.fuse(lambda x, g: x * tenon.silu(g))
    both = tenon.fuse(lambda x, *, scale: {"a": x * scale, "b": tenon.sum(x, axis=0), "again": x * scale})

    def net(x, g):
        y = k(x.relu(), g) + 1
        out = both(y, scale=2.5)
        return out["a"] + out["again"], out["b"].sum(), k(y, y)

    for rows in (7, 12, 7):
        x, g = (torch.randn(rows, 33, device=device) for _ in range(2))
        for found, expected in zip(compiled(net)(x, g), net(x, g)):
            close(found, expected, 1e-5)


def test_compiled_calls_with_tuples_lists_and_types(device, compiled):
    pair = tenon.fuse(lambda x: (x * 2, tenon.max(x)))
    listed = tenon.fuse(lambda x: [x.cast("bf16"), x])

    def net(x):
        a, b = pair(x)
        c, d = listed(a)
        return a, b, c, d

    x = torch.randn(4, 8, device=device).half()
    found = compiled(net)(x)
    assert [t.dtype for t in found] == [torch.float16, torch.float16, torch.bfloat16, torch.float16]
    close(found[1], 2 * x.max(-1).values / 2, 0)


def test_compiled_calls_write_to_out(device, compiled):
    k = tenon.fuse(lambda x, a: x * a + 1)

    def net(x, y):
        k(x, 3.0, out=y)
        return y * 2

    x, y = torch.randn(5, 6, device=device), torch.zeros(5, 6, device=device)
    close(compiled(net)(x, y), (x * 3 + 1) * 2, 1e-5)
    close(y, x * 3 + 1, 1e-6)


def test_compiled_calls_with_captured_constants(device, compiled):
    w, factor = torch.randn(8, 3, device=device), 2.5
    k = tenon.fuse(lambda x: tenon.gelu(x @ w) * factor)
    x = torch.randn(4, 8, device=device)
    close(compiled(lambda x: k(x) + x.sum())(x), torch.nn.functional.gelu(x @ w) * factor + x.sum(), 1e-4)


def test_the_default_compiler_runs_it(device):
    torch.compiler.reset()
    k = tenon.fuse(lambda x, g: x * tenon.silu(g))
    x, g = (torch.randn(9, 33, device=device) for _ in range(2))
    net = torch.compile(lambda x, g: torch.sigmoid(k(x + 1, g)) * 2, fullgraph=True)
    close(net(x, g), torch.sigmoid((x + 1) * torch.nn.functional.silu(g)) * 2, 1e-5)


def test_the_operator_is_registered_as_pytorch_wants_it():
    k = tenon.fuse(lambda x, a: x * a)
    x, y = torch.randn(6), torch.empty(6)
    torch.library.opcheck(torch.ops.tenon.fused.default, (k._handle, [x], [2.0], "tn", []))
    torch.library.opcheck(torch.ops.tenon.fused_out.default, (k._handle, [x], [2.0], "tn", [], [y]))


def test_captured_arrays_may_change_type_and_strides():
    layer = torch.nn.Linear(4, 4).requires_grad_(False)
    k, x = tenon.fuse(lambda x: tenon.linear(x, layer.weight)), torch.randn(3, 4)
    for change in (
        lambda: None,
        lambda: layer.half(),
        lambda: layer.float(),
        lambda: setattr(layer.weight, "data", layer.weight.data.T.contiguous().T),
        lambda: setattr(layer.weight, "data", torch.randn(4, 8)[:, ::2]),
    ):
        change()
        close(k(x).float(), x @ layer.weight.float().T, 2e-3)


def test_negated_and_derived_tensors():
    z = torch.conj(torch.randn(4, dtype=torch.complex64)).imag
    assert z.is_neg()
    close(tenon.fuse(lambda x: x * 2)(z), z * 2, 1e-6)
    with pytest.raises(tenon.UsageError, match="resolve_neg"):
        tenon.fuse(lambda x: x * z)(torch.ones(4))
    k, written = tenon.fuse(lambda x: x * 2), torch._neg_view(torch.zeros(4))
    with pytest.raises(tenon.UsageError, match="^result: .*negated"):
        k(torch.ones(4), out=written)
    assert not written.any()

    class Derived(torch.Tensor):
        pass

    assert isinstance(tenon.fuse(lambda x: x * 2)(torch.ones(2).as_subclass(Derived)), torch.Tensor)


def test_a_trainer_takes_negated_tensors():
    def trained(w, x):
        trainer = tenon.train.Trainer(lambda p, x: tenon.mean((x @ p["w"] - 1) ** 2, axis=None), {"w": w})
        return trainer.step(x=x)

    z = torch.conj(torch.randn(2, 8, 8, dtype=torch.complex64)).imag
    assert z.is_neg()
    w, x = z[0].resolve_neg(), z[1].resolve_neg()
    assert trained(w, z[1]) == trained(w, x) == trained(z[0], x) != trained(-w, x)


def test_copies_are_functions_of_their_own():
    module = torch.nn.Identity()
    module.f = tenon.fuse(torch_double := (lambda x: x + x))
    x = torch.ones(2, requires_grad=True)
    module.f(x)
    copied = copy.deepcopy(module)
    del module
    copied.f(x).sum().backward()
    close(x.grad, torch.full((2,), 2.0), 1e-6)
    assert copied.f._function is torch_double


def test_fused_within_fused():
    inner = tenon.fuse(lambda x: x * 3)
    close(tenon.fuse(lambda x: inner(x) + 1)(torch.ones(2)), torch.full((2,), 4.0), 1e-6)
    close(tenon.grad(lambda x: tenon.sum(inner(x), axis=None), 0)(torch.ones(2)), torch.full((2,), 3.0), 1e-6)


def test_captured_tensors_that_require_gradients_later_are_refused():
    layer = torch.nn.Linear(4, 4).requires_grad_(False)
    k = tenon.fuse(lambda x: tenon.linear(x, layer.weight))
    x = torch.randn(3, 4, requires_grad=True)
    k(x).sum().backward()
    layer.requires_grad_(True)
    with pytest.raises(tenon.UsageError, match="requires gradients"):
        k(x)


def test_threads_get_results_in_their_own_form():
    k = tenon.fuse(lambda *xs: [x * 2 for x in xs])
    tensors = [torch.randn(5, requires_grad=True) for _ in range(3)]
    wrong = []

    def calls(count):
        for _ in range(200):
            try:
                if len(k(*tensors[:count])) != count:
                    wrong.append(count)
            except Exception as e:
                wrong.append(e)

    threads = [threading.Thread(target=calls, args=(count,)) for count in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
