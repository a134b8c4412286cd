"""A step with the kernel from the Hub, or from a folder: LOCAL_KERNELS="<owner>/lion-step=build" python example.py"""

import torch
from kernels import get_kernel

lion = get_kernel("<owner>/lion-step", version=1)
param, exp_avg, grad = torch.ones(1024), torch.zeros(1024), torch.randn(1024)
lion.lion_step(param, exp_avg, grad, lr=1e-2, weight_decay=0.1)
print(param[:4])
