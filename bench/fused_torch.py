#!/usr/bin/env python3
"""Fused functions (tenon.fuse) beside torch.compile and a copy, on a GPU, in one process: kernels bound by memory.

    python bench/fused_torch.py [--json FILE]

Every case runs over sets of arrays that together are several times the second-level cache. A run is 24 calls recorded in a
CUDA graph; the median of 9 replays counts. Bytes: each input read once, each result written once. The copy moves as many
bytes between two bf16 arrays.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics

import tenon
import torch

CALLS, REPLAYS, LEAST_BYTES = 24, 9, 600 << 20


def rms(x, eps=1e-6):
    return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)


CASES = {
    # name: shapes of the inputs, results, the function in Tenon, the function in PyTorch
    "silu(a) * b": ([(4224, 10240)] * 2, 1, lambda a, b: tenon.silu(a) * b,
                    lambda a, b: torch.nn.functional.silu(a.float()).mul(b).bfloat16()),
    "rms_norm(x) * (1 + s)": ([(4224, 3840), (3840,)], 1, lambda x, s: tenon.rms_norm(x) * (1 + s),
                              lambda x, s: (rms(x) * (1 + s.float())).bfloat16()),
    "x + g * rms_norm(h), and its rms_norm * s": (
        [(4224, 3840)] * 2 + [(3840,)] * 2, 2,
        lambda x, h, g, s: (lambda y: (y, tenon.rms_norm(y) * s))(x + g * tenon.rms_norm(h)),
        lambda x, h, g, s: (lambda y: (y.bfloat16(), (rms(y) * s).bfloat16()))(x + g * rms(h))),
    "layer_norm, 8192 x 8192": ([(8192, 8192)], 1, lambda x: tenon.layer_norm(x),
                                lambda x: torch.nn.functional.layer_norm(x.float(), x.shape[-1:]).bfloat16()),
}


def timed(call) -> float:
    """Milliseconds of one of CALLS calls, the median of the replays of their recording."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(CALLS):
            call(i)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(CALLS):
                call(i)
    times = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / CALLS)
    return statistics.median(times)


def measure(shapes, results: int, ours, theirs) -> dict:
    """One case: milliseconds and GB/s of Tenon, torch.compile and a copy of as many bytes."""
    size = 2 * (sum(torch.Size(s).numel() for s in shapes) + results * torch.Size(shapes[0]).numel())
    count = max(2, LEAST_BYTES // size)
    sets = [[torch.randn(s, device="cuda").bfloat16() for s in shapes] for _ in range(count)]
    outs = [[torch.empty(shapes[0], device="cuda", dtype=torch.bfloat16) for _ in range(results)] for _ in range(count)]
    fused, compiled = tenon.fuse(ours), torch.compile(theirs)
    got = fused(*sets[0])
    want = theirs(*sets[0])
    for g, w in zip(got if results > 1 else [got], want if results > 1 else [want]):
        assert (g.float() - w.float()).abs().max() <= 0.05 * w.float().abs().max(), "results differ"

    def run(i):
        out = outs[i % count]
        fused(*sets[i % count], out=tuple(out) if results > 1 else out[0])

    half = [torch.empty(size // 4, device="cuda", dtype=torch.bfloat16) for _ in range(2 * count)]
    ms = {"tenon": timed(run), "torch_compile": timed(lambda i: compiled(*sets[i % count])),
          "copy": timed(lambda i: half[2 * (i % count)].copy_(half[2 * (i % count) + 1]))}
    return {"bytes": size, **{f"{k}_ms": v for k, v in ms.items()}, **{f"{k}_gb_s": size / v / 1e6 for k, v in ms.items()},
            "part_of_copy": ms["copy"] / ms["tenon"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the results there too")
    args = parser.parse_args()
    found = {"machine": torch.cuda.get_device_name(), "torch": torch.__version__,
             "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "cases": {}}
    for name, case in CASES.items():
        r = found["cases"][name] = measure(*case)
        print(f"{name:44s} {r['tenon_ms'] * 1e3:7.1f} us {r['tenon_gb_s']:5.0f} GB/s, {100 * r['part_of_copy']:.0f} % of a copy;"
              f" torch.compile {r['torch_compile_ms'] * 1e3:.1f} us")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
