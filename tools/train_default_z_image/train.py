"""Trains a very small model in Z-Image's layout on the default model's coloured shapes; writes a diffusers folder.

    python train.py --out ../../assets/z-image-shapes           # a GPU
    python train.py --out /tmp/try --device cpu --tiny          # a few steps of everything

Needs torch, diffusers, transformers, tokenizers. Scenes, captions, pictures and the autoencoder's loop are those of
../train_default_model.
"""

import argparse
import pathlib
import random
import sys
import time
import types

import torch
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "train_default_model"))
import raster  # noqa: E402
import scenes  # noqa: E402
import small_z_image  # noqa: E402
import training  # noqa: E402

EMPTY_CAPTION_RATE = 0.1
WORDINGS = 2  # captions a scene


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the model")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenes", type=int, default=200_000)
    parser.add_argument("--vae-steps", type=int, default=20_000)
    parser.add_argument("--vae-batch", type=int, default=32)
    parser.add_argument("--vae-pool", type=int, default=50_000, help="different pictures")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--decay", type=float, default=0.9995, help="of the moving average")
    parser.add_argument("--tiny", action="store_true", help="a few steps of everything, to test the script")
    args = parser.parse_args()
    if args.tiny:
        args.scenes, args.vae_steps, args.vae_batch, args.vae_pool, args.steps, args.batch = 32, 2, 2, 8, 3, 4
    return args


def describe(args):
    """Rows of scenes for the painter, and WORDINGS captions of each."""
    rng = random.Random(args.seed)
    made = [scenes.training_scene(rng) for _ in range(args.scenes)]
    rows = torch.stack([torch.as_tensor(raster.pack_scene(s), dtype=torch.float32) for s in made])
    return rows, [[scenes.caption(rng, s) for _ in range(WORDINGS)] for s in made]


def fit_vae(args, vae, rows, device, log):
    # What training.train_vae expects of an autoencoder; this one has no convolutions around its latents.
    parts = types.SimpleNamespace(parameters=vae.parameters, encoder=vae.encoder, decoder=vae.decoder,
                                  quant_conv=torch.nn.Identity(), post_quant_conv=torch.nn.Identity())

    def draw(count, offset):
        at = torch.arange(offset, offset + count - count // 3) % rows.shape[0]
        return torch.cat([raster.random_images(count // 3, scenes.CANVAS, device),
                          raster.draw_described(rows[at], device)])

    pool = training.byte_images(draw, args.vae_pool)
    training.train_vae(parts, pool, device, args.vae_steps, 1e9, args.vae_batch, 1e-3, log)


@torch.no_grad()
def encode(vae, rows, device, batch=256):
    means = [vae.encoder(raster.draw_described(rows[i:i + batch], device) * 2 - 1).chunk(2, 1)[0]
             for i in range(0, rows.shape[0], batch)]
    return torch.cat(means)


def hidden_states(text, ids, device):
    """What the transformer reads: hidden states in front of the last layer, of each text's own tokens."""
    longest = max(len(row) for row in ids)
    padded = torch.tensor([row + [0] * (longest - len(row)) for row in ids], device=device)
    states = text(input_ids=padded, output_hidden_states=True).hidden_states[-2]  # causal: padding changes nothing
    return [states[i, :len(row)] for i, row in enumerate(ids)]


def shifted(s):
    return small_z_image.SHIFT * s / (1 + (small_z_image.SHIFT - 1) * s)


def fit(args, text, transformer, latents, ids, empty, device, log):
    """Both together: the transformer's output is picture - noise at x = (1 - sigma) picture + sigma noise."""
    parameters = [*transformer.parameters(), *text.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=args.rate, betas=(0.9, 0.99), weight_decay=1e-3)
    average = training.Average(parameters, args.decay, device)
    budget = training.Budget(args.steps, 1e9)
    rng = random.Random(args.seed)
    while not budget.done():
        for group in optimizer.param_groups:
            group["lr"] = budget.rate(args.rate)
        pick = torch.randint(latents.shape[0], (args.batch,))
        texts = [empty if rng.random() < EMPTY_CAPTION_RATE else rng.choice(ids[i]) for i in pick.tolist()]
        x = latents[pick.to(device)]
        sigma = shifted(torch.rand(args.batch, device=device))
        noise = torch.randn_like(x)
        at = sigma.view(-1, 1, 1, 1)
        noisy = (1 - at) * x + at * noise
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            captions = hidden_states(text, texts, device)
            out = transformer([n[:, None] for n in noisy], 1 - sigma, captions)[0]
        loss = F.mse_loss(torch.stack([o[:, 0] for o in out]).float(), x - noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.set_weight(budget.step)
        average.update()
        budget.step += 1
        if budget.step % max(1, min(500, args.steps // 10)) == 0:
            log(f"step {budget.step}  loss {loss.item():.5f}")
    average.swap()


def main():
    args = arguments()
    begin = time.time()

    def log(line):
        print(f"[{time.time() - begin:6.1f}] {line}", flush=True)

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device(args.device)
    rows, captions = describe(args)
    tokenizer = small_z_image.make_tokenizer([*scenes.lexicon(), *(c for both in captions[:20_000] for c in both)])
    ids = [[small_z_image.ids_of(tokenizer, c) for c in both] for both in captions]
    vae, text = small_z_image.make_vae(), small_z_image.make_text_encoder(tokenizer)
    transformer = small_z_image.make_transformer()
    for module in (vae, text, transformer):
        module.to(device).train()
    log(f"parameters: vae {small_z_image.count(vae)}, text {small_z_image.count(text)}, transformer "
        f"{small_z_image.count(transformer)}; vocabulary {tokenizer.get_vocab_size()}; {len(rows)} scenes")
    fit_vae(args, vae, rows, device, log)
    vae.eval().requires_grad_(False)
    latents = encode(vae, rows, device)
    shift, scaling = round(float(latents.mean()), 5), round(1 / float(latents.std()), 5)
    latents = (latents - shift) * scaling
    log(f"latents encoded: shift {shift}, scaling {scaling}")
    fit(args, text, transformer, latents, ids, small_z_image.ids_of(tokenizer, ""), device, log)
    small_z_image.export(args.out, tokenizer, vae, text, transformer, scaling, shift, scenes.CANVAS)
    log(f"written to {args.out}")


if __name__ == "__main__":
    main()
