#!/usr/bin/env python3
"""Z-Image's transformer on a GPU: Tenon beside diffusers' network in PyTorch, random weights, one run on one machine.

    python bench/z_image_torch.py PROGRAM [--sizes 1024 512] [--types bf16 e4m3] [--tokens 128] [--runs 10] [--mode MODE] [--no-step]
                                  [--train bench_train] [--rank 16] [-o FILE]

PROGRAM is tenon. A step is one forward pass of a picture of SIZE x SIZE pixels. PyTorch: every transformer block by torch.compile in
MODE (default "max-autotune-no-cudagraphs"), attention by cuDNN, and a CUDA graph of the whole pass beside it where it can be recorded;
eager too in bf16. e4m3: linear layers of `layers.*` by `_scaled_mm` with a scale a row of both operands, with and without fast
accumulation, rows quantised inside the compiled blocks; weights are quantised beforehand. --train: also a LoRA step of --rank beside the
attention's projections (bf16, nothing computed twice), forward, loss, backward and fused AdamW, beside bench_train's. Every figure is
printed when it is known: medians in milliseconds.
"""
import argparse
import gc
import json
import subprocess

import diffusers
import torch
from torch_timing import milliseconds

PROJECTIONS = ("to_q", "to_k", "to_v", "to_out.0")
E4M3_MOST = 448.0


class RowScaledLinear(torch.nn.Module):
    """x w^T with both quantised to e4m3 row by row."""

    def __init__(self, linear, fast):
        super().__init__()
        weight, scale = self.quantised(linear.weight.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale.reshape(1, -1))
        self.fast = fast

    @staticmethod
    def quantised(x):
        scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / E4M3_MOST
        return (x.float() / scale).clamp(-E4M3_MOST, E4M3_MOST).to(torch.float8_e4m3fn), scale

    def forward(self, x):
        rows, scale = self.quantised(x.reshape(-1, x.shape[-1]))
        y = torch._scaled_mm(rows, self.weight.t(), scale_a=scale, scale_b=self.scale, out_dtype=torch.bfloat16, use_fast_accum=self.fast)
        return y.reshape(*x.shape[:-1], -1)


class LowRank(torch.nn.Module):
    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear
        self.a = torch.nn.Parameter(torch.randn(rank, linear.in_features, device=linear.weight.device) * linear.in_features ** -0.5)
        self.b = torch.nn.Parameter(torch.zeros(linear.out_features, rank, device=linear.weight.device))

    def forward(self, x):
        return self.linear(x) + torch.nn.functional.linear(torch.nn.functional.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype))


def replace(module, wanted, make):
    for name, child in list(module.named_children()):
        if isinstance(child, torch.nn.Linear) and wanted(name):
            setattr(module, name, make(child))
        else:
            replace(child, lambda n, of=name: wanted(n) or wanted(f"{of}.{n}"), make)


def network():
    """The published sizes, weights of a variance of 1 / fan-in."""
    with torch.device("meta"):
        model = diffusers.ZImageTransformer2DModel(axes_dims=[32, 48, 48], axes_lens=[1536, 512, 512])
    model = model.to(torch.bfloat16).to_empty(device="cuda").requires_grad_(False).eval()
    torch.manual_seed(0)
    for parameter in model.parameters():
        fan_in = parameter.shape[-1] if parameter.dim() > 1 else 0
        torch.nn.init.normal_(parameter, std=fan_in ** -0.5) if fan_in else torch.nn.init.ones_(parameter)
    model.set_attention_backend("_native_cudnn")
    return model


def inputs(size, tokens):
    latents = torch.randn(16, 1, size // 8, size // 8, device="cuda", dtype=torch.bfloat16)
    return [latents], torch.tensor([0.25], device="cuda"), [torch.randn(tokens, 2560, device="cuda", dtype=torch.bfloat16)]


def compile_blocks(model, mode):
    torch._dynamo.reset()
    for block in (*model.noise_refiner, *model.context_refiner, *model.layers):
        block.compile(mode=mode, dynamic=False)


def graph_of(call):
    """The pass as one CUDA graph; None where it cannot be recorded, which prints why."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except Exception as error:  # noqa: BLE001: whatever a network does that a recording does not allow
        print("no graph:", str(error).split("\n")[0], flush=True)
        torch.cuda.synchronize()
        return None
    return graph


def time_step(say, name, model, size, a):
    x, t, text = inputs(size, a.tokens)
    with torch.no_grad():
        def call():
            return model(x, t, text, return_dict=False)
        say(f"torch {name}", milliseconds(call, "cuda", a.runs, warm=3))
        graph = graph_of(call)
        if graph is not None:
            say(f"torch {name}, graph", milliseconds(graph.replay, "cuda", a.runs, warm=3))
            del graph


def steps(say, a):
    for type_ in a.types:
        for fast in (False, True) if type_ == "e4m3" else (False,):
            model = network()
            label = type_ + (", fast accumulation" if fast else "")
            if type_ == "bf16":
                for size in a.sizes:
                    time_step(say, f"{label} {size}, eager", model, size, a)
            else:
                replace(model.layers, lambda name: name in PROJECTIONS or name in ("w1", "w2", "w3"), lambda l, fast=fast: RowScaledLinear(l, fast))
            compile_blocks(model, a.mode)
            for size in a.sizes:
                time_step(say, f"{label} {size}, compiled", model, size, a)
            del model
            gc.collect()
            torch.cuda.empty_cache()


def lora_step(say, size, a):
    model = network()
    replace(model.layers, lambda name: name in PROJECTIONS, lambda l: LowRank(l, a.rank))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    compile_blocks(model, None)
    x, t, text = inputs(size, a.tokens)
    target = torch.randn_like(x[0])

    def step():
        loss = (model(x, t, text, return_dict=False)[0][0].float() - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    say(f"torch LoRA bf16 {size}, compiled", milliseconds(step, "cuda", a.runs, warm=3))
    say(f"torch LoRA bf16 {size}, peak bytes", torch.cuda.max_memory_allocated())


def ours(say, a):
    for size in a.sizes:
        for type_ in a.types:
            if not a.no_step:
                command = [a.program, "bench", "--device", "cuda", "-m", "random:z-image", "--part", "transformer", "-W", str(size), "-H", str(size),
                           "--type", type_, "--runs", str(a.runs), "--no-anchors", "--no-unfused", "--json"]
                say(f"tenon {type_} {size}", json.loads(subprocess.check_output(command))["median_ms"])
            if a.train:
                command = [a.train, "lora", str(a.runs), "0", "cuda", type_, "random:z-image", str(size), str(a.rank), "0"]
                lines = subprocess.check_output(command, text=True).splitlines()
                say(f"tenon LoRA {type_} {size}", {k: v for line in lines if line.startswith("{") for k, v in json.loads(line).items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 512])
    parser.add_argument("--types", nargs="+", choices=["bf16", "e4m3"], default=["bf16", "e4m3"])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs")
    parser.add_argument("--no-step", action="store_true")
    parser.add_argument("--train")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("-o", "--output")
    a = parser.parse_args()
    out = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "diffusers": diffusers.__version__, "tokens": a.tokens, "mode": a.mode}

    def say(name, value):
        out[name] = value
        print(json.dumps({name: value}), flush=True)
        if a.output:
            with open(a.output, "w") as file:
                json.dump(out, file, indent=1)

    ours(say, a)
    if not a.no_step:
        steps(say, a)
    if a.train:
        for size in a.sizes:
            lora_step(say, size, a)


if __name__ == "__main__":
    main()
