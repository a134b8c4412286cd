#!/usr/bin/env python3
"""Linear layers in e4m3 with a scale per row of both operands, next to PyTorch's, on a GPU, in one process.

    python bench/e4m3_torch.py [--json FILE]        (TENON_CUDA_TUNE=1 measures Tenon's tiles first and keeps them)

y = bf16((x w^T) * row scales * column scales): one fused function of Tenon, and torch._scaled_mm with and without its
fast accumulation. A run is 20 calls recorded in a CUDA graph that is replayed continuously, so that times are at the
clock that the power limit allows. Numbers are normally distributed and quantised as usual (the largest in a row is
448). Errors are of sampled rows against fp64, relative to the root mean square of the results; `sums` are Tenon's
before rounding to bf16.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time

import tenon
import torch

CALLS, SECONDS = 20, 0.25
SHAPES = ((4224, 3840, 3840), (4224, 20480, 3840), (4224, 3840, 10240), (4224, 11520, 3840))  # rows, columns, K


def quantised(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Normally distributed numbers as e4m3, and the scale of each row, [rows, 1]."""
    x = torch.randn(rows, columns, device="cuda")
    scale = x.abs().amax(-1, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


def timed(call) -> float:
    """Milliseconds per call, over many in sequence."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(CALLS):
                call()
    took = 0.0
    for _ in range(2):  # the first is a warm-up
        replays, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            graph.replay()
            torch.cuda.synchronize()
            replays += 1
        took = (time.perf_counter() - start) / replays / CALLS
    return took * 1e3


def scaled(x, w, sx, sw):
    return tenon.linear(x, w) * sx * sw


def measure(m: int, n: int, k: int) -> dict:
    (x, sx), (w, sw) = quantised(m, k), quantised(n, k)
    fused = tenon.fuse(lambda x, w, sx, sw: scaled(x, w, sx, sw).cast("bf16"))
    sums = tenon.fuse(lambda x, w, sx, sw: scaled(x, w, sx, sw).cast("f32"))
    columns = sw.reshape(1, n)
    calls = {"tenon": lambda: fused(x, w, sx, columns)}
    for fast in (False, True):
        calls["torch" + "_fast" * fast] = lambda fast=fast: torch._scaled_mm(
            x, w.t(), scale_a=sx, scale_b=columns, out_dtype=torch.bfloat16, use_fast_accum=fast)
    rows = torch.linspace(0, m - 1, 64, device="cuda").long()
    want = (x[rows].double() @ w.double().T) * sx[rows].double() * columns.double()
    size = want.square().mean().sqrt()

    def error(y) -> float:
        difference = (y[rows].double() - want).abs().max() / size
        assert difference <= 0.05, "results differ"  # NaN fails too
        return difference.item()

    out = {"errors": {"sums": error(sums(x, w, sx, columns)), **{name: error(call()) for name, call in calls.items()}}}
    for name, call in calls.items():
        ms = timed(call)
        out |= {f"{name}_ms": ms, f"{name}_tflops": 2 * m * n * k / ms / 1e9}
    return out | {"explain": fused.explain()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the results there too")
    args = parser.parse_args()
    found = {"machine": torch.cuda.get_device_name(), "torch": torch.__version__,
             "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "cases": {}}
    for m, n, k in SHAPES:
        r = found["cases"][f"{m}x{n}x{k}"] = measure(m, n, k)
        rates = ", ".join(f"{name} {r[f'{name}_ms'] * 1e3:.1f} us {r[f'{name}_tflops']:.0f} TFLOP/s"
                          for name in ("tenon", "torch", "torch_fast"))
        print(f"{m}x{n}x{k}: {rates}; errors " + ", ".join(f"{name} {e:.1e}" for name, e in r["errors"].items()))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
