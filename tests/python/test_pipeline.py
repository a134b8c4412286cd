"""tenon.Pipeline with the embedded model."""

from __future__ import annotations

import inspect
import io
import json
import os
import shutil
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from PIL import Image
from conftest import assert_close, needs_torch

import tenon


@pytest.fixture(scope="module")
def pipe():
    return tenon.Pipeline.from_pretrained()


def test_a_picture_is_its_own_in_a_batch():
    for wrong in ("always", True, None):
        with pytest.raises(tenon.UsageError, match="deterministic: expected 'run' or 'batch'"):
            tenon.Pipeline.from_pretrained(deterministic=wrong)
        with pytest.raises(tenon.UsageError, match="deterministic"):
            tenon.ImageEncoder.from_pretrained("random:vit-s14", deterministic=wrong)
    pipe = tenon.Pipeline.from_pretrained(deterministic="batch")
    two = pipe("a star", seed=4, num_images_per_prompt=2, num_inference_steps=1).images
    alone = pipe("a star", seed=5, num_inference_steps=1).images
    assert two[1].tobytes() == alone[0].tobytes()
    assert json.loads(alone[0].info["tenon"])["deterministic"] == "batch"
    with pytest.raises(tenon.UsageError, match="at most 8"):
        pipe("a star", num_images_per_prompt=9, num_inference_steps=1)


def test_the_processor_has_nothing_to_offload_to():
    for room in ("10GB", "auto", 10**10):
        with pytest.raises(tenon.UsageError, match="weights on cpu are already in host memory"):
            tenon.Pipeline.from_pretrained(offload=room)
    with pytest.raises(tenon.UsageError, match="offload.*is not a size"):
        tenon.Pipeline.from_pretrained(offload="10 gigs")
    for wrong in (0, -5, 1.5, ""):
        with pytest.raises(tenon.UsageError, match="offload"):
            tenon.Pipeline.from_pretrained(offload=wrong)


def test_draws_what_is_asked_for(pipe):
    image = pipe("a red circle on a white background", seed=42).images[0]
    assert image.size == (128, 128) and image.mode == "RGB"
    pixels = np.asarray(image, np.float64)
    red = (pixels[..., 0] > 150) & (pixels[..., 1] < 100) & (pixels[..., 2] < 100)
    assert 0.02 < red.mean() < 0.6
    assert pixels[:4].mean() > 220


def test_seeds_and_batches(pipe):
    a = pipe("a blue square", seed=7, num_inference_steps=3, output_type="np", num_images_per_prompt=2)
    b = pipe(["a blue square", "a blue square"], seed=7, num_inference_steps=3, output_type="np")
    assert a.seeds == [7, 8] and b.seeds == [7, 8]
    for x, y in zip(a.images, b.images):
        assert_close(x, y, 0)
    assert np.abs(a.images[0] - a.images[1]).max() > 0.1
    drawn = pipe("a blue square", num_inference_steps=1)
    again = pipe("a blue square", num_inference_steps=1, seed=drawn.seeds[0])
    assert drawn.images[0].tobytes() == again.images[0].tobytes()


def test_latents_stand_for_the_seed(pipe):
    noise = np.random.default_rng(0).standard_normal((1, 4, 16, 16)).astype(np.float32)
    a = pipe("a green ring", latents=noise, num_inference_steps=2, seed=1, output_type="np").images[0]
    b = pipe("a green ring", latents=noise, num_inference_steps=2, seed=2, output_type="np").images[0]
    assert_close(a, b, 0)
    with pytest.raises(tenon.UsageError, match=r"\[latents\] expected 1024 values"):
        pipe("a green ring", latents=noise[:, :2])


def test_callback_sees_and_changes_latents(pipe):
    seen = []

    def look(p, step, timestep, kwargs):
        assert p is pipe
        seen.append((step, timestep, kwargs["latents"].shape))
        return {"latents": np.zeros_like(kwargs["latents"])} if step == 3 else None

    changed = pipe("a star", seed=3, num_inference_steps=3, callback_on_step_end=look, output_type="np").images[0]
    assert [s for s, _, _ in seen] == [0, 1, 2, 3]  # the model's own sampler, PNDM, makes one call more than asked for
    assert seen[0][2] == (1, 4, 16, 16) and seen[0][1] > seen[1][1] >= seen[2][1] > seen[3][1]
    plain = pipe("a star", seed=3, num_inference_steps=3, output_type="np").images[0]
    assert np.abs(changed - plain).max() > 0.1


def test_callbacks_return_a_dict_or_nothing(pipe):
    def draw(answer):
        return pipe("a star", seed=3, num_inference_steps=1, callback_on_step_end=lambda *_: answer)

    for answer in ("latents", 0, np.zeros((1, 4, 16, 16), np.float32)):
        with pytest.raises(tenon.UsageError, match="callback_on_step_end: expected it to return a dict or None"):
            draw(answer)
    for latents in ([1.0], np.zeros((1, 4, 8, 8), np.float32)):
        with pytest.raises(tenon.UsageError, match=r"latents: expected an array of shape \(1, 4, 16, 16\) back"):
            draw({"latents": latents})
    draw({})
    draw(None)


def test_numbers_of_numpy_are_numbers(pipe):
    images = pipe("a star", height=np.int64(64), width=np.int32(64), num_inference_steps=np.int64(1), seed=np.int64(3))
    assert images.images[0].size == (64, 64) and images.seeds == [3]
    for bad in ({"height": 10**400}, {"seed": 10**400}, {"guidance_scale": 10**400}, {"latents": "noise"}):
        with pytest.raises(tenon.UsageError, match=next(iter(bad))):
            pipe("a star", num_inference_steps=1, **bad)
    with pytest.raises(TypeError, match="guidance_scale"):
        pipe("a star", guidance_scale="7")


def test_an_exception_in_the_callback_comes_out(pipe):
    def fail(*_):
        raise ZeroDivisionError("from the callback")

    with pytest.raises(ZeroDivisionError, match="from the callback"):
        pipe("a star", seed=3, num_inference_steps=3, callback_on_step_end=fail)
    pipe("a star", seed=3, num_inference_steps=1)


def test_an_interrupt_ends_the_call_within_a_step(pipe):
    steps = []

    def interrupt(_, step, *__):
        steps.append(step)
        if step == 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pipe("a star", seed=3, num_inference_steps=50, callback_on_step_end=interrupt)
    assert len(steps) <= 3
    timer = threading.Timer(0.15, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pipe("a star", seed=3, num_inference_steps=999)
    assert time.monotonic() - begin <= 8
    assert pipe("a star", seed=3, num_inference_steps=1).images


@pytest.mark.parametrize(
    "arguments, kind, message",
    [
        ({"height": 100}, ValueError, "multiple"),
        ({"num_inference_steps": 0}, ValueError, "num_inference_steps"),
        ({"num_inference_steps": 2.5}, ValueError, "num_inference_steps"),
        ({"guidance_scale": -1}, ValueError, "guidance_scale"),
        ({"cfg_normalization": True}, ValueError, "guidance"),
        ({"cfg_truncation": "half"}, TypeError, "cfg_truncation"),
        ({"seed": -2}, ValueError, "seed"),
        ({"sampler": "nonsense"}, ValueError, "nonsense"),
        ({"output_type": "jpeg"}, ValueError, "output_type"),
        ({"timesteps": [1]}, ValueError, "timesteps: is not supported"),
        ({"prompt_embeds": [[0.0]]}, ValueError, "prompt_embeds: is not supported"),
        ({"cross_attention_kwargs": {"scale": 1}}, ValueError, "cross_attention_kwargs: is not supported"),
        ({"guidance_rescale": 0.7}, ValueError, "guidance_rescale: is not supported"),
        ({"callback_on_step_end_tensor_inputs": ["prompt_embeds"]}, ValueError, "only .latents."),
        ({"clip_skip": 3}, ValueError, "clip skip"),
        ({"clip_skip": -1}, ValueError, "clip_skip"),
        ({"eta": 0.5}, ValueError, "eta"),
        ({"strength": 0.5}, ValueError, "strength: needs an image"),
        ({"image": 3}, TypeError, "image: expected a PIL image"),
        ({"image": np.zeros((8, 8), np.uint8)}, ValueError, "image: expected shape"),
        ({"image": np.full((8, 8, 3), 2.0)}, ValueError, "image: expected numbers in 0..1"),
        ({"image": np.zeros((8, 8, 3), np.int32)}, ValueError, "image: expected uint8"),
        ({"image": np.zeros((8, 8, 3), np.uint8), "strength": 2}, ValueError, "strength"),
        ({"image": np.zeros((8, 8, 3), np.uint8), "resize_mode": "squeeze"}, ValueError, "resize_mode"),
        ({"image": [np.zeros((8, 8, 3), np.uint8)] * 2}, ValueError, "image: expected one picture"),
        ({"num_images_per_prompt": 0}, ValueError, "num_images_per_prompt"),
        ({"negative_prompt": ["a", "b"]}, ValueError, "negative_prompt: expected one for all prompts or one for each .1., got 2"),
        ({"sampler": 3}, TypeError, "sampler: expected a string, got int"),
        ({"generator": 3}, TypeError, "generator"),
        ({"height": 1 << 20, "width": 1 << 20}, (ValueError, MemoryError), "height|size|largest"),
    ],
)
def test_bad_arguments(pipe, arguments, kind, message):
    with pytest.raises(kind, match=message):
        pipe("a star", **arguments)


def test_bad_prompts_and_models(pipe, tmp_path):
    with pytest.raises(TypeError, match="prompt: expected a string"):
        pipe(3)
    with pytest.raises(tenon.ModelError, match="random weights have no tokenizer"):
        tenon.Pipeline.from_pretrained("random:tiny")("a star")
    with pytest.raises(tenon.UsageError, match="did you mean 'sd15'"):
        tenon.Pipeline.from_pretrained("random:sd16")
    with pytest.raises(tenon.ModelError, match="no model at"):
        tenon.Pipeline.from_pretrained(tmp_path / "missing")
    with pytest.raises(tenon.ModelError):
        tenon.Pipeline.from_pretrained(tmp_path)
    with pytest.raises(tenon.DeviceError, match="nowhere"):
        tenon.Pipeline.from_pretrained(device="nowhere")
    with pytest.raises(tenon.UsageError, match="f12"):
        tenon.Pipeline.from_pretrained(dtype="f12")
    with pytest.raises(tenon.UsageError, match=r"dtype. int8 is for language models, not for 'unet'"):
        tenon.Pipeline.from_pretrained(dtype="int8")  # when it is opened, not when it draws
    with pytest.raises(tenon.UsageError, match="did you mean 'text_encoder'"):
        tenon.Pipeline.from_pretrained(dtype="bf16, f32: text_encode")


def test_a_type_may_have_exceptions():
    exact = tenon.Pipeline.from_pretrained(dtype="f32, bf16: text_encoder")
    draw = {"num_inference_steps": 1, "seed": 1, "output_type": "latent"}
    other = tenon.Pipeline.from_pretrained(dtype="torch.float32")
    assert not np.array_equal(exact("a red circle", **draw).images, other("a red circle", **draw).images)


def test_prompts_find_loras_in_a_folder(tmp_path, monkeypatch):
    (tmp_path / "thing.safetensors").write_bytes(b"\x02" + b"\0" * 7 + b"{}")
    with pytest.raises(tenon.ModelError, match="there is no thing, nor thing.safetensors"):
        tenon.Pipeline.from_pretrained()("a <lora:thing:1>", seed=1)
    there = tenon.Pipeline.from_pretrained(lora_dir=tmp_path)
    with pytest.raises(tenon.ModelError, match=str(tmp_path / "thing.safetensors")):
        there("a <lora:thing:1>", seed=1)
    monkeypatch.setenv("TENON_LORA_DIR", str(tmp_path))
    with pytest.raises(tenon.ModelError, match=str(tmp_path / "thing.safetensors")):
        tenon.Pipeline.from_pretrained()("a <lora:thing:1>", seed=1)


def test_a_callback_cannot_draw_with_its_own_pipeline(pipe):
    with pytest.raises(tenon.Error, match="already drawing"):
        pipe("a red circle", num_inference_steps=2, seed=1, callback_on_step_end=lambda p, *_: p("b", seed=1) and None)
    assert pipe("a red circle", num_inference_steps=1, seed=1).images


def test_an_interrupt_ends_the_call_that_waits_and_no_other(pipe):
    drawn = []
    other = threading.Thread(target=lambda: drawn.append(pipe("a star", seed=3, num_inference_steps=120).images))
    other.start()
    time.sleep(0.1)
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pipe("a star", seed=4, num_inference_steps=1)
    waited = time.monotonic() - begin
    still_drawing = other.is_alive()
    other.join()
    assert waited < 2 and still_drawing
    assert len(drawn) == 1
    assert pipe("a star", seed=4, num_inference_steps=1).images


def test_opening_a_model_is_interrupted(tmp_path):
    unknown = b"0," * 40_000_000  # numbers in a field unknown to us
    header = b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":[' + unknown + b"0]}}"
    (tmp_path / "slow.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    timer = threading.Timer(0.1, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        tenon.Pipeline.from_pretrained(tmp_path / "slow.safetensors")
    assert time.monotonic() - begin < 1


def test_a_model_whose_name_is_not_utf8(tmp_path):
    folder = os.path.join(os.fsencode(tmp_path), b"m\xff\x1b")
    shutil.copytree(os.fsencode(tenon._core.default_model_folder()), folder)
    for path in (folder, os.fsdecode(folder)):
        assert tenon.Pipeline.from_pretrained(path).name == "m\\xff\\x1b"
    os.remove(os.path.join(folder, b"vae", b"config.json"))
    os.symlink("config.json", os.path.join(folder, b"vae", b"config.json"))
    with pytest.raises(tenon.ModelError, match=r"m\\xff\\x1b/vae/config.json") as caught:
        tenon.Pipeline.from_pretrained(folder)
    assert "\\xff" in caught.value.where
# The first argument names of diffusers' StableDiffusionPipeline.__call__, in order.
DIFFUSERS = (
    "prompt height width num_inference_steps timesteps sigmas guidance_scale negative_prompt num_images_per_prompt eta "
    "generator latents prompt_embeds negative_prompt_embeds ip_adapter_image ip_adapter_image_embeds output_type "
    "return_dict cross_attention_kwargs guidance_rescale clip_skip callback_on_step_end "
    "callback_on_step_end_tensor_inputs"
).split()


def test_arguments_are_those_of_diffusers_in_their_order(pipe):
    parameters = list(inspect.signature(pipe.__call__).parameters.values())
    assert [p.name for p in parameters[: len(DIFFUSERS)]] == DIFFUSERS
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters[len(DIFFUSERS) :])
    by_place = pipe("a star", 64, 64, 1, None, None, 2.0, "a circle", 1, seed=3)
    by_name = pipe("a star", height=64, width=64, num_inference_steps=1, guidance_scale=2.0, negative_prompt="a circle",
                   seed=3)  # fmt: skip
    assert by_place.images[0].tobytes() == by_name.images[0].tobytes()
    images, flagged = pipe("a star", num_inference_steps=1, seed=3, return_dict=False)
    assert len(images) == 1 and flagged is None


def test_version():
    assert tenon.__version__.count(".") == 2


def test_pictures_keep_what_they_say_of_themselves_when_saved(pipe, tmp_path):
    drawn = pipe("a red circle, (large)", negative_prompt="blue", seed=5, num_inference_steps=2, clip_skip=1)
    image = drawn.images[0]
    assert isinstance(image, Image.Image)
    image.save(tmp_path / "a.png")
    text = Image.open(tmp_path / "a.png").text
    assert text["parameters"].startswith("a red circle, (large)\nNegative prompt: blue\nSteps: 2, Sampler: PLMS, ")
    assert "Seed: 5" in text["parameters"] and "Clip skip: 2" in text["parameters"]
    about = json.loads(text["tenon"])
    assert about["seed"] == 5 and about["model"] == "default-model" and len(about["model_sha256"]) == 64
    assert about["tenon"] == tenon.__version__ and about["clip_skip"] == 1 and "timings" not in about
    for name, format in (("b.jpg", None), ("c.webp", None), ("d", "JPEG")):
        image.save(tmp_path / name, format)
        comment = Image.open(tmp_path / name).getexif().get_ifd(0x8769)[0x9286]
        assert comment.removeprefix(b"UNICODE\0").decode("utf-16-be") == text["parameters"]
    stream = io.BytesIO()
    image.save(stream, "PNG")
    assert stream.getvalue() == (tmp_path / "a.png").read_bytes()
    again = pipe("a red circle, (large)", negative_prompt="blue", seed=5, num_inference_steps=2, clip_skip=1)
    again.images[0].save(tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "a.png").read_bytes()
    image.convert("L").save(tmp_path / "grey.png")


def test_clip_skip_changes_the_prompt_alone(pipe):
    def draw(**more):
        return pipe("a blue ring", seed=7, num_inference_steps=2, output_type="np", **more).images

    assert_close(draw(clip_skip=0), draw(), 0)
    assert np.abs(draw(clip_skip=1) - draw()).max() > 0.01
    # Without guidance the negative prompt is not read; with it, it is not skipped: guidance 1 uses only one text.
    assert np.abs(draw(clip_skip=1, guidance_scale=1.0) - draw(guidance_scale=1.0)).max() > 0.01


def test_images_to_start_from(pipe):
    start = pipe("a red circle on a white background", seed=42).images[0]

    def draw(image, **more):
        return pipe("a red circle on a white background", seed=1, image=image, strength=0.3, num_inference_steps=10,
                    output_type="np", **more).images[0]  # fmt: skip

    pixels = np.asarray(start)
    from_pil = draw(start)
    assert np.abs(from_pil - pixels / 255).mean() < 0.1  # little of it is redrawn
    for same in (pixels, pixels / 255.0, (pixels / 255.0).astype(np.float32)[None], [start], start.convert("RGBA")):
        assert_close(draw(same), from_pil, 0)
    wide = draw(start.resize((200, 100)), resize_mode="crop", width=128, height=128)
    assert wide.shape == (128, 128, 3)
    assert draw(start.resize((101, 77))).shape == (72, 96, 3)  # its own size, rounded down to multiples of 8


def test_latents_come_out_undecoded(pipe):
    latents = pipe("a star", seed=3, num_inference_steps=2, output_type="latent", num_images_per_prompt=2).images
    assert tuple(latents.shape) == (2, 4, 16, 16)
    one = pipe("a star", seed=4, num_inference_steps=2, output_type="latent").images
    assert_close(latents[1:], one, 0)
    seen = []
    pipe("a star", seed=3, num_inference_steps=2, callback_on_step_end=lambda *a: seen.append(a[3]["latents"]))
    assert_close(seen[-1], latents[:1], 0)


@needs_torch
def test_tensors(pipe):
    import torch

    options = {"seed": 3, "num_inference_steps": 2}
    pt = pipe("a star", output_type="pt", **options).images
    assert pt.shape == (1, 3, 128, 128) and pt.dtype == torch.float32
    assert_close(pt.permute(0, 2, 3, 1), pipe("a star", output_type="np", **options).images, 0)
    assert isinstance(pipe("a star", output_type="latent", **options).images, torch.Tensor)
    a = pipe("a star", image=pt, strength=0.5, output_type="np", **options).images
    b = pipe("a star", image=pt.permute(0, 2, 3, 1).numpy(), strength=0.5, output_type="np", **options).images
    assert_close(a, b, 0)


def test_words_that_the_model_does_not_know_warn(pipe):
    assert "circle" in pipe.known_words["shapes"]
    with pytest.warns(UserWarning, match="does not know 'castle'.*pipe.known_words"):
        pipe("a castle", num_inference_steps=1, seed=1)
    with pytest.warns(UserWarning, match="128x128 only"):
        pipe("a star", num_inference_steps=1, seed=1, height=64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe("a red circle on a white background", num_inference_steps=1, seed=1)
    with pytest.raises(tenon.ModelError, match="lora:x"):
        pipe("a star <lora:x:1>")


LORA_LAYER, LORA_WIDTH = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_v", 32


def write_lora(path, layer, rank, scale, extra=()):
    """A LoRA file of one square layer, f32."""
    rng = np.random.default_rng(rank)
    width = LORA_WIDTH
    tensors = {
        f"unet.{layer}.lora_A.weight": rng.standard_normal((rank, width)).astype(np.float32),
        f"unet.{layer}.lora_B.weight": (scale * rng.standard_normal((width, rank))).astype(np.float32),
        **{name: np.zeros(1, np.float32) for name in extra},
    }
    header, data = {}, b""
    for name, values in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + values.nbytes],
        }
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("apply", ["merge", "side"])
def test_loras_come_and_go(tmp_path, apply):
    pipe = tenon.Pipeline.from_pretrained(lora_apply=apply, lora_rank=8)

    def draw():
        options = {"num_inference_steps": 2, "seed": 1, "output_type": "latent"}
        return np.asarray(pipe("a red circle on a white background", **options).images)

    plain = draw()
    write_lora(tmp_path / "one.safetensors", LORA_LAYER, 2, 0.1)
    write_lora(tmp_path / "two.safetensors", LORA_LAYER, 3, 0.1)
    assert pipe.load_lora_weights(tmp_path, weight_name="one.safetensors") == "1 layer of unet, rank 2"
    one = draw()
    assert np.abs(one - plain).max() > 1e-3
    pipe.load_lora_weights(tmp_path / "two.safetensors", "two", weight=0.5)
    assert pipe.get_active_adapters() == ["default_0", "two"]
    assert np.abs(draw() - one).max() > 1e-3
    pipe.set_adapters("default_0")
    assert_close(draw(), one, 0)
    pipe.set_adapters(["default_0", "two"], [0.0, 0.0])
    assert_close(draw(), plain, 0)
    pipe.unload_lora_weights()
    assert_close(draw(), plain, 0)


def test_wrong_loras(tmp_path, pipe):
    file = tmp_path / "x.safetensors"
    write_lora(file, LORA_LAYER, 2, 0.1, ["lora_te2_x.alpha"])
    with pytest.raises(tenon.ModelError, match=r"1 of 3 tensors.*lora_te2_x.alpha"):
        pipe.load_lora_weights(file)
    with pytest.warns(UserWarning, match="1 tensor left out"):
        pipe.load_lora_weights(file, "x", partial=True)
    with pytest.raises(tenon.UsageError, match="'x' is in use"):
        pipe.load_lora_weights(file, "x")
    with pytest.raises(tenon.UsageError, match="'y'"):
        pipe.set_adapters("y")
    with pytest.raises(tenon.UsageError, match="expected 1, got 2"):
        pipe.set_adapters("x", [1, 2])
    for weight in (float("nan"), 1e30):
        with pytest.raises(tenon.UsageError, match="a number from -10000 to 10000"):
            pipe.set_adapters("x", weight)
    pipe.unload_lora_weights()
    # It does not fit beside the layers, which is reported before a picture is requested; nothing of it remains.
    write_lora(tmp_path / "wide.safetensors", LORA_LAYER, 9, 0.1)
    side = tenon.Pipeline.from_pretrained(lora_apply="side", lora_rank=8)
    with pytest.raises(tenon.UsageError, match=rf"wide\.safetensors. needs a rank of 9 at '{LORA_LAYER}.*have rank 8"):
        side.load_lora_weights(tmp_path / "wide.safetensors")
    assert side.get_active_adapters() == []
    with pytest.raises(tenon.UsageError, match="lora_apply"):
        tenon.Pipeline.from_pretrained(lora_apply="beside")
