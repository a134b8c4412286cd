"""Steps at the sizes of training. Each verify recomputes one step from saved initial values and compares with its own
tolerance: the runner's is larger than a step."""

import torch
from kernels.benchmark import Benchmark

LR, BETA1, BETA2, WEIGHT_DECAY = 1e-2, 0.9, 0.99, 0.1


class LionStep(Benchmark):
    seed = 1

    def _make(self, sizes):
        self.first = [[torch.randn(n, device=self.device) for n in sizes] for _ in range(3)]
        self.params, self.exp_avgs = ([t.clone() for t in self.first[i]] for i in range(2))
        self.grads = self.first[2]
        self.out = torch.empty(0, device=self.device)

    def _step(self):
        self.kernel.lion_foreach(self.params, self.exp_avgs, self.grads, LR, BETA1, BETA2, WEIGHT_DECAY)
        self.out = self.params[0]

    def _verify(self):
        stepped = []
        params, exp_avgs = ([t.clone() for t in self.first[i]] for i in range(2))
        self.kernel.lion_foreach(params, exp_avgs, self.grads, LR, BETA1, BETA2, WEIGHT_DECAY)
        for p, m, g, found_p, found_m in zip(*self.first, params, exp_avgs):
            u = m * BETA1 + g * (1 - BETA1)
            new_p, new_m = p * (1 - LR * WEIGHT_DECAY) - LR * u.sign(), m * BETA2 + g * (1 - BETA2)
            wrong = ((found_p - new_p).abs() > 1e-5).float().mean()  # where u cancels, the sign is rounding alone
            assert bool(wrong <= 1e-4), f"{wrong} of the parameters differ"
            assert bool(((found_m - new_m).abs() <= 1e-5).all())
            stepped.append(found_p)
        self.out = params[0]
        return stepped[0]

    def setup_one_large(self):
        self._make([67_108_864])

    def benchmark_one_large(self):
        self._step()

    def verify_one_large(self):
        return self._verify()

    def setup_many_small(self):
        self._make([65_536] * 512)

    def benchmark_many_small(self):
        self._step()

    def verify_many_small(self):
        return self._verify()
