"""tenon.fuse on PyTorch's tensors (on the CPU here; the same file runs where there is a GPU)."""

from __future__ import annotations

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


def test_tensors_that_need_gradients_are_refused_unless_gradients_are_off(device):
    x = torch.randn(4, device=device, requires_grad=True)
    k = tenon.fuse(lambda x: x * 2)
    with pytest.raises(tenon.UsageError, match="x: requires gradients"):
        k(x)
    with torch.no_grad():
        close(k(x), x * 2, 0)
    close(k(x.detach()), x * 2, 0)


def test_numbers_and_out(device):
    x, y = torch.randn(1000, device=device), torch.empty(1000, device=device)
    k = tenon.fuse(lambda x, a: x * a)
    for a in (1.5, 2.5, -1.0):
        assert k(x, a, out=y) is y
        close(y, x * a, 1e-6)


def test_mixed_devices_are_refused():
    with pytest.raises((tenon.UsageError, tenon.DeviceError), match="meta|device"):
        tenon.fuse(lambda x: x * 2)(torch.empty(3, device="meta"))


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
