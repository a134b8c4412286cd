#!/usr/bin/env python3
"""Lion side by side in one process, on the same tensors: PyTorch eager, foreach and torch.compile, and Tenon.

    python bench/lion_torch.py [--device cpu|cuda] [--cases NAME ..] [--modes NAME ..] [--runs N] [--dtype float32] [--json FILE]

Medians of `runs` steps after warm-up; the modes take turns, so that other load affects all of them. On a GPU a step is
timed with events on the current stream; `tenon_graph` is the step recorded in a CUDA graph. `copy_gb_s` is the speed of
a copy between two tensors of 67 M elements. Traffic is 20 bytes per element of f32 (5 elements' worth for any type).
Before timing, one step of every mode is compared with eager's: momentum to a few units in the last place, parameters
equal except for signs of updates that cancel (each 2 lr off).
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
import time

import torch

LR, BETA1, BETA2, WEIGHT_DECAY = 1e-4, 0.9, 0.99, 0.1


def gpt2() -> list[int]:
    """The parameters of GPT-2 (124 M), 148 tensors."""
    w = 768
    block = [w, w, 3 * w * w, 3 * w, w * w, w, w, w, 4 * w * w, 4 * w, 4 * w * w, w]
    return [50257 * w, 1024 * w, *(block * 12), w, w]


CASES = {"1 x 67.1M": [1 << 26], "512 x 64K": [65536] * 512, "gpt2-124M": gpt2()}


def eager(ps, ms, gs):
    for p, m, g in zip(ps, ms, gs):
        update = m.mul(BETA1).add_(g, alpha=1 - BETA1).sign_()
        p.mul_(1 - LR * WEIGHT_DECAY).add_(update, alpha=-LR)
        m.mul_(BETA2).add_(g, alpha=1 - BETA2)


def foreach(ps, ms, gs):
    updates = torch._foreach_mul(ms, BETA1)
    torch._foreach_add_(updates, gs, alpha=1 - BETA1)
    torch._foreach_sign_(updates)
    torch._foreach_mul_(ps, 1 - LR * WEIGHT_DECAY)
    torch._foreach_add_(ps, updates, alpha=-LR)
    torch._foreach_mul_(ms, BETA2)
    torch._foreach_add_(ms, gs, alpha=1 - BETA2)


def tenon_step(ps, ms, gs):
    import tenon

    tenon.lion_foreach(ps, ms, gs, LR, BETA1, BETA2, WEIGHT_DECAY)


def recorded(step, tensors):
    """The step over these tensors, recorded in a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(*tensors)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(*tensors)
    return lambda *_: graph.replay()


def make(counts, device, dtype):
    generator = torch.Generator(device).manual_seed(1)

    def vectors(scale):
        return [torch.randn(n, device=device, generator=generator).mul_(scale).to(dtype) for n in counts]

    return vectors(0.02), vectors(1e-3), vectors(1e-2)


def check(name, step, device, dtype):
    """Compares one step of a mode with eager's."""
    ours, theirs = make([1000, 1, 4099], device, dtype), make([1000, 1, 4099], device, dtype)
    step(*ours)
    eager(*theirs)
    unit = torch.finfo(dtype).eps
    for p, q, m, n in zip(ours[0], theirs[0], ours[1], theirs[1]):
        assert torch.allclose(m.float(), n.float(), rtol=4 * unit, atol=1e-3 * unit), f"{name}: momentum differs"
        off = (p.float() - q.float()).abs()
        flips = ~(off <= 4 * unit * q.float().abs() + 0.5 * LR * (dtype == torch.float32))  # NaN counts as one
        assert flips.float().mean() <= 1e-2, f"{name}: {int(flips.sum())} parameters differ"
        assert (off[flips] <= 2.01 * LR + 4 * unit).all(), f"{name}: a difference that is no flip of a sign"


def timed(step, tensors, device):
    if device == "cpu":
        time.sleep(0.02)  # threads of the previous mode may still be spinning
        start = time.perf_counter()
        step(*tensors)
        return (time.perf_counter() - start) * 1e3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    step(*tensors)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def copy_speed(device):
    a = torch.ones(1 << 26, device=device)
    b = torch.empty_like(a)
    times = [timed(lambda: b.copy_(a), (), device) for _ in range(10)]
    return 8 * a.numel() / min(times) * 1e-6


def measure(name, counts, modes, args):
    tensors = make(counts, args.device, getattr(torch, args.dtype))
    steps, first = {}, {}
    for mode in modes:
        torch._dynamo.reset()
        step = {"eager": eager, "foreach": foreach, "compile": foreach, "tenon": tenon_step, "tenon_graph": tenon_step}[mode]
        if mode == "compile":
            step = torch.compile(foreach, fullgraph=True)
        if mode == "tenon_graph":
            step = recorded(tenon_step, tensors)
        first[mode] = timed(step, tensors, args.device)
        steps[mode] = step
    times = {mode: [] for mode in modes}
    for i in range(-3, args.runs):
        for mode, step in steps.items():
            t = timed(step, tensors, args.device)
            if i >= 0:
                times[mode].append(t)
    size = 5 * sum(counts) * tensors[0][0].element_size()
    result = {}
    for mode, ts in times.items():
        median = statistics.median(ts)
        result[mode] = {
            "median_ms": median,
            "min_ms": min(ts),
            "first_ms": first[mode],
            "gb_s": size / median * 1e-6,
        }
        print(f"{name:12} {mode:12} {median:9.3f} ms  (min {min(ts):9.3f})  {size / median * 1e-6:8.1f} GB/s", file=sys.stderr)
    return {"name": name, "tensors": len(counts), "elements": sum(counts), "runs": args.runs, "modes": result}


def commit():
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--modes", nargs="+", choices=("eager", "foreach", "compile", "tenon", "tenon_graph"))
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--threads", type=int, help="of PyTorch; Tenon's are TENON_THREADS")
    parser.add_argument("--json", help="write the result here; standard output if it is not given")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    modes = args.modes or ["eager", "foreach", "compile", "tenon"] + ["tenon_graph"] * (args.device == "cuda")
    if any(mode.startswith("tenon") for mode in modes):
        check("tenon", tenon_step, args.device, getattr(torch, args.dtype))
    check("foreach", foreach, args.device, getattr(torch, args.dtype))
    result = {
        "machine": torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or platform.machine(),
        "device": args.device,
        "dtype": args.dtype,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "copy_gb_s": copy_speed(args.device),
        "cases": [measure(name, CASES[name], modes, args) for name in args.cases],
    }
    text = json.dumps(result, indent=2)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
