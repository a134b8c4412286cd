"""Times PyTorch calls, for the scripts in this folder."""
import statistics
import time

import torch


def times(call, device, runs, warm=2):
    """Milliseconds of `runs` calls after `warm` more, each until the device has finished it."""
    out = []
    for run in range(runs + warm):
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        if run >= warm:
            out.append((time.perf_counter() - begin) * 1e3)
    return out


def milliseconds(call, device, runs, warm=2):
    """The median of `times`."""
    return round(statistics.median(times(call, device, runs, warm)), 3)
