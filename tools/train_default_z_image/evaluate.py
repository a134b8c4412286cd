"""Draws the 100 prompts of tests/grader/prompts.txt with the model's own networks in PyTorch and grades the pictures.

    python evaluate.py ../../assets/z-image-shapes --steps 8 20 --guidance 1 2
"""

import argparse
import pathlib
import sys

import torch
from diffusers import AutoencoderKL, ZImageTransformer2DModel
from PIL import Image
from tokenizers import Tokenizer
from transformers import Qwen3Model

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "train_default_model"))
import batched  # noqa: E402
import grading  # noqa: E402
import scenes  # noqa: E402
import small_z_image  # noqa: E402


def sigmas(steps):
    """Noise levels for Euler as in FlowMatchEulerDiscreteScheduler."""
    low = small_z_image.SHIFT * 1e-3 / (1 + (small_z_image.SHIFT - 1) * 1e-3)
    even = torch.linspace(1, low, steps + 1)[:-1]  # the pipeline appends a last level of 0
    return [*(small_z_image.SHIFT * even / (1 + (small_z_image.SHIFT - 1) * even)).tolist(), 0.0]


@torch.no_grad()
def draw(parts, tokenizer, lines, steps, guidance, device):
    """Bytes [N, H, W, 3]; noise as drawn by torch's CPU generator for every seed."""
    vae, text, transformer = parts
    fields = [line.split("\t") for line in lines]
    rows = [small_z_image.ids_of(tokenizer, prompt) for prompt in [*(f[1] for f in fields), ""]]
    lengths = torch.tensor([len(row) for row in rows], device=device)
    longest = -(-int(lengths.max()) // batched.MULTIPLE) * batched.MULTIPLE
    states = batched.text_states(text, torch.tensor([r + [0] * (longest - len(r)) for r in rows], device=device))
    side = scenes.CANVAS // 8
    x = torch.stack([torch.randn(16, side, side, generator=torch.Generator().manual_seed(int(f[0]))) for f in fields])
    x, count = x.to(device), len(fields)
    empty = states[-1:].expand(count, -1, -1), lengths[-1:].expand(count)
    levels = sigmas(steps)
    for now, later in zip(levels, levels[1:]):
        t = torch.full((count,), 1 - now, device=device)
        v = batched.predict(transformer, x, t, states[:-1], lengths[:-1])
        if guidance > 1:
            without = batched.predict(transformer, x, t, *empty)
            v = without + guidance * (v - without)
        x = x - (later - now) * v
    pictures = vae.decode(x / vae.config.scaling_factor + vae.config.shift_factor).sample / 2 + 0.5
    return (pictures.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--steps", type=int, nargs="+", default=[8])
    parser.add_argument("--guidance", type=float, nargs="+", default=[1.0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    parts = [AutoencoderKL.from_pretrained(args.model / "vae"), Qwen3Model.from_pretrained(args.model / "text_encoder"),
             ZImageTransformer2DModel.from_pretrained(args.model / "transformer")]
    parts = [part.to(args.device, torch.float32).eval() for part in parts]
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer/tokenizer.json"))
    grade, lines = grading.Grader(), grading.prompt_lines()
    for steps in args.steps:
        for guidance in args.guidance:
            pictures = draw(parts, tokenizer, lines, steps, guidance, args.device)
            marks = [grade(Image.fromarray(p.numpy()), line) for p, line in zip(pictures, lines)]
            for (good, reason), line in zip(marks, lines):
                if not good:
                    print(f"  {line.split(chr(9))[1]}: {reason}")
            print(f"{steps} steps, guidance {guidance}: {sum(good for good, _ in marks)} of {len(lines)}")


if __name__ == "__main__":
    main()
