#!/usr/bin/env python3
"""Checks a LoRA of `tenon train lora` on the embedded model against diffusers and PEFT.

    python tools/check_lora_peers.py build/release/bin/tenon RUN

Needs torch, diffusers, transformers and peft. Compares the UNet with PEFT's layers against one whose weights had B A
added here, and diffusers' pictures with Tenon's from the same noise. Exit code 0 if both agree.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from diffusers import DDIMScheduler, StableDiffusionPipeline
from PIL import Image
from safetensors import safe_open

MODEL = pathlib.Path(__file__).resolve().parent.parent / "assets/default-model"
PROMPTS = ("a yellow zib on a blue background", "a red circle on a white background")
STEPS, GUIDANCE, SEED = 10, 1.5, 7


def pipeline():
    pipe = StableDiffusionPipeline.from_pretrained(MODEL, torch_dtype=torch.float32, safety_checker=None)
    pipe.scheduler = DDIMScheduler.from_config(pipe.scheduler.config)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def merged_unet(file):
    """The embedded UNet with alpha / r B A added to its weights."""
    unet = pipeline().unet
    weights = unet.state_dict()
    with safe_open(file, "pt") as lora:
        notes = json.loads(lora.metadata()["lora_adapter_metadata"])
        scale = notes["unet.lora_alpha"] / notes["unet.r"]
        for key in lora.keys():
            if key.endswith(".lora_A.weight"):
                layer = key.removeprefix("unet.").removesuffix(".lora_A.weight")
                up = lora.get_tensor(key.replace(".lora_A.", ".lora_B."))
                weights[layer + ".weight"] += scale * up @ lora.get_tensor(key)
    unet.load_state_dict(weights)
    return unet


def main():
    tenon, run = sys.argv[1], pathlib.Path(sys.argv[2])
    file = run / "pytorch_lora_weights.safetensors"
    merged = merged_unet(file)
    pipe = pipeline()
    plain = pipe.unet.state_dict().keys()
    pipe.load_lora_weights(run, weight_name=file.name)
    config = next(iter(pipe.unet.peft_config.values()))
    adapted = sum("lora_A" in name for name in pipe.unet.state_dict())
    print(f"{adapted} layers, r {config.r}, alpha {config.lora_alpha}; the model has {len(plain)} tensors")
    generator = torch.Generator().manual_seed(1)
    latents, time = torch.randn(2, 4, 16, 16, generator=generator), torch.tensor([700, 100])
    context = torch.randn(2, 77, 96, generator=generator)
    with torch.no_grad():
        got, want = (unet(latents, time, context).sample for unet in (pipe.unet, merged))
    error = ((got - want).abs().max() / want.abs().max()).item()
    print(f"UNet with PEFT's layers and with merged weights: {error:.2e} of the largest value")
    worst = 0.0
    for i, prompt in enumerate(PROMPTS):
        picture = pipe(prompt, height=128, width=128, num_inference_steps=STEPS, guidance_scale=GUIDANCE,
                       generator=torch.Generator().manual_seed(SEED + i), output_type="np").images[0]
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "picture.png"
            subprocess.run([tenon, "generate", prompt, "--lora", file, "--sampler", "ddim", "--steps", str(STEPS), "--type",
                            "f32", "--cfg-scale", str(GUIDANCE), "-s", str(SEED + i), "--device", "cpu", "-q", "-o", out],
                           check=True, stdout=subprocess.DEVNULL)
            ours = numpy.asarray(Image.open(out), dtype=numpy.float64) / 255
        difference = numpy.abs(picture - ours).max()
        print(f"'{prompt}': largest difference of a pixel {difference:.4f}")
        worst = max(worst, difference)
    good = error <= 1e-5 and worst <= 0.02 and adapted > 0
    print("they agree" if good else "they differ")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
