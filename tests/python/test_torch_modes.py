"""Fused functions where PyTorch watches, replaces or compiles calls."""

from __future__ import annotations

import pytest
from conftest import assert_close

import tenon

torch = pytest.importorskip("torch")
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def test_modes_see_a_call():
    k = tenon.fuse(lambda x, *, a: {"y": x * a, "z": tenon.sum(x)})
    x, out = torch.randn(4, 3), {"y": torch.zeros(4, 3), "z": torch.zeros(4)}
    with Recorder() as recorder:
        found = k(x, a=2.0)
        k(x, a=3.0, out=out)
    assert recorder.seen == ["tenon.fused.default", "tenon.fused_out.default"]
    assert_close(found["y"], x * 2, 1e-6)
    assert_close(found["z"], x.sum(1), 1e-5)
    assert_close(out["y"], x * 3, 1e-6)


def test_a_traced_graph_computes_the_call():
    k = tenon.fuse(lambda x: tenon.tanh(x) * 2)
    graph = make_fx(lambda x: k(x) + 1)(torch.zeros(5))
    x = torch.randn(5)
    assert_close(graph(x), x.tanh() * 2 + 1, 1e-5)


def test_tensors_without_values_have_results_without_values():
    k = tenon.fuse(lambda x: (tenon.sum(x), x.cast("bf16")))
    with FakeTensorMode():
        x = torch.ones(4, 3)
        for given in (x, x.clone().requires_grad_()):
            y, z = k(given)
            assert (y.shape, z.shape, z.dtype) == ((4,), (4, 3), torch.bfloat16)


def test_a_tensor_of_two_has_a_result_of_two():
    a, b = torch.randn(3), torch.randn(3)
    y = tenon.fuse(lambda x: x * 2)(TwoTensor(a, b))
    assert_close(y.a, a * 2, 1e-6)
    assert_close(y.b, b * 2, 1e-6)


def test_tensors_without_memory_are_refused():
    none = TwoTensor(torch.ones(3), torch.ones(3))
    loss = lambda p, **batch: tenon.sum(sum(batch.values(), p["w"]), axis=None)  # noqa: E731
    for name, call in (
        ("w", lambda: tenon.train.Trainer(loss, {"w": none})),
        ("x", lambda: tenon.train.Trainer(loss, {"w": torch.ones(3)}).step(x=none)),
        ("captured.0", lambda: tenon.fuse(lambda x: x * none)(torch.ones(3))),
    ):
        with pytest.raises(tenon.UsageError, match=rf"^\[{name}\] expected an array with memory"):
            call()


@pytest.mark.parametrize("dynamic", [None, True])
def test_one_compiled_text_calls_many_functions(dynamic):
    torch.compiler.reset()

    class Layer:
        def __init__(self, factor):
            self.k = tenon.fuse(lambda x: tenon.tanh(x) * factor)

    call = torch.compile(lambda layer, x: layer.k(x) + 1, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    x = torch.randn(4)
    for factor in (2, 3, 5, 7):
        assert_close(call(Layer(factor), x), x.tanh() * factor + 1, 1e-5)


@pytest.mark.parametrize("first", [2, 3])
def test_compiled_calls_of_one_function_have_their_own_forms(first):
    torch.compiler.reset()
    forms = {2: lambda x: (x, x * 2), 3: lambda x: x * 3, 4: lambda x: {"p": x, "q": x * 5}, 5: lambda x: [x]}
    k = tenon.fuse(lambda x: forms[x.shape[0]](x))

    def net(x, *rest):
        return k(x), *map(k, rest)

    given = [torch.randn(n) for n in sorted(forms, key=lambda n: n != first)]
    found, expected = torch.compile(net, backend="aot_eager", fullgraph=True)(*given), net(*given)
    for f, e in zip(found, expected, strict=True):
        assert type(f) is type(e)
        pairs = [(f, e)] if isinstance(e, torch.Tensor) else zip(f, e, strict=True)
        pairs = [(f[n], e[n]) for n in e] if isinstance(e, dict) else pairs
        for one, other in pairs:
            assert_close(one, other, 1e-6)
