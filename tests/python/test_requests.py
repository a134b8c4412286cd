"""What the command's flags ask for, asked for in Python: the same request, the same picture."""

from __future__ import annotations

import json
import pathlib
import subprocess

import numpy as np
import pytest
from conftest import assert_close
from PIL import Image, ImageOps

import tenon

COMMAND = pathlib.Path(tenon.__file__).absolute().parents[2] / "bin/tenon"  # next to the package in a build folder
SHAPES = pathlib.Path(tenon._core.default_model_folder()).parent / "z-image-shapes"


@pytest.fixture(scope="module")
def pipe():
    return tenon.Pipeline.from_pretrained()


@pytest.fixture(scope="module")
def z_image():
    return tenon.Pipeline.from_pretrained("z-image-shapes")


def about(output):
    """What the first picture's file would say of it."""
    return json.loads(output.images[0].info["tenon"])


def test_guidance_counts_as_the_models_own_diffusers_pipeline_counts_it(pipe, z_image):
    for scale, classic in ((0, 1), (2.5, 3.5)):
        drawn = z_image("a star", guidance_scale=scale, num_inference_steps=1, seed=1)
        assert about(drawn)["cfg_scale"] == classic and drawn.guidance_scale == scale
    default = z_image("a star", num_inference_steps=1, seed=1)
    assert about(default)["cfg_scale"] == 2 and default.guidance_scale == 1
    drawn = pipe("a star", guidance_scale=2.5, num_inference_steps=1, seed=1)
    assert about(drawn)["cfg_scale"] == 2.5 and drawn.guidance_scale == 2.5


def test_no_fresh_noise_is_not_the_samplers_default(pipe):
    def draw(**more):
        return pipe("a star", sampler="euler_a", num_inference_steps=3, seed=1, **more)

    assert about(draw())["eta"] == 1 and about(draw(eta=0.0))["eta"] == 0
    little, none = (draw(eta=eta, output_type="np").images for eta in (1e-6, 0))
    assert_close(little.mean(axis=(1, 2)), none.mean(axis=(1, 2)), 0.01)
    assert np.abs(little - none).mean() < 0.01
    pipe("a star", sampler="pndm", eta=0.0, num_inference_steps=1, seed=1)  # as diffusers' scripts write it


def test_latents_are_those_of_all_prompts(pipe, rng):
    latents = rng.standard_normal((2, 4, 16, 16), dtype=np.float32)

    def draw(prompt, noise):
        return pipe(prompt, latents=noise, num_inference_steps=1, output_type="latent").images

    drawn = pipe("a star", latents=latents[:1], num_inference_steps=1, seed=1)
    assert len(about(drawn)["latents_sha256"]) == 64, "the seed is not all that it takes to draw this again"
    both = draw(["a star", "a ring"], latents)
    assert_close(both[:1], draw("a star", latents[:1]), 0)
    assert_close(both[1:], draw("a ring", latents[1:]), 0)
    for wrong in (latents[:1], np.repeat(latents, 2, 0), latents[:, 0]):
        with pytest.raises(tenon.UsageError, match="latents"):
            draw(["a star", "a ring"], wrong)


def test_noise_levels(pipe, z_image):
    assert about(pipe("a star", sampler="euler", scheduler="karras", num_inference_steps=2))["schedule"] == "karras"
    with pytest.raises(tenon.UsageError, match="scheduler: expected 'default'"):
        pipe("a star", scheduler="quadratic")
    levels = [about(z_image("a star", num_inference_steps=2, flow_shift=s))["timesteps"][1] for s in (3, 6.0)]
    assert_close(levels, [750, 6000 / 7], 1e-3)
    with pytest.raises(tenon.UsageError, match="flow"):
        pipe("a star", flow_shift=3)


def test_a_model_in_parts(z_image):
    parts = tenon.Pipeline.from_pretrained(
        diffusion_model=SHAPES / "transformer", llm=SHAPES / "text_encoder", vae=SHAPES / "vae"
    )
    drawn = parts("a star", num_inference_steps=1, seed=1, guidance_scale=1, flow_shift=3, height=128, width=128)
    whole = z_image("a star", num_inference_steps=1, seed=1, guidance_scale=1, flow_shift=3)
    assert drawn.images[0].tobytes() == whole.images[0].tobytes()
    with pytest.raises(tenon.ModelError, match="nowhere"):
        tenon.Pipeline.from_pretrained("z-image-shapes", vae="nowhere")


def test_a_language_models_adapter(tmp_path, rng):
    tensors, where = {}, 0
    for layer in range(4):
        for name, shape in (("lora_A", (2, 192)), ("lora_B", (192, 2))):
            key = f"base_model.model.model.layers.{layer}.self_attn.q_proj.{name}.weight"
            tensors[key] = rng.standard_normal(shape, dtype=np.float32)
    header = {}
    for key, value in tensors.items():
        header[key] = {"dtype": "F32", "shape": value.shape, "data_offsets": [where, where + value.nbytes]}
        where += value.nbytes
    text = json.dumps(header).encode()
    content = b"".join(v.tobytes() for v in tensors.values())
    (tmp_path / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    options = {"temperature": 0, "max_tokens": 8}
    bare = tenon.TextPipeline.from_pretrained(dtype="f32")("Ann has 3", **options)
    with_it = tenon.TextPipeline.from_pretrained(dtype="f32", lora=tmp_path)("Ann has 3", **options)
    assert bare.tokens[0].logprob != with_it.tokens[0].logprob
    with pytest.raises(tenon.ModelError, match="adapter_config.json"):
        tenon.TextPipeline.from_pretrained(lora=tmp_path / "nowhere")


def test_pictures_are_turned_as_their_files_are(pipe, tmp_path):
    pixels = np.zeros((128, 128, 3), np.uint8)
    pixels[:64, :64] = 255
    encoder = tenon.load("random:vit-s14", dtype="f32")
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a.jpg", "a.png"):
        Image.fromarray(pixels).save(tmp_path / name, exif=exif)
        stored = Image.open(tmp_path / name)
        turned = ImageOps.exif_transpose(stored)
        features = encoder([stored, turned], size=28).patch_features
        assert_close(features[0], features[1], 0)
        first, second = (pipe("a star", image=p, strength=1, num_inference_steps=1, seed=1) for p in (stored, turned))
        assert first.images[0].tobytes() == second.images[0].tobytes()
    command = [COMMAND, "embed", tmp_path / "a.png", "-m", "random:vit-s14", "--size", "28", "--type", "f32", "-q"]
    subprocess.run([*command, "--patches", tmp_path / "p.npy", "-o", tmp_path / "f.npy"], check=True)
    assert_close(np.load(tmp_path / "p.npy")[0], features[0], 0)


def test_a_generator_for_each_image(pipe):
    class Generator:  # as PyTorch's
        def __init__(self, seed):
            self.seed = seed

        def initial_seed(self):
            return self.seed

    def draw(prompts, seeds):
        generators = [Generator(s) for s in seeds]
        return pipe(prompts, generator=generators, num_images_per_prompt=2, num_inference_steps=1, output_type="np")

    out = draw(["a star", "a ring"], [7, 3, 11, 7])
    assert out.seeds == [7, 3, 11, 7]
    alone = pipe("a ring", seed=7, num_inference_steps=1, output_type="np")
    assert_close(out.images[3], alone.images[0], 0)
    with pytest.raises(tenon.UsageError, match="one for each of 2 images, got 1"):
        draw("a star", [7])
    with pytest.raises(TypeError, match="generator: expected a torch.Generator, got int"):
        pipe("a star", generator=[7])
