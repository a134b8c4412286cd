"""Trains the default model from scratch and writes it as a diffusers folder.

    python train.py --out ../../assets/default-model            # a GPU; minutes, see README.md
    python train.py --out /tmp/try --device cpu --tiny          # a smoke test of every step on a CPU
"""

import argparse
import concurrent.futures
import pathlib
import random
import time

import numpy
import torch
from diffusers import PNDMScheduler
from PIL import Image

import grading
import networks
import raster
import scenes
import training
from tokenizer import Tokenizer, learn_merges

WORDINGS = 2  # captions per scene


def make_scenes(job):
    """Rows in the form of pack_scene, and the tokens of WORDINGS captions for each, for `count` training scenes."""
    seed, count, merges, pairs = job
    rng, tokenizer = random.Random(seed), Tokenizer(merges)
    rows = numpy.zeros((count, 11), numpy.float32)
    tokens = numpy.zeros((count, WORDINGS, 77), numpy.int16)
    for i in range(count):
        scene = scenes.training_scene(rng, pairs)
        rows[i] = raster.pack_scene(scene)
        for k in range(WORDINGS):
            tokens[i, k] = tokenizer.encode(scenes.caption(rng, scene))
    return rows, tokens


def sheet(images, columns=10):
    """A contact sheet of [N, 3, H, W] pictures in 0..1."""
    x = (images.clamp(0, 1) * 255).round().byte().cpu()
    n, _, h, w = x.shape
    rows = (n + columns - 1) // columns
    x = torch.cat([x, x.new_zeros(rows * columns - n, 3, h, w)])
    x = x.view(rows, columns, 3, h, w).permute(0, 3, 1, 4, 2).reshape(rows * h, columns * w, 3)
    return Image.fromarray(x.numpy())


@torch.no_grad()
def sample(parts, tokenizer, prompts, seeds, guidance, scheduler, steps, scaling, device):
    """Pictures in 0..1 for many prompts at once; noise as drawn by torch's CPU generator for each seed."""
    vae, text, unet = parts
    ids = torch.tensor([tokenizer.encode("")] * len(prompts) + [tokenizer.encode(p) for p in prompts], device=device)
    context = text(input_ids=ids).last_hidden_state
    shape = (1, 4, scenes.CANVAS // 8, scenes.CANVAS // 8)
    x = torch.cat([torch.randn(shape, generator=torch.Generator().manual_seed(s)) for s in seeds]).to(device)
    scheduler.set_timesteps(steps)
    x = x * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        both = scheduler.scale_model_input(torch.cat([x, x]), t)
        low, high = unet(both, t.to(device), encoder_hidden_states=context).sample.chunk(2)
        x = scheduler.step(low + guidance * (high - low), t, x).prev_sample
    return vae.decode(x / scaling).sample / 2 + 0.5


def show_samples(work, parts, tokenizer, scaling, device, log):
    """Contact sheets of the evaluation prompts, in order, at several guidance scales."""
    lines = [line.split("\t") for line in grading.prompt_lines()]
    scheduler = PNDMScheduler(**networks.NOISE_SCHEDULE, set_alpha_to_one=False, skip_prk_steps=True, steps_offset=1)
    for guidance in (1.0,) if device.type == "cpu" else (1.0, 1.5, 2.0):
        pictures = sample(parts, tokenizer, [f[1] for f in lines], [int(f[0]) for f in lines], guidance, scheduler, 20,
                          scaling, device)
        sheet(pictures).save(work / f"samples-{guidance}.png")
    log("samples drawn")


class Log:
    """Logs lines with the seconds since the start, to stdout and train.log."""

    def __init__(self, path):
        self.path, self.begin, self.lines = path, time.time(), []

    def seconds(self):
        return time.time() - self.begin

    def __call__(self, text):
        self.lines.append(f"[{self.seconds():6.1f}] {text}")
        print(self.lines[-1], flush=True)
        self.path.write_text("\n".join(self.lines) + "\n")


class SceneMaker:
    """Workers that invent scenes and write captions while the autoencoder trains. Start it before CUDA is used:
    it forks."""

    def __init__(self, args, merges):
        self.pool = concurrent.futures.ProcessPoolExecutor(args.workers)
        chunk = (args.scenes + 63) // 64
        self.made = [self.pool.submit(make_scenes, (1000 * args.seed + i, chunk, merges, args.pairs))
                     for i in range(64)]
        self.parts = None

    def column(self, index):
        """Column 0: rows to draw; column 1: tokens of the captions. Waits until all are made."""
        if self.parts is None:
            self.parts = [f.result() for f in self.made]
            self.pool.shutdown()
        return torch.from_numpy(numpy.concatenate([p[index] for p in self.parts]))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the model")
    parser.add_argument("--work", type=pathlib.Path, help="folder for samples and log (default: OUT-work)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenes", type=int, default=200_000)
    parser.add_argument("--vae-steps", type=int, nargs=2, default=(20_000, 10_000),
                        help="steps of the autoencoder on pictures of 64 x 64 and of 128 x 128")
    parser.add_argument("--vae-seconds", type=float, nargs=2, default=(1e9, 1e9), help="the same as limits of time")
    parser.add_argument("--vae-batch", type=int, nargs=2, default=(64, 32))
    parser.add_argument("--vae-pool", type=int, nargs=2, default=(200_000, 50_000), help="different pictures")
    parser.add_argument("--vae-from", type=pathlib.Path, help="model folder whose autoencoder is the start")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate of the denoiser")
    parser.add_argument("--pairs", type=float, default=0.32, help="share of the scenes with two objects")
    parser.add_argument("--high-noise", type=float, default=0.0, help="share of samples from the noisiest steps only")
    parser.add_argument("--decay", type=float, default=0.9995, help="of the moving average of the denoiser")
    parser.add_argument("--total-seconds", type=float, default=1e9,
                        help="let the denoiser end this long after the start, with fewer steps if need be")
    parser.add_argument("--compile", action="store_true", help="torch.compile the denoiser: worth it from 5000 steps")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--resume", type=pathlib.Path,
                        help="model folder of an earlier run: keeps its autoencoder, trains the rest on")
    parser.add_argument("--tiny", action="store_true", help="a few steps of everything, to test the script")
    args = parser.parse_args()
    if args.tiny:
        args.scenes, args.vae_steps, args.vae_batch, args.vae_pool = 64, (3, 2), (4, 2), (16, 8)
        args.steps, args.batch, args.workers = 6, 8, 1
    args.work = args.work or args.out.with_name(args.out.name + "-work")
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def fit_vae(args, vae, maker, device, log):
    """Trains the autoencoder. Edges are a local matter: starts with small pictures, which cost a quarter."""

    def phase(index, make, peak):
        training.train_vae(vae, training.byte_images(make, args.vae_pool[index]), device, args.vae_steps[index],
                           args.vae_seconds[index], args.vae_batch[index], peak, log)

    phase(0, lambda n, _: raster.random_images(n, 64, device), 1e-3)
    rows = maker.column(0)
    phase(1, lambda n, i: torch.cat([raster.random_images(n // 3, scenes.CANVAS, device),
                                     raster.draw_described(rows[i:i + n - n // 3], device)]), 5e-4)


def make_latents(vae, rows, scaling, device, log):
    """Latents of the described scenes in the autoencoder's own scale, and the scaling factor (kept if given)."""
    latents = training.encode_all(vae, rows, device)
    if scaling is None:
        latents, spread = training.level_channels(vae, latents)
        scaling = round(1 / spread, 5)
    log(f"latents encoded, means {latents.mean((0, 2, 3)).tolist()}, spread {float(latents.std()):.4f}, "
        f"scaling factor {scaling}")
    return latents, scaling


@torch.no_grad()
def show_vae(work, vae, rows, latents, device, log):
    """A contact sheet of pictures, their reconstructions by the autoencoder, and slightly wrong latents decoded."""
    spread = float(latents.std())
    originals = raster.draw_described(rows[:50], device)
    rebuilt = vae.decode(latents[:50]).sample / 2 + 0.5
    shaken = vae.decode(latents[:50] + 0.1 * spread * torch.randn_like(latents[:50])).sample / 2 + 0.5
    log(f"rebuilt pictures are off by {(rebuilt - originals).abs().mean() * 255:.2f} of 255")
    sheet(torch.cat([originals[:20], rebuilt[:20], shaken[:20]])).save(work / "vae.png")


def fit_denoiser(args, text, unet, latents, tokens, empty, device, log, write):
    live = (unet, text)
    if args.compile:
        live = (torch.compile(unet.to(memory_format=torch.channels_last)), torch.compile(text))
    training.train_denoiser(*live, latents, tokens, empty, device, args.steps, args.total_seconds - log.seconds(),
                            args.batch, args.rate, log, write, args.high_noise, args.decay)
    unet.eval(), text.eval()


def main():
    args = arguments()
    log = Log(args.work / "train.log")
    merges = learn_merges(scenes.lexicon())
    tokenizer = Tokenizer(merges)
    maker = SceneMaker(args, merges)

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = args.total_seconds > 300  # the search itself takes seconds
    device = torch.device(args.device)
    vae, text, unet = networks.make_vae(), networks.make_text_encoder(tokenizer), networks.make_unet()
    log(f"parameters: vae {networks.count(vae)}, text {networks.count(text)}, unet {networks.count(unet)}; "
        f"vocabulary {len(tokenizer.vocab)}; device {args.device}")
    scaling = networks.load_weights(args.resume, vae, text, unet) if args.resume else None
    if args.vae_from:
        networks.load_weights(args.vae_from, vae)
    for module in (vae, text, unet):
        module.to(device).train()

    if not args.resume:
        fit_vae(args, vae, maker, device, log)
    vae.eval().requires_grad_(False)
    rows, tokens = maker.column(0), maker.column(1).to(device)
    log(f"{rows.shape[0]} scenes described")
    latents, scaling = make_latents(vae, rows, scaling, device, log)
    show_vae(args.work, vae, rows, latents, device, log)
    empty = torch.tensor(tokenizer.encode(""), device=device)
    latents = (latents * scaling).to(torch.bfloat16 if device.type == "cuda" else torch.float32)

    def write():
        networks.export(args.out, tokenizer, vae, text, unet, scaling)
        log("model written")

    fit_denoiser(args, text, unet, latents, tokens, empty, device, log, write)
    write()
    show_samples(args.work, (vae, text, unet), tokenizer, scaling, device, log)
    log("done")


if __name__ == "__main__":
    main()
