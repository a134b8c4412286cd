"""What the command's flags ask for, asked for in Python: the same request, the same picture."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
from conftest import assert_close

import tenon

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
    latents = rng.standard_normal((4, 4, 16, 16), dtype=np.float32)

    def draw(prompt, noise, **more):
        return pipe(prompt, latents=noise, num_inference_steps=1, output_type="latent", **more).images

    both = draw(["a star", "a ring"], latents, num_images_per_prompt=2)
    assert_close(both[:2], draw("a star", latents[:2], num_images_per_prompt=2), 0)
    assert_close(both[2:], draw("a ring", latents[2:], num_images_per_prompt=2), 0)
    for wrong in (latents[:1], latents[:3], latents[0]):
        with pytest.raises(tenon.UsageError, match="latents"):
            draw(["a star", "a ring"], wrong, num_images_per_prompt=2)


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
