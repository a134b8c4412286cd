#!/usr/bin/env python3
"""Fused functions (tenon.fuse) next to torch.compile and a copy, on a GPU, in one process: memory-bound kernels.

    python bench/fused_torch.py [--json FILE]

Every case cycles through sets of arrays that together are several times as large as the L2 cache. A run is 24 calls
recorded in a CUDA graph; the median of 9 replays counts. Bytes: each input read once (of a table only the selected
rows; the input of a group norm twice, since its sums come first), each result written once. The copy moves as many
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


def layer_norm(x, *affine):
    return torch.nn.functional.layer_norm(x.float(), x.shape[-1:], *(p.float() for p in affine)).bfloat16()


def group_norm(x, w, b, eps=1e-5):
    """Group norm of [samples, pixels, channels] in 32 groups."""
    n, pixels, c = x.shape
    g = x.float().view(n, pixels, 32, c // 32)
    var, mean = torch.var_mean(g, (1, 3), keepdim=True, correction=0)
    return torch.nn.functional.silu(((g - mean) * torch.rsqrt(var + eps)).view(n, pixels, c) * w + b).bfloat16()


def fused_group_norm(x, w, b):
    return tenon.silu(tenon.group_norm(x, 32, w, b))


ROWS = (16896,)  # from an embedding table of 65536; a shape with one axis stands for row indices
CASES = {
    # name: shapes of the inputs, number of results, the function in Tenon, the function in PyTorch
    "silu(a) * b": ([(4224, 10240)] * 2, 1, lambda a, b: tenon.silu(a) * b,
                    lambda a, b: torch.nn.functional.silu(a.float()).mul(b).bfloat16()),
    "rms_norm(x) * (1 + s)": ([(4224, 3840), (3840,)], 1, lambda x, s: tenon.rms_norm(x) * (1 + s),
                              lambda x, s: (rms(x) * (1 + s.float())).bfloat16()),
    "x + g * rms_norm(h), and its rms_norm * s": (
        [(4224, 3840)] * 2 + [(3840,)] * 2, 2,
        lambda x, h, g, s: (lambda y: (y, tenon.rms_norm(y) * s))(x + g * tenon.rms_norm(h)),
        lambda x, h, g, s: (lambda y: (y.bfloat16(), (rms(y) * s).bfloat16()))(x + g * rms(h))),
    "layer_norm, 8192 x 8192": ([(8192, 8192)], 1, lambda x: tenon.layer_norm(x), layer_norm),
    "layer_norm * w + b, 65792 x 1536": ([(65792, 1536), (1536,), (1536,)], 1,
                                         lambda x, w, b: tenon.layer_norm(x, w, b), layer_norm),
    "silu(concat(a, b)), 16384 x (1280 + 640)": (
        [(16384, 1280), (16384, 640)], 1, lambda a, b: tenon.silu(tenon.concat([a, b])),
        lambda a, b: torch.nn.functional.silu(torch.cat([a, b], -1).float()).bfloat16()),
    "rows of a table, 16896 x 3840": ([(65536, 3840), ROWS], 1, lambda t, i: tenon.gather(t, i), lambda t, i: t[i]),
    "silu(group_norm(x)), 2 x 4096 x 320": ([(2, 4096, 320), (320,), (320,)], 1, fused_group_norm, group_norm),
    "silu(group_norm(x)), 262144 x 128": ([(1, 262144, 128), (128,), (128,)], 1, fused_group_norm, group_norm),
    "silu(group_norm(x)), 4224 x 3840": ([(1, 4224, 3840), (3840,), (3840,)], 1, fused_group_norm, group_norm),
    "silu(group_norm(x)), 4224 x 10240": ([(1, 4224, 10240), (10240,), (10240,)], 1, fused_group_norm, group_norm),
}


def timed(call) -> float:
    """Milliseconds per call, with CALLS calls recorded in a graph: the median of its replays."""
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
    def array(shape):
        if shape is ROWS:
            return torch.randint(0, shapes[0][0], shape, device="cuda")
        return torch.randn(shape, device="cuda").bfloat16()

    first = [array(s) for s in shapes]
    fused, compiled = tenon.fuse(ours), torch.compile(theirs)
    got = fused(*first)
    want = theirs(*first)
    written = sum(2 * g.numel() for g in (got if results > 1 else [got]))
    read = sum(a.nbytes for a in first) if ROWS not in shapes else written + first[1].nbytes
    size = read + written + (first[0].nbytes if ours is fused_group_norm else 0)
    count = max(2, LEAST_BYTES // size)
    sets = [first, *([array(s) for s in shapes] for _ in range(count - 1))]
    like = got if results > 1 else [got]
    outs = [[torch.empty_like(g) for g in like] for _ in range(count)]
    for g, w in zip(got if results > 1 else [got], want if results > 1 else [want]):
        difference = (g.float() - w.float()).abs().max()
        assert g.shape == w.shape and difference <= 0.05 * w.float().abs().max(), "results differ"  # NaN fails too

    def run(i):
        out = outs[i % count]
        fused(*sets[i % count], out=tuple(out) if results > 1 else out[0])

    # Multiples of 8 KiB: a copy of another size takes up to one and a half times as long.
    half = [torch.empty(-(-size // 16384) * 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2 * count)]
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
