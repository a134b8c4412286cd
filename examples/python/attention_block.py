"""A linear layer with bias, GELU and residual is one launch; the norm after it needs whole rows and is another."""

import numpy as np

import tenon


def block(x, weight, bias, gamma):
    """The end of a layer: gelu(x W^T + b) + x, then RMS norm."""
    h = tenon.gelu(tenon.linear(x, weight, bias)) + x
    return {"h": h, "normed": tenon.rms_norm(h, gamma)}


rng = np.random.default_rng(0)
x, weight = (rng.standard_normal((64, 64), np.float32) for _ in range(2))
bias, gamma = (rng.standard_normal(64).astype(np.float32) for _ in range(2))
kernel = tenon.fuse(block)
out = kernel(x, weight, bias, gamma)
assert out["h"].shape == out["normed"].shape == (64, 64)
assert kernel.launches() == 2
print(kernel.explain())
