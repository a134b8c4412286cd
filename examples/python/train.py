"""tenon.optim.Lion in a training loop of PyTorch."""

import torch

import tenon.optim

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = tenon.optim.Lion(model.parameters(), lr=3e-3, weight_decay=0.01)
x = torch.rand(512, 2) * 2 - 1
y = (x[:, :1] * x[:, 1:]).sign()
for _ in range(300):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
assert loss.item() <= 0.4, loss
print(f"loss {loss.item():.3f}")
