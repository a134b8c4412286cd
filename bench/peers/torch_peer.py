#!/usr/bin/env python3
"""Times one full-size SD1.5 component, or a vision transformer (timm's), in PyTorch, on the CPU or on a GPU, and prints one JSON object on stdout.

  torch_peer.py --part unet --width 512 --height 512 --batch 2 --dtype bf16 --threads 2 --mode both --runs 5
  torch_peer.py --part vit --vit 1536,40,24,4096,1,0,518 --width 224 --height 224 --batch 8 --dtype bf16

Eager runs in contiguous and in channels-last layout, the better one is reported. Modes of torch.compile: `compile` is the
default, `frozen` adds inductor's freezing (weights packed once), `graphs` is "reduce-overhead" (CUDA graphs; --device cuda only). Times are milliseconds, medians of --runs calls after one
warm-up call. Weights are random unless --weights names a safetensors file with diffusers' (timm's) names (a component's own names,
or prefixed "unet." / "vae." / "text_encoder."). Log on stderr. The environment comes from setup.sh.

JSON: part width height batch dtype device threads runs; torch_eager torch_eager_min torch_eager_layout; torch_compile
torch_compile_min compile_first_call_s; torch_compile_frozen ... frozen_first_call_s (only modes that ran); for each also
_cpu_share, the share of threads x wall time that the process really had (below 0.95: something else ran, measure again);
outputs_sha (sha256 of the eager output as f32); load (1-minute average before and after); versions.
"""
import argparse
import hashlib
import json
import os
import statistics
import sys
import time

LATENT, TOKENS, HIDDEN, VOCAB = 8, 77, 768, 49408
PREFIX = {"unet": "unet.", "vae-decode": "vae.", "vae-encode": "vae.", "text": "text_encoder.", "vit": ""}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PREFIX), required=True)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--height", type=int, default=512)
    parser.add_argument("--batch", type=int, default=None, help="default 2 for unet (guidance), else 1")
    parser.add_argument("--vit", help="of --part vit: width,depth,heads,hidden,gated,registers,side of the positions")
    parser.add_argument("--dtype", choices=["f32", "bf16", "f16"], default="bf16")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--weights", help="safetensors file; default: random")
    parser.add_argument("--random", action="store_true", help="random weights (the default)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", choices=["eager", "compile", "both", "frozen", "graphs", "all"], default="both")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--inputs", help="safetensors with sample, timestep, context | latent | image | ids")
    parser.add_argument("--outputs", help="writes the eager output here, tensor `out`, f32")
    args = parser.parse_args()
    args.batch = args.batch or (2 if args.part == "unet" else 1)
    unit = 14 if args.part == "vit" else LATENT
    for name in ("width", "height"):
        if getattr(args, name) <= 0 or getattr(args, name) % unit:
            parser.error(f"--{name} must be a positive multiple of {unit}")
    if args.part == "vit":
        args.vit = [int(n) for n in (args.vit or "1536,40,24,4096,1,0,518").split(",")]
    return args


def log(text):
    print(text, file=sys.stderr, flush=True)


def build_vit(args):
    """timm's network for images of this size; its positions are resampled when weights are loaded."""
    import timm
    import torch
    width, depth, heads, hidden, gated, registers, side = args.vit
    mlp = {"mlp_ratio": 2 * hidden / width, "mlp_layer": timm.layers.SwiGLUPacked,
           "act_layer": torch.nn.SiLU} if gated else {"mlp_ratio": hidden / width}
    return timm.models.VisionTransformer(
        img_size=(args.height, args.width), patch_size=14, embed_dim=width, depth=depth, num_heads=heads, num_classes=0,
        init_values=1e-5, reg_tokens=registers, no_embed_class=registers > 0, **mlp)


def build(args):
    """The component on the meta device: shapes, no memory."""
    import torch
    part = args.part
    if part == "vit":
        with torch.device("meta"):
            return build_vit(args)
    with torch.device("meta"):
        if part == "unet":
            from diffusers import UNet2DConditionModel
            return UNet2DConditionModel(
                sample_size=64, block_out_channels=(320, 640, 1280, 1280), cross_attention_dim=HIDDEN,
                attention_head_dim=8, down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
                up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3)
        if part == "text":
            from transformers import CLIPTextConfig, CLIPTextModel
            return CLIPTextModel(CLIPTextConfig(hidden_size=HIDDEN, num_attention_heads=12, num_hidden_layers=12,
                                                intermediate_size=3072, vocab_size=VOCAB, projection_dim=HIDDEN))
        from diffusers import AutoencoderKL
        return AutoencoderKL(block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=4,
                             sample_size=512, down_block_types=("DownEncoderBlock2D",) * 4,
                             up_block_types=("UpDecoderBlock2D",) * 4)


def fill(model, args, dtype):
    """Materialises the weights: from a file, or random with variance 1 / fan-in so that activations stay in range."""
    import torch
    buffers = {n: b.shape for n, b in model.named_buffers()}
    model = model.to(dtype).to_empty(device="cpu")
    for name, buffer in model.named_buffers():
        if name.endswith("position_ids"):
            buffer.copy_(torch.arange(buffers[name][-1]).expand(buffers[name]))
    if args.weights:
        return load(model, args)
    tile = torch.randn(1 << 20, generator=torch.Generator().manual_seed(args.seed)).to(dtype)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            flat, scale = p.view(-1), (p.numel() / p.shape[0]) ** -0.5
            for start in range(0, flat.numel(), tile.numel()):
                end = min(start + tile.numel(), flat.numel())
                torch.mul(tile[: end - start], scale, out=flat[start:end])
    return model


def positions(table, args):
    """A position table resampled to the grid of this run."""
    from timm.layers import resample_abs_pos_embed
    grid = (args.height // 14, args.width // 14)
    return resample_abs_pos_embed(table.float(), new_size=grid, num_prefix_tokens=0 if args.vit[5] else 1)


def load(model, args):
    from safetensors import safe_open
    own = model.state_dict()
    with safe_open(args.weights, "pt") as file:
        keys = set(file.keys())
        prefix = PREFIX[args.part]
        text = "" if args.part != "text" or next(iter(own)).startswith("text_model.") else "text_model."
        for name, tensor in own.items():
            key = next((k for k in (prefix + text + name, text + name, prefix + name, name) if k in keys), None)
            if key is None and not name.endswith("position_ids"):
                raise SystemExit(f"{args.weights}: no tensor {name}")
            if key:
                tensor.copy_(positions(file.get_tensor(key), args) if name == "pos_embed" else file.get_tensor(key))
    return model


def make_inputs(args, dtype):
    """Name -> tensor, random or from --inputs."""
    import torch
    g = torch.Generator().manual_seed(args.seed + 1)
    h, w, b = args.height // LATENT, args.width // LATENT, args.batch
    if args.part == "unet":
        x = {"sample": torch.randn(b, 4, h, w, generator=g), "timestep": torch.tensor(500.0),
             "context": torch.randn(b, TOKENS, HIDDEN, generator=g)}
    elif args.part == "vit":
        x = {"image": torch.randn(b, 3, args.height, args.width, generator=g)}
    elif args.part == "text":
        x = {"ids": torch.randint(0, VOCAB, (b, TOKENS), generator=g)}
    elif args.part == "vae-decode":
        x = {"latent": torch.randn(b, 4, h, w, generator=g)}
    else:
        x = {"image": torch.rand(b, 3, args.height, args.width, generator=g) * 2 - 1}
    if args.inputs:
        from safetensors.torch import load_file
        given = load_file(args.inputs)
        missing = set(x) - set(given)
        if missing:
            raise SystemExit(f"{args.inputs}: no tensor {', '.join(sorted(missing))}")
        x = {name: given[name] for name in x}
    return {k: v.to(dtype) if v.is_floating_point() and k != "timestep" else v.long() if k == "ids" else v
            for k, v in x.items()}


def forward(part, model):
    """A function of the input tensors that returns the component's output."""
    calls = {
        "unet": lambda sample, timestep, context: model(sample, timestep.reshape(()), context, return_dict=False)[0],
        "text": lambda ids: model(input_ids=ids).last_hidden_state,
        "vae-decode": lambda latent: model.decode(latent, return_dict=False)[0],
        "vit": lambda image: model.forward_features(image),
        "vae-encode": lambda image: model.encode(image).latent_dist.parameters,
    }
    return calls[part]


def no_wait():
    pass


def cuda_wait(inputs):
    """The function to call before reading the clock."""
    import torch
    return torch.cuda.synchronize if next(iter(inputs.values())).is_cuda else no_wait


class Timing:
    """Seconds of the first call, then milliseconds of every run, and its share of CPU time in threads x wall time."""

    def __init__(self, call, inputs, runs, threads):
        wait = cuda_wait(inputs)
        start = time.perf_counter()
        self.out = call(**inputs)
        wait()
        self.first = time.perf_counter() - start
        if runs and wait is not no_wait:  # the second and third call record graphs
            for _ in range(3):
                call(**inputs)
            wait()
        self.times, self.shares = [], []
        for _ in range(runs):
            start, cpu = time.perf_counter(), time.process_time()
            self.out = call(**inputs)
            wait()
            wall = time.perf_counter() - start
            self.times.append(wall * 1e3)
            self.shares.append((time.process_time() - cpu) / wall / threads)

    def median(self):
        return statistics.median(self.times)

    def __str__(self):
        runs = ", ".join(f"{t:.1f} ({s:.2f})" for t, s in zip(self.times, self.shares))
        return f"first {self.first:.2f} s, then ms (cpu share) {runs}"


def channels_last(value):
    import torch
    return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value


def report(result, key, timing, first_key=None):
    result[key], result[key + "_min"] = round(timing.median(), 2), round(min(timing.times), 2)
    result[key + "_cpu_share"] = round(statistics.median(timing.shares), 3)
    if first_key:
        result[first_key] = round(timing.first, 2)


def time_eager(result, args, model, inputs):
    """Times both layouts; also returns the output to hash and save. One contiguous call if only compiled runs count."""
    import torch
    timed = args.mode in ("eager", "both", "all")
    best, layout = Timing(forward(args.part, model), inputs, args.runs if timed else 0, args.threads), "contiguous"
    log(f"eager, contiguous: {best}")
    out = best.out.float().contiguous().cpu()
    result["outputs_sha"] = hashlib.sha256(out.numpy().tobytes()).hexdigest()
    if args.outputs:
        from safetensors.torch import save_file
        save_file({"out": out}, args.outputs)
    if not timed:
        return
    if args.part != "text":
        other = Timing(forward(args.part, model.to(memory_format=torch.channels_last)),
                       {k: channels_last(v) for k, v in inputs.items()}, args.runs, args.threads)
        log(f"eager, channels_last: {other}")
        if other.median() <= best.median():
            best, layout = other, "channels_last"
    report(result, "torch_eager", best)
    result["torch_eager_layout"] = layout


def time_compiled(result, args, model, inputs, key, first_key, mode=None):
    import torch
    timing = Timing(torch.compile(forward(args.part, model), mode=mode), inputs, args.runs, args.threads)
    log(f"{key}: {timing}")
    report(result, key, timing, first_key)


def run(args):
    import torch
    torch.set_num_threads(args.threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[args.dtype]
    result = {"part": args.part, "width": args.width, "height": args.height, "batch": args.batch, "dtype": args.dtype,
              "device": args.device, "threads": args.threads, "runs": args.runs, "load": [round(os.getloadavg()[0], 2)]}
    start = time.perf_counter()
    model = fill(build(args), args, dtype).eval().requires_grad_(False)
    inputs = make_inputs(args, dtype)
    model, inputs = model.to(args.device), {k: v.to(args.device) for k, v in inputs.items()}
    log(f"{args.part}: built in {time.perf_counter() - start:.1f} s")
    with torch.no_grad():
        time_eager(result, args, model, inputs)
        if args.part != "text":  # the compiled runs use the channels-last model
            model = model.to(memory_format=torch.channels_last)
            inputs = {k: channels_last(v) for k, v in inputs.items()}
        if args.mode in ("compile", "both", "all"):
            time_compiled(result, args, model, inputs, "torch_compile", "compile_first_call_s")
        if args.device.startswith("cuda") and args.mode in ("graphs", "all"):
            torch._dynamo.reset()
            time_compiled(result, args, model, inputs, "torch_compile_graphs", "graphs_first_call_s", "reduce-overhead")
        if args.device == "cpu" and args.mode in ("frozen", "all"):
            import torch._inductor.config as inductor
            torch._dynamo.reset()
            inductor.freezing = True
            time_compiled(result, args, model, inputs, "torch_compile_frozen", "frozen_first_call_s")
    result["load"].append(round(os.getloadavg()[0], 2))
    from importlib import metadata
    used = ("torch", "timm") if args.part == "vit" else ("torch", "diffusers", "transformers")
    result["versions"] = {name: metadata.version(name) for name in used}
    return result


def main():
    args = arguments()
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    out = os.dup(1)
    os.dup2(2, 1)  # output printed by libraries goes to the log
    text = json.dumps(run(args)) + "\n"
    os.write(out, text.encode())


if __name__ == "__main__":
    main()
