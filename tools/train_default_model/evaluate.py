"""Draws the 100 prompts of tests/grader/prompts.txt with diffusers' StableDiffusionPipeline and grades the pictures.

    python evaluate.py ../../assets/default-model --guidance 2 --sheet /tmp/sheet.png
"""

import argparse

import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler, EulerDiscreteScheduler, PNDMScheduler
from diffusers import StableDiffusionPipeline
from PIL import Image

import grading

SCHEDULERS = {"ddim": DDIMScheduler, "dpm++2m": DPMSolverMultistepScheduler, "euler": EulerDiscreteScheduler,
              "pndm": PNDMScheduler}


def pictures(pipe, lines, steps, guidance, batch=20):
    out = []
    for i in range(0, len(lines), batch):
        fields = [line.split("\t") for line in lines[i:i + batch]]
        generators = [torch.Generator().manual_seed(int(f[0])) for f in fields]
        out += pipe([f[1] for f in fields], num_inference_steps=steps, guidance_scale=guidance, generator=generators,
                    height=128, width=128).images
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, nargs="+", default=[2.0])
    parser.add_argument("--scheduler", choices=SCHEDULERS, help="instead of the model's own")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--sheet", help="PNG of all pictures, for the last guidance")
    args = parser.parse_args()
    pipe = StableDiffusionPipeline.from_pretrained(args.model, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    if args.scheduler:
        pipe.scheduler = SCHEDULERS[args.scheduler].from_config(pipe.scheduler.config)
    grade, lines = grading.Grader(), grading.prompt_lines()[:args.limit]
    for guidance in args.guidance:
        images = pictures(pipe, lines, args.steps, guidance)
        passed = 0
        for image, line in zip(images, lines):
            good, reason = grade(image, line)
            passed += good
            if not good:
                print(f"  {line.split(chr(9))[1]}: {reason}")
        print(f"guidance {guidance}, {args.steps} steps, {type(pipe.scheduler).__name__}: {passed} of {len(lines)}")
    if args.sheet:
        sheet = Image.new("RGB", (1280, 128 * ((len(images) + 9) // 10)))
        for i, image in enumerate(images):
            sheet.paste(image, (i % 10 * 128, i // 10 * 128))
        sheet.save(args.sheet)


if __name__ == "__main__":
    main()
