#!/usr/bin/env python3
"""Z-Image's transformer: Tenon next to diffusers' network in PyTorch, random weights, one run on one machine.

    python bench/z_image_torch.py PROGRAM [--sizes 1024 512] [--types bf16 e4m3] [--runs 10] [--mode MODE] [--no-step]
                                  [--train bench_train] [--rank 16] [-o FILE]
    python bench/z_image_torch.py PROGRAM --device cpu --train bench_train [--sizes 256 512] [--types bf16 e4m3 f32] [--turns 3] [--runs 3]
                                  [--no-step] [--rank 16] [-o FILE]

PROGRAM is tenon. A step is one forward pass of a picture of SIZE x SIZE pixels. PyTorch: every transformer block with
torch.compile in MODE (default "max-autotune-no-cudagraphs"), attention by cuDNN, and also a CUDA graph of the whole
pass if it can be recorded; in bf16 also eager. e4m3: linear layers of `layers.*` with `_scaled_mm` and a scale per row
of both operands, with and without fast accumulation, rows quantised inside the compiled blocks; weights are quantised
beforehand. --train: also a LoRA step with --rank on the attention projections (bf16, nothing recomputed), forward,
loss, backward and fused AdamW, next to bench_train's. Every figure is printed once known: medians in milliseconds.

On a CPU the network is two blocks of the published width and one refiner of each kind, with the same weights for both,
from a file that the script writes. They take turns. PyTorch: f32 and bf16; eager, every block compiled, and for a bf16
step compiled with inductor's freezing (weights packed once). Its forward pass refines the text every time, which Tenon
does once per prompt, so it is timed with and without; freed memory is kept by malloc. Losses of the first LoRA step,
while the factors have no effect, are of the same numbers in both. `fastest` is given besides the medians because other
work may share the processors. -o adds sizes to those in the file.
"""
import argparse
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import diffusers
import torch
from safetensors.torch import load_file, save_file
from torch_timing import milliseconds, times

PROJECTIONS = ("to_q", "to_k", "to_v", "to_out.0")
E4M3_MOST = 448.0
TOKENS = 128  # of text, as many as Tenon's part has without a prompt
SMALL = {"n_layers": 2, "n_refiner_layers": 1}  # on a CPU


class RowScaledLinear(torch.nn.Module):
    """x w^T with both operands quantised to e4m3 row by row."""

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


def without_weights(**sizes):
    with torch.device("meta"):
        return diffusers.ZImageTransformer2DModel(axes_dims=[32, 48, 48], axes_lens=[1536, 512, 512], **sizes)


def network(device="cuda", **sizes):
    """The published sizes, or others; weights with variance 1 / fan-in."""
    model = without_weights(**sizes).to(torch.bfloat16).to_empty(device=device).requires_grad_(False).eval()
    torch.manual_seed(0)
    for parameter in model.parameters():
        fan_in = parameter.shape[-1] if parameter.dim() > 1 else 0
        torch.nn.init.normal_(parameter, std=fan_in ** -0.5) if fan_in else torch.nn.init.ones_(parameter)
    if device == "cuda":
        model.set_attention_backend("_native_cudnn")
    return model


def inputs(size):
    latents = torch.randn(16, 1, size // 8, size // 8, device="cuda", dtype=torch.bfloat16)
    return [latents], torch.tensor([0.25], device="cuda"), [torch.randn(TOKENS, 2560, device="cuda", dtype=torch.bfloat16)]


def compile_blocks(model, mode):
    torch._dynamo.reset()
    for block in (*model.noise_refiner, *model.context_refiner, *model.layers):
        block.compile(mode=mode, dynamic=False)


def graph_of(call):
    """The pass as one CUDA graph; None, after printing why, if it cannot be recorded."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except Exception as error:  # anything that a recording does not allow
        print("no graph:", str(error).split("\n")[0], flush=True)
        torch.cuda.synchronize()
        return None
    return graph


def time_step(say, name, model, size, a):
    x, t, text = inputs(size)
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
    replace(model, lambda name: name in PROJECTIONS, lambda l: LowRank(l, a.rank))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    compile_blocks(model, None)
    x, t, text = inputs(size)
    target = torch.randn_like(x[0])

    def step():
        loss = (model(x, t, text, return_dict=False)[0][0].float() - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    say(f"torch LoRA bf16 {size}, compiled", milliseconds(step, "cuda", a.runs, warm=3))
    say(f"torch LoRA bf16 {size}, peak bytes", torch.cuda.max_memory_allocated())


def tenon_step(model, size, type_, a):
    """The result of `tenon bench` for a step."""
    command = [a.program, "bench", "--device", a.device, "-m", model, "--part", "transformer", "-W", str(size), "-H", str(size), "--type", type_,
               "--runs", str(a.runs), "--no-anchors", "--no-unfused", "--json"]
    return json.loads(subprocess.check_output(command))


def tenon_lora_step(model, size, type_, a):
    """The result of bench_train for a LoRA step, all its lines merged."""
    command = [a.train, "lora", str(a.runs), "0", a.device, type_, model, str(size), str(a.rank), "0"]
    lines = subprocess.check_output(command, text=True).splitlines()
    return {k: v for line in lines if line.startswith("{") for k, v in json.loads(line).items()}


def ours(say, a):
    for size in a.sizes:
        for type_ in a.types:
            if not a.no_step:
                say(f"tenon {type_} {size}", tenon_step("random:z-image", size, type_, a)["median_ms"])
            if a.train:
                say(f"tenon LoRA {type_} {size}", tenon_lora_step("random:z-image", size, type_, a))


class Peer:
    """One of PyTorch's modes on the CPU; compiled code is kept for later turns."""

    def __init__(self, weights, type_, mode, rank=None):
        self.model = without_weights(**SMALL)
        self.model.load_state_dict(weights, assign=True)
        self.model.requires_grad_(False).eval()
        self.type, self.mode = type_, mode
        if rank:
            replace(self.model, lambda name: name in PROJECTIONS, lambda l: LowRank(l, rank))
            self.optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=1e-6, fused=True)
        if mode != "eager":
            compile_blocks(self.model, None)

    def settings(self):
        return torch._inductor.config.patch(freezing=self.mode == "frozen")

    def inputs(self, batch):
        return [batch["latents"].to(self.type)], batch["time"], [batch["text"].to(self.type)]

    def step(self, batch, with_text=True):
        """A function that does a forward pass; without the text's refiner if asked."""
        inputs = self.inputs(batch)
        refiner, none = self.model.context_refiner, torch.nn.ModuleList()

        def call():
            self.model.context_refiner = refiner if with_text else none
            with torch.no_grad(), self.settings():
                out = self.model(*inputs, return_dict=False)[0][0]
            self.model.context_refiner = refiner
            return out
        return call

    def training_step(self, batch):
        inputs = self.inputs(batch)

        def call():
            loss = (self.model(*inputs, return_dict=False)[0][0].float() + batch["target"]).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            return loss.item()
        return call


def training_batch(size):
    """The numbers that bench_train draws from its seeds: a latent, noise, and a level of Turbo's schedule."""
    def seeded():
        return torch.Generator().manual_seed(1)
    shape = (16, 1, size // 8, size // 8)
    count = 16 * (size // 8) ** 2
    latent = (torch.randn(2 * count, generator=seeded())[:count] - 0.1159) * 0.3611
    of_step = seeded()
    u = torch.rand(2, generator=of_step)[1].item()
    torch.randn(1, generator=of_step)
    noise = torch.randn(count, generator=of_step)
    even = (1000 - int(u * 1000)) / 1000
    level = 3 * even / (1 + 2 * even)
    return {"latents": ((1 - level) * latent + level * noise).reshape(shape), "time": torch.tensor([1 - level]),
            "text": torch.randn(TOKENS * 2560, generator=seeded()).reshape(TOKENS, 2560), "target": (noise - latent).reshape(shape)}


def summed_up(milliseconds_of_runs):
    return {"ms": round(statistics.median(milliseconds_of_runs), 1), "fastest": round(min(milliseconds_of_runs), 1)}


def ours_on_cpu(file, size, a):
    """One turn of Tenon."""
    out = {}
    for type_ in a.types:
        if not a.no_step:
            r = tenon_step(file, size, type_, a)
            out[f"tenon {type_}"] = {"ms": round(r["median_ms"], 1), "fastest": round(r["min_ms"], 1), "planned_bytes": r["planned_bytes"]}
        if a.train:
            r = tenon_lora_step(file, size, type_, a)
            out[f"tenon LoRA {type_}"] = {"ms": r["step_ms"], "fastest": r["fastest_ms"], "loss": r["loss"], "planned_bytes": r["planned_bytes"]}
    return out


def peers_on_cpu(weights, a):
    """By label: a Peer and whether it trains."""
    out = {}
    for type_, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32)):
        if type_ not in a.types:
            continue
        own = {name: w.to(dtype) for name, w in weights.items()}
        for mode in ("eager", "compiled", "frozen"):
            if not a.no_step and (mode != "frozen" or type_ == "bf16"):
                out[f"torch {type_}, {mode}"] = Peer(own, dtype, mode)
            if a.train and mode != "frozen":
                out[f"torch LoRA {type_}, {mode}"] = Peer(own, dtype, mode, a.rank)
    return out


def peers_turn(peers, batch, first, a):
    out = {}
    for label, peer in peers.items():
        if "LoRA" in label:
            call = peer.training_step(batch)
            loss = {"loss": round(call(), 6)} if first else {}
            out[label] = {**summed_up(times(call, "cpu", a.runs, warm=1)), **loss}
        else:
            for with_text in (True, False):
                ran = summed_up(times(peer.step(batch, with_text), "cpu", a.runs, warm=2 if first else 1))
                out[label + ("" if with_text else ", text refined before")] = ran
    return out


def ratios(turns, a):
    """PyTorch's best mode, by medians of turns and by fastest runs, relative to Tenon's."""
    out = {}
    for what, over in (("ms", statistics.median), ("fastest", min)):
        value = {name: over(t[name][what] for t in turns) for name in turns[0]}
        for kind, text in (("", ""), ("", ", text refined before"), ("LoRA ", "")):
            peers = {n: v for n, v in value.items() if n.startswith("torch") and ("LoRA" in n) == bool(kind) and n.endswith("before") == bool(text)}
            if peers:
                best = min(peers, key=peers.get)
                ours = {t: value[f"tenon {kind}{t}"] for t in a.types}
                out[f"{kind.strip() or 'step'}{text}, {what}"] = {"best_peer": best, "its": peers[best], **ours,
                                                                "ratio": {t: round(peers[best] / v, 2) for t, v in ours.items()}}
    return out


def weight_bytes(file, weights, a):
    """Planned bytes of the e4m3 weights, and a byte per element of main matrices, a scale per row, two of the rest."""
    command = [a.program, "explain", "--device", "cpu", "-m", file, "--part", "transformer", "-W", "256", "-H", "256", "--type", "e4m3", "--json"]
    plan = json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL))
    rows = {n: w for n, w in weights.items() if n.startswith("layers.") and w.dim() == 2 and "adaLN" not in n}
    own, other = sum(w.numel() for w in rows.values()), sum(w.numel() for n, w in weights.items() if n not in rows)
    return {"e4m3_elements": own, "other_elements": other, "bytes_of_both": own + 2 * other + 4 * sum(w.shape[0] for w in rows.values()),
            "planned": plan["memory"]}


def keep_memory():
    """Restarts with malloc keeping freed memory: else glibc returns large blocks, and every call touches new pages."""
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}
    if not kept.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | kept)


def on_cpu(a):
    keep_memory()
    torch.set_num_threads(os.cpu_count())
    torch._dynamo.config.recompile_limit = 1000  # all modes share the same blocks
    processor = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    known = pathlib.Path(a.output) if a.output else None
    out = json.loads(known.read_text()) if known and known.exists() else {}
    out |= {"processor": processor, "threads": os.cpu_count(), "torch": torch.__version__, "diffusers": diffusers.__version__, "tokens": TOKENS,
            "rank": a.rank, "network": SMALL}
    with tempfile.TemporaryDirectory() as folder:
        file = str(pathlib.Path(folder) / "z-image-small.safetensors")
        weights = network("cpu", **SMALL).state_dict()
        save_file(weights, file)
        out["weights"] = weight_bytes(file, weights, a)
        print(json.dumps(out["weights"]), flush=True)
        for size in a.sizes:
            batch, peers, turns = training_batch(size), peers_on_cpu(weights, a), []
            for turn in range(a.turns):
                turns.append(ours_on_cpu(file, size, a) | peers_turn(peers, batch, turn == 0, a))
                print(json.dumps({"size": size, "load": round(os.getloadavg()[0], 1), **turns[-1]}), flush=True)
                out[str(size)] = {"turns": turns, "best": ratios(turns, a)}
                if known:
                    known.write_text(json.dumps(out, indent=1) + "\n")
            print(json.dumps({"size": size, **out[str(size)]["best"]}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--types", nargs="+", choices=["bf16", "e4m3", "f32"])
    parser.add_argument("--turns", type=int, default=3, help="on a CPU")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs")
    parser.add_argument("--no-step", action="store_true")
    parser.add_argument("--train")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("-o", "--output")
    a = parser.parse_args()
    of_cpu = a.device == "cpu"
    a.sizes = a.sizes or ([256, 512] if of_cpu else [1024, 512])
    a.types = a.types or ["bf16", "e4m3", *(["f32"] if of_cpu else [])]
    a.runs = a.runs or (3 if of_cpu else 10)
    if of_cpu:
        return on_cpu(a)
    out = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "diffusers": diffusers.__version__, "tokens": TOKENS, "mode": a.mode}

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
