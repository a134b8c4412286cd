"""Text to image with Stable Diffusion 1.x checkpoints."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _checks, _core, _dtypes
from ._checks import real, shown, whole
from ._errors import UsageError

StepCallback = Callable[["Pipeline", int, float, dict[str, Any]], "dict[str, Any] | None"]


@dataclass
class ImageOutput:
    """What a pipeline gives: the pictures, and what it takes to draw them again."""

    images: list[Any]
    seeds: list[int] = field(default_factory=list)
    width: int = 0
    height: int = 0
    num_inference_steps: int = 0
    guidance_scale: float = 0.0
    sampler: str = ""


def _numpy(caller: str = "tenon.Pipeline") -> Any:
    try:
        import numpy
    except ImportError as e:
        raise ImportError(f"{caller} needs NumPy here: pip install numpy") from e
    return numpy


def _picture(raw: tuple[int, int, int, bytes], output_type: str) -> Any:
    width, height, channels, pixels = raw
    if output_type == "np":
        np = _numpy()
        return np.frombuffer(pixels, np.uint8).reshape(height, width, channels).astype(np.float32) / 255.0
    try:
        from PIL import Image
    except ImportError as e:
        raise ImportError('pictures as PIL images need Pillow: pip install pillow, or pass output_type="np"') from e
    return Image.frombytes("RGB", (width, height), pixels)


def _latent_bytes(latents: Any) -> bytes:
    if hasattr(latents, "detach"):  # a tensor of PyTorch's, of any type and device
        latents = latents.detach().float().cpu().numpy()
    np = _numpy()
    try:
        return np.ascontiguousarray(latents, np.float32).tobytes()
    except (TypeError, ValueError) as e:
        raise UsageError(f"latents: expected an array of numbers, got {type(latents).__name__}", "latents") from e


def _prompts(prompt: Any, name: str) -> list[str]:
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(prompts, (list, tuple)) or not prompts or not all(isinstance(p, str) for p in prompts):
        raise TypeError(f"{name}: expected a string or a list of strings, got {type(prompt).__name__}")
    return list(prompts)


def _seed(seed: int | None, generator: Any) -> int:
    if seed is not None and generator is not None:
        raise UsageError("seed: give a seed or a generator, not both", "seed")
    if generator is not None:
        if not hasattr(generator, "initial_seed"):
            raise TypeError(f"generator: expected a torch.Generator, got {type(generator).__name__}")
        seed = generator.initial_seed()
    if seed is None or seed == -1:
        return int(_core.draw_seed())
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**64:
        raise UsageError(f"seed: expected a whole number of at least 0, or -1 to draw one, got {shown(seed)}", "seed")
    return int(seed)


class Pipeline:
    """A model ready to draw. Not for several threads at once: calls wait for one another.

        pipe = tenon.Pipeline.from_pretrained()          # the small model that comes with the package
        pipe("a red circle on a white background").images[0].save("circle.png")
    """

    def __init__(self, core: Any) -> None:
        self._core = core

    @classmethod
    def from_pretrained(
        cls,
        path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None,
        *,
        device: str = "cpu",
        dtype: Any = None,
        threads: int = 0,
        fusion: bool = True,
    ) -> Pipeline:
        """Opens a model: a diffusers folder, a single .safetensors file with its tokenizer beside it, "random:sd15", or
        the package's own. `dtype` is the arithmetic (bf16, f16 or f32; by default what the device does best);
        `threads`: of the CPU, 0 for TENON_THREADS or all processors. Raises ModelError for what is no model,
        DeviceError for a device that is not there."""
        type_name = "" if dtype is None else _dtypes.name_of(dtype)
        spec = "" if path is None else os.fspath(path)
        return cls(_core.ImagePipeline(spec, device, type_name, _checks.threads(threads), fusion))

    @property
    def name(self) -> str:
        """The model's name."""
        return self._core.name

    @property
    def device(self) -> str:
        """What the pipeline runs on, in words."""
        return self._core.device

    def __call__(
        self,
        prompt: str | Sequence[str],
        negative_prompt: str | Sequence[str] | None = None,
        height: int | None = None,
        width: int | None = None,
        num_inference_steps: int | None = None,
        guidance_scale: float | None = None,
        *,
        num_images_per_prompt: int = 1,
        seed: int | None = None,
        generator: Any = None,
        latents: Any = None,
        sampler: str | None = None,
        output_type: str = "pil",
        callback_on_step_end: StepCallback | None = None,
    ) -> ImageOutput:
        """Draws. What is left out takes the model's own default. Image i of a prompt has the seed plus i; without a
        seed one is drawn and reported. `latents`: initial noise of unit variance [images, channels, height / 8,
        width / 8]. `callback_on_step_end(pipe, step, timestep, {"latents": array})` may return a dict with other
        latents. `output_type`: "pil" or "np" (f32 in 0..1). Ctrl-C ends the call within a step."""
        if output_type not in ("pil", "np"):
            raise UsageError(f'output_type: expected "pil" or "np", got {output_type!r}', "output_type")
        prompts = _prompts(prompt, "prompt")
        negatives = _prompts(negative_prompt or "", "negative_prompt")
        if len(negatives) not in (1, len(prompts)):
            raise UsageError(
                f"negative_prompt: expected 1 or {len(prompts)} prompts, got {len(negatives)}", "negative_prompt"
            )
        request = _core.ImageRequest()
        request.batch = whole(num_images_per_prompt, "num_images_per_prompt")
        if height is not None:
            request.height = whole(height, "height")
        if width is not None:
            request.width = whole(width, "width")
        if num_inference_steps is not None:
            request.steps = whole(num_inference_steps, "num_inference_steps")
        if guidance_scale is not None:
            request.guidance_scale = real(guidance_scale, "guidance_scale")
            if not request.guidance_scale >= 0:
                raise UsageError(f"guidance_scale: expected 0 or more, got {guidance_scale!r}", "guidance_scale")
        request.sampler = sampler or ""
        if latents is not None:
            request.set_latents(_latent_bytes(latents))
        first = _seed(seed, generator)
        output = ImageOutput([])
        for i, text in enumerate(prompts):
            request.prompt = text
            request.negative = negatives[i % len(negatives)]
            request.seed = (first + i * request.batch) % 2**64
            self._draw(request, output_type, callback_on_step_end, output)
        return output

    def _draw(self, request: Any, output_type: str, callback: StepCallback | None, output: ImageOutput) -> None:
        on_step = None
        if callback is not None:

            def on_step(step: int, timestep: float, shape: tuple[int, ...], latents: bytes) -> bytes | None:
                np = _numpy()
                values = np.frombuffer(latents, np.float32).reshape(shape).copy()
                answer = callback(self, step, timestep, {"latents": values})
                if answer is None:
                    return None
                if not isinstance(answer, dict):
                    raise UsageError(
                        f"callback_on_step_end: expected it to return a dict or None, got {type(answer).__name__}",
                        "callback_on_step_end",
                    )
                if "latents" not in answer:
                    return None
                changed = answer["latents"]
                found = getattr(changed, "shape", None)
                if found is None or tuple(found) != tuple(shape):
                    got = type(changed).__name__ if found is None else str(tuple(found))
                    raise UsageError(f"latents: expected an array of shape {shape} back, got {got}", "latents")
                return _latent_bytes(changed)

        result = self._core.run(request, on_step)
        output.images += [_picture(raw, output_type) for raw in result["images"]]
        output.seeds += result["seeds"]
        output.width, output.height = result["width"], result["height"]
        output.num_inference_steps = result["steps"]
        output.guidance_scale, output.sampler = result["guidance_scale"], result["sampler"]

    def __repr__(self) -> str:
        return f"<tenon.Pipeline {self.name} on {self.device}>"
