"""Trains a very small model in Z-Image's layout on the default model's coloured shapes; writes a diffusers folder.

    python train.py --out ../../assets/z-image-shapes           # a GPU; minutes, see README.md
    python train.py --out /tmp/try --device cpu --tiny          # a few steps of everything

Needs torch, diffusers, transformers, tokenizers. Scenes, captions, pictures and the autoencoder's loop come from
../train_default_model.
"""

import argparse
import concurrent.futures
import pathlib
import random
import sys
import time
import types

import torch
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "train_default_model"))
import batched  # noqa: E402
import raster  # noqa: E402
import scenes  # noqa: E402
import small_z_image  # noqa: E402
import training  # noqa: E402

EMPTY_CAPTION_RATE = 0.1
WORDINGS = 2  # captions per scene
JOBS = 64


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the model")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenes", type=int, default=200_000)
    parser.add_argument("--pairs", type=float, default=0.5, help="share of the scenes with two objects")
    parser.add_argument("--vae-steps", type=int, nargs=2, default=(20_000, 10_000),
                        help="steps of the autoencoder on pictures of 64 x 64 and of 128 x 128")
    parser.add_argument("--vae-seconds", type=float, nargs=2, default=(1e9, 1e9), help="the same as limits of time")
    parser.add_argument("--vae-batch", type=int, nargs=2, default=(64, 32))
    parser.add_argument("--vae-pool", type=int, default=50_000, help="different pictures")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--total-seconds", type=float, default=1e9,
                        help="let the transformer end this long after the start, with fewer steps if need be")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--decay", type=float, default=0.9995, help="of the moving average")
    parser.add_argument("--resume", type=pathlib.Path,
                        help="model folder of an earlier run: keeps its autoencoder and words, trains the rest on")
    parser.add_argument("--compile", action="store_true", help="torch.compile the blocks: worth it from 5000 steps")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--tiny", action="store_true", help="a few steps of everything, to test the script")
    args = parser.parse_args()
    if args.tiny:
        args.scenes, args.vae_steps, args.vae_batch, args.vae_pool = 64, (2, 2), (2, 2), 8
        args.steps, args.batch, args.workers = 3, 4, 1
    return args


def describe(job):
    """Rows to draw, and WORDINGS captions of each, for `count` training scenes."""
    seed, count, pairs = job
    rng = random.Random(seed)
    made = [scenes.training_scene(rng, pairs) for _ in range(count)]
    return [raster.pack_scene(s) for s in made], [scenes.caption(rng, s) for s in made for _ in range(WORDINGS)]


def describe_all(args):
    jobs = [(1000 * args.seed + i, (args.scenes + JOBS - 1) // JOBS, args.pairs) for i in range(JOBS)]
    with concurrent.futures.ProcessPoolExecutor(args.workers) as pool:
        parts = list(pool.map(describe, jobs))
    return (torch.tensor([row for rows, _ in parts for row in rows], dtype=torch.float32),
            [caption for _, captions in parts for caption in captions])


def encode_captions(tokenizer, captions):
    """Ids [N, L] padded with zeros, and lengths [N], with the empty caption last; L is a multiple of 32."""
    rows = [small_z_image.ids_of(tokenizer, caption) for caption in [*captions, ""]]
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(batched.filled_up(lengths.max()))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows]), lengths


class Batches:
    """Training steps by the rows that texts take: all texts of a step take equally many, so nothing is masked."""

    def __init__(self, make_step, ids, lengths, device, log):
        filled = batched.filled_up(lengths[:-1])
        self.widths = [int(w) for w in filled.unique()]
        pools = [(filled == w).nonzero().flatten() for w in self.widths]
        self.shares = [len(pool) / len(filled) for pool in pools]
        self.steps = [training.StepRunner(make_step(ids[:, :w], pool), device, log)
                      for w, pool in zip(self.widths, pools)]
        self.rng = random.Random(len(ids))

    def __call__(self):
        return self.rng.choices(self.steps, self.shares)[0]()


def fit_vae(args, vae, rows, device, log):
    """Starts with small pictures: edges are a local matter, and these cost a quarter."""
    # The interface that training.train_vae expects; this autoencoder has no convolutions around its latents.
    parts = types.SimpleNamespace(parameters=vae.parameters, encoder=vae.encoder, decoder=vae.decoder,
                                  quant_conv=torch.nn.Identity(), post_quant_conv=torch.nn.Identity())

    def phase(index, draw, peak):
        training.train_vae(parts, training.byte_images(draw, args.vae_pool), device, args.vae_steps[index],
                           args.vae_seconds[index], args.vae_batch[index], peak, log)

    def described(count, offset):
        at = torch.arange(offset, offset + count - count // 3) % rows.shape[0]
        return torch.cat([raster.random_images(count // 3, scenes.CANVAS, device),
                          raster.draw_described(rows[at], device)])

    phase(0, lambda count, _: raster.random_images(count, 64, device), 1e-3)
    phase(1, described, 5e-4)


@torch.no_grad()
def encode(vae, rows, device, batch=512):
    """Latent means [N, 16, h, w] of described scenes."""
    means = []
    for i in range(0, rows.shape[0], batch):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            means.append(vae.encoder(raster.draw_described(rows[i:i + batch], device) * 2 - 1).chunk(2, 1)[0].float())
    return torch.cat(means)


@torch.no_grad()
def level_channels(vae, latents):
    """Gives every channel of the latents the same spread, compensated in the convolutions around them."""
    spread = latents.std((0, 2, 3))
    gain = spread.mean() / spread
    last, first = vae.encoder.conv_out, vae.decoder.conv_in
    last.weight[:len(gain)] *= gain.view(-1, 1, 1, 1)
    last.bias[:len(gain)] *= gain
    last.bias[len(gain):] += 2 * gain.log()
    first.weight /= gain.view(1, -1, 1, 1)
    return latents * gain.view(1, -1, 1, 1)


def shifted(s):
    return small_z_image.SHIFT * s / (1 + (small_z_image.SHIFT - 1) * s)


def fit(args, text, transformer, latents, ids, lengths, seconds, log):
    """Trains both together: the transformer's output is picture - noise at x = (1 - sigma) picture + sigma noise."""
    device = latents.device
    parameters = [*transformer.parameters(), *text.parameters()]
    optimizer = training.make_optimizer(parameters, device, 1e-3)
    average = training.Average(parameters, args.decay, device)
    shown = torch.zeros(1, device=device)

    def make_step(words, pool):
        def step():
            wording = pool[torch.randint(len(pool), (args.batch,), device=device)]
            x = latents[wording // WORDINGS].float()
            if words.shape[1] == batched.MULTIPLE:  # the empty caption is a short one
                drop = torch.rand(args.batch, device=device) < EMPTY_CAPTION_RATE
                wording = torch.where(drop, len(ids) - 1, wording)
            sigma = shifted(torch.rand(args.batch, device=device))
            noise = torch.randn_like(x)
            at = sigma.view(-1, 1, 1, 1)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                states = batched.text_states(text, words[wording])
                out = batched.predict(transformer, (1 - at) * x + at * noise, 1 - sigma, states, lengths[wording], True)
            loss = F.mse_loss(out.float(), x - noise)
            training.descend(loss, parameters, optimizer, average)
            shown.copy_(loss.detach().view(1))
        return step

    for p in parameters:
        p.grad = torch.zeros_like(p)
    training.run(Batches(make_step, ids, lengths, device, log), training.Budget(args.steps, seconds), optimizer, average,
                 args.rate, shown, "transformer loss", device, log)
    average.swap()


def main():
    args = arguments()
    begin = time.time()

    def log(line):
        print(f"[{time.time() - begin:6.1f}] {line}", flush=True)

    rows, captions = describe_all(args)  # it forks, so before using CUDA
    if args.resume:
        tokenizer = small_z_image.load_tokenizer(args.resume)
    else:
        tokenizer = small_z_image.make_tokenizer([*scenes.lexicon(), *captions[:20_000]])
    ids, lengths = encode_captions(tokenizer, captions)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = args.device == "cuda"
    device = torch.device(args.device)
    ids, lengths = ids.to(device), lengths.to(device)
    vae, text = small_z_image.make_vae(), small_z_image.make_text_encoder(tokenizer)
    transformer = small_z_image.make_transformer()
    if args.resume:
        small_z_image.load_weights(args.resume, vae, text, transformer)
    for module in (vae, text, transformer):
        module.to(device).train()
    log(f"parameters: vae {small_z_image.count(vae)}, text {small_z_image.count(text)}, transformer "
        f"{small_z_image.count(transformer)}; vocabulary {tokenizer.get_vocab_size()}; {len(rows)} scenes, texts of "
        f"{int(lengths.min())} to {int(lengths.max())} tokens")
    latent = scenes.CANVAS // 8
    torch.set_float32_matmul_precision("highest")
    short, long = int(lengths.argmin()), int(lengths.argmax())
    batched.check(text, transformer, ids[[short, long, 0]], lengths[[short, long, 0]], (16, latent, latent))
    torch.set_float32_matmul_precision("high")
    if args.compile:
        batched.compile_blocks()

    if not args.resume:
        fit_vae(args, vae, rows, device, log)
    vae.eval().requires_grad_(False)
    latents = encode(vae, rows, device)
    if not args.resume:
        latents = level_channels(vae, latents)
    shift, scaling = round(float(latents.mean()), 5), round(1 / float(latents.std()), 5)
    latents = (latents - shift) * scaling
    log(f"latents encoded: shift {shift}, scaling {scaling}")

    fit(args, text, transformer, latents, ids, lengths, args.total_seconds - (time.time() - begin), log)
    small_z_image.export(args.out, tokenizer, vae, text, transformer, scaling, shift, scenes.CANVAS,
                         scenes.vocabulary())
    log(f"written to {args.out}")


if __name__ == "__main__":
    main()
