"""Lion on NumPy arrays: fits a line by the signs of gradients."""

import numpy as np

import tenon

rng = np.random.default_rng(0)
x = rng.standard_normal((256, 3)).astype(np.float32)
truth = np.array([1.0, -2.0, 0.5], np.float32)
y = x @ truth
weight, momentum = np.zeros(3, np.float32), np.zeros(3, np.float32)
for step in range(1000):
    grad = 2 * x.T @ (x @ weight - y) / len(x)
    tenon.lion_step(weight, momentum, grad.astype(np.float32), lr=0.02 * (1 - step / 1000))
assert np.abs(weight - truth).max() <= 0.05, weight
print(weight)
