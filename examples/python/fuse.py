"""Turns a function of two arrays into one kernel."""

import numpy as np

import tenon


def gate(x, g, scale):
    """SwiGLU's gate, with a scale that may differ between calls."""
    return x * tenon.silu(g) * scale


kernel = tenon.fuse(gate)
x, g = np.ones((4, 8), np.float32), np.full((4, 8), 2, np.float32)
y = kernel(x, g, 0.5)
kernel(x, g, 0.25, out=y)  # another number, the same plan; writes into an existing array
assert abs(y[0, 0] - 0.25 * 2 / (1 + np.exp(-2))) <= 1e-6
print(kernel.explain())
