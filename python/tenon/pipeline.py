"""Text to image and image to image with Stable Diffusion 1.x checkpoints."""

from __future__ import annotations

import numbers
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _checks, _core, _dtypes, _pictures
from ._checks import real, shown, whole
from ._errors import UsageError
from ._opened import Opened, set_options

StepCallback = Callable[["Pipeline", int, float, dict[str, Any]], "dict[str, Any] | None"]

_OUTPUT_TYPES = ("pil", "np", "pt", "latent")
_RESIZE_MODES = ("stretch", "crop", "fill")
_KARRAS = {"default": None, "discrete": False, "karras": True}
_UNSUPPORTED = ("timesteps", "sigmas", "prompt_embeds", "negative_prompt_embeds", "ip_adapter_image",
                "ip_adapter_image_embeds", "cross_attention_kwargs", "guidance_rescale")  # fmt: skip


@dataclass
class ImageOutput:
    """A pipeline's result: the pictures, and what is needed to draw them again. `images`: a list of PIL images; with
    output_type "np" an array [n, height, width, 3], with "pt" a tensor [n, 3, height, width], both f32 in 0..1; with
    "latent" the latents [n, channels, height / 8, width / 8]."""

    images: Any
    seeds: list[int] = field(default_factory=list)
    width: int = 0
    height: int = 0
    num_inference_steps: int = 0
    guidance_scale: float = 0.0
    sampler: str = ""
    nsfw_content_detected: None = None  # for compatibility with diffusers; there is no such filter


def _latent_array(latents: Any) -> Any:
    if hasattr(latents, "detach"):  # a PyTorch tensor of any type and device
        latents = latents.detach().float().cpu().numpy()
    np = _pictures.need_numpy("tenon.Pipeline")
    try:
        return np.ascontiguousarray(latents, np.float32)
    except (TypeError, ValueError) as e:
        raise UsageError(f"latents: expected an array of numbers, got {type(latents).__name__}", "latents") from e


def _prompts(prompt: Any, name: str) -> list[str]:
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(prompts, (list, tuple)) or not prompts or not all(isinstance(p, str) for p in prompts):
        raise TypeError(f"{name}: expected a string or a list of strings, got {type(prompt).__name__}")
    return [_checks.text(p, name) for p in prompts]


def _seed_of(generator: Any) -> int:
    if not hasattr(generator, "initial_seed"):
        raise TypeError(f"generator: expected a torch.Generator, got {type(generator).__name__}")
    return int(generator.initial_seed())


def _seed(seed: int | None, generator: Any) -> int | list[int]:
    """The first image's seed; of a list of generators, every image's."""
    if seed is not None and generator is not None:
        raise UsageError("seed: give a seed or a generator, not both", "seed")
    if isinstance(generator, (list, tuple)):
        return [_seed_of(g) for g in generator]
    if generator is not None:
        seed = _seed_of(generator)
    if seed is None or seed == -1:
        return int(_core.draw_seed())
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**64:
        raise UsageError(f"seed: expected a whole number of at least 0, or -1 to draw one, got {shown(seed)}", "seed")
    return int(seed)


def _refuse(**given: Any) -> None:
    """Refuses, by name, diffusers' arguments that are not supported here, unless they have no effect."""
    for name, value in given.items():
        empty = value is None or (isinstance(value, (int, float)) and value == 0)
        if not empty:
            raise UsageError(f"{name}: is not supported; leave it out", name)


def _only_latents(tensors: Sequence[str]) -> None:
    if list(tensors) != ["latents"]:
        raise UsageError('callback_on_step_end_tensor_inputs: only "latents" is available', "callback_on_step_end")


def _flag(value: Any, name: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UsageError(f"{name}: expected {', '.join(map(repr, allowed))}, got {value!r}", name)
    return value


@dataclass
class _Drawn:
    """The engine's results for all prompts so far."""

    pictures: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    texts: list[dict[str, str]] = field(default_factory=list)
    latents: list[bytes] = field(default_factory=list)
    latent_shape: tuple[int, ...] = ()

    def images(self, output_type: str) -> Any:
        """The pictures in the form of `output_type`."""
        if output_type == "pil":
            return [_pictures.pil_image(w, h, p, t) for (w, h, _, p), t in zip(self.pictures, self.texts)]
        if output_type == "np":
            return _pictures.float_array(self.pictures)
        if output_type == "pt":
            torch = _pictures.need_torch('output_type="pt"')
            return torch.from_numpy(_pictures.float_array(self.pictures)).permute(0, 3, 1, 2).contiguous()
        np = _pictures.need_numpy("tenon.Pipeline")
        latents = np.frombuffer(b"".join(self.latents), np.float32).reshape(-1, *self.latent_shape[1:]).copy()
        try:
            return _pictures.need_torch('output_type="latent"').from_numpy(latents)
        except ImportError:
            return latents


@dataclass
class _Adapter:
    """A loaded LoRA; weight None: not active."""

    file: str
    weight: float | None
    partial: bool


def _lora_file(path: Any, weight_name: str | None) -> str:
    file = os.fspath(path)
    if isinstance(file, bytes):
        file = os.fsdecode(file)
    if not os.path.isdir(file):
        return file
    names = [weight_name] if weight_name else ["pytorch_lora_weights.safetensors", "adapter_model.safetensors"]
    found = [n for n in names if os.path.exists(os.path.join(file, n))]
    return os.path.join(file, (found or names)[0])


def _lora_weight(weight: Any) -> float:
    value = real(weight, "weight")
    _core.check_lora_weight("weight", value)
    return value


class Pipeline(Opened):
    """A model ready to draw. Concurrent calls wait for one another.

        pipe = tenon.Pipeline.from_pretrained()          # the small model that comes with the package
        pipe("a red circle on a white background").images[0].save("circle.png")
    """

    def __init__(self, core: Any) -> None:
        super().__init__(core)
        self._adapters: dict[str, _Adapter] = {}

    @classmethod
    def from_pretrained(
        cls,
        path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None,
        *,
        device: str = "cpu",
        dtype: Any = None,
        threads: int = 0,
        fusion: bool = True,
        lora_apply: str = "merge",
        lora_rank: int = 32,
        deterministic: str = "run",
        offload: int | str | None = None,
        lora_dir: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None,
        diffusion_model: str | os.PathLike[str] | None = None,
        llm: str | os.PathLike[str] | None = None,
        vae: str | os.PathLike[str] | None = None,
    ) -> Pipeline:
        """Opens a model: a diffusers folder, a single .safetensors or .gguf file, or the package's own.

        device: "cpu", "cuda", "cuda:1" (one of several), or "auto" for a GPU if one can be used.
        dtype: type of computation: "bf16", "f16" (on a GPU), "f32" or, for Z-Image, "e4m3"; a library's type such as
            torch.float32; or a type with exceptions as the command's --type takes them, "e4m3, bf16: text_encoder".
            Default: bf16 where the device computes in it, else f32.
        threads: CPU threads, 0 for those of set_num_threads, else of TENON_THREADS, else all processors. fusion: False
            runs every node as its own launch.
        lora_apply: "merge" adds LoRAs to the weights; "side" keeps them beside linear layers, where the ranks of all
            active ones may total lora_rank. lora_dir: folder of the LoRAs that prompts name; default: TENON_LORA_DIR,
            else the working directory.
        deterministic: "run" gives the same pictures in every run; "batch" also in every batch of at most 8 pictures,
            which costs time on a GPU.
        offload: most GPU memory to use, in bytes or as "10GB" or "auto" (what is free): weights that do not fit stay
            in the host's memory and are copied while others are in use.
        diffusion_model, llm, vae: parts of a Z-Image model, each a file or a component's folder, instead of those of
            `path`, which may then be left out.

        Raises ModelError if it is not such a model, UsageError for a type that the model or the device does not have,
        DeviceError if the device does not exist."""
        options = _core.PipelineOptions()
        options.batch_invariant = _checks.batch_invariant(deterministic)
        _flag(lora_apply, "lora_apply", ("merge", "side"))
        options.set_lora_apply(lora_apply)
        options.lora_rank = whole(lora_rank, "lora_rank")
        set_options(options, device, dtype, threads, fusion)
        parts = _core.PartPaths(*("" if part is None else os.fspath(part) for part in (diffusion_model, llm, vae)))
        options.parts = parts
        room = _checks.memory(offload, "offload")
        if room:
            options.set_offload(room)
        options.lora_folder = "" if lora_dir is None else os.fspath(lora_dir)
        with _dtypes.named_dtype():
            return cls(_core.ImagePipeline(parts.diffusion_model if path is None else os.fspath(path), options))

    @property
    def known_words(self) -> dict[str, list[str]]:
        """All words that the model was trained on, by kind, if it was trained on few; otherwise empty."""
        return self._core.known_words

    def load_lora_weights(
        self,
        path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
        adapter_name: str | None = None,
        *,
        weight_name: str | None = None,
        weight: float = 1.0,
        partial: bool = False,
    ) -> str:
        """Reads a LoRA, a .safetensors file or a folder with `weight_name` in it, and activates it in addition to
        others. Returns a summary of what was used of it. Raises ModelError if it is not a LoRA for this model,
        UsageError if it does not fit beside the layers (`lora_apply`), for example with a rank above `lora_rank`. With
        `partial`, tensors that have no place in the model are left out with a warning. Argument names are
        diffusers'."""
        name = adapter_name if adapter_name is not None else f"default_{len(self._adapters)}"
        if not isinstance(name, str):
            raise TypeError(f"adapter_name: expected a string, got {type(name).__name__}")
        if name in self._adapters:
            raise UsageError(f"adapter_name: {name!r} is in use", "adapter_name")
        adapter = _Adapter(_lora_file(path, weight_name), _lora_weight(weight), bool(partial))
        report, left_out = self._core.load_lora(adapter.file, adapter.partial)
        if left_out:
            many = "1 tensor" if len(left_out) == 1 else f"{len(left_out)} tensors"
            warnings.warn(f"{adapter.file}: {many} left out, such as {left_out[0]}", stacklevel=2)
        self._adapters[name] = adapter
        return str(report)

    def set_adapters(
        self, adapter_names: str | Sequence[str], adapter_weights: float | Sequence[float] | None = None
    ) -> None:
        """Activates these LoRAs and no others, each with a weight (default 1). Nothing is planned or compiled again."""
        names = [adapter_names] if isinstance(adapter_names, str) else list(adapter_names)
        weights = [1.0 if adapter_weights is None else adapter_weights] * len(names)
        if isinstance(adapter_weights, (list, tuple)):
            weights = list(adapter_weights)
        if len(weights) != len(names):
            raise UsageError(f"adapter_weights: expected {len(names)}, got {len(weights)}", "adapter_weights")
        for name in names:
            if name not in self._adapters:
                raise UsageError(f"adapter_names: no LoRA {name!r} is loaded", "adapter_names")
        new = dict(zip(names, map(_lora_weight, weights)))
        for name, adapter in self._adapters.items():
            adapter.weight = new.get(name)

    def get_active_adapters(self) -> list[str]:
        """Names of the active LoRAs."""
        return [name for name, adapter in self._adapters.items() if adapter.weight is not None]

    def unload_lora_weights(self) -> None:
        """Removes all LoRAs: weights are again those of the model's files, bit for bit."""
        self._adapters.clear()
        self._core.unload_loras()

    def __call__(
        self,
        prompt: str | Sequence[str],
        height: int | None = None,
        width: int | None = None,
        num_inference_steps: int | None = None,
        timesteps: None = None,
        sigmas: None = None,
        guidance_scale: float | None = None,
        negative_prompt: str | Sequence[str] | None = None,
        num_images_per_prompt: int | None = 1,
        eta: float | None = None,
        generator: Any = None,
        latents: Any = None,
        prompt_embeds: None = None,
        negative_prompt_embeds: None = None,
        ip_adapter_image: None = None,
        ip_adapter_image_embeds: None = None,
        output_type: str | None = "pil",
        return_dict: bool = True,
        cross_attention_kwargs: None = None,
        guidance_rescale: float = 0.0,
        clip_skip: int | None = None,
        callback_on_step_end: StepCallback | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("latents",),
        *,
        image: Any = None,
        strength: float | None = None,
        resize_mode: str = "stretch",
        seed: int | None = None,
        sampler: str | None = None,
        scheduler: str | None = None,
        flow_shift: float | None = None,
        cfg_normalization: float = 0.0,
        cfg_truncation: float = 1.0,
    ) -> Any:
        """Draws, with the arguments of diffusers' StableDiffusionPipeline, in their order, `image` and `strength` as in
        its StableDiffusionImg2ImgPipeline. What is left out takes the model's defaults.

        image: a picture to start from: a PIL image, a uint8 or 0..1 array [height, width, 3], or a 0..1 tensor
            [3, height, width], fitted to `width` and `height` (default: its own, rounded down to a multiple of 8) by
            `resize_mode`: "stretch", "crop" or "fill". strength: how much of it is redrawn, in (0, 1], default 0.8.
        seed or generator (or a list, one for each image): image i uses the seed plus i; without them one is drawn.
        latents: initial noise of unit variance [images of all prompts, channels, height / 8, width / 8].
        clip_skip: last layers of the text encoder to skip for the prompt. eta: for samplers that have one.
        guidance_scale: off at 1, but at 0 for Z-Image, as in its pipeline, like cfg_normalization, cfg_truncation.
        sampler: Tenon's, A1111's or diffusers' name. scheduler: "default", "discrete" or "karras" noise levels.
        callback_on_step_end: called as (pipe, step, timestep, {"latents": array}); may return a dict of new latents.
        output_type: "pil", "np", "pt" or "latent" (see ImageOutput). return_dict=False gives (images, None).
        <lora:FILE:WEIGHT> in a prompt applies a LoRA (see `lora_dir`). Ctrl-C ends the call within a step."""
        _refuse(**{name: value for name, value in locals().items() if name in _UNSUPPORTED})
        _only_latents(callback_on_step_end_tensor_inputs)
        request = self._request(num_images_per_prompt, height, width, num_inference_steps, clip_skip)
        self._set_sampler(request, sampler, scheduler, eta, flow_shift)
        self._set_guidance(request, guidance_scale, cfg_normalization, cfg_truncation)
        self._add_loras(request)
        self._start_from(request, image, strength, resize_mode)
        first = _seed(seed, generator)
        output = self._draw_all(request, prompt, negative_prompt, first, latents, output_type, callback_on_step_end)
        return output if return_dict else (output.images, None)

    @staticmethod
    def _request(count: Any, height: Any, width: Any, steps: Any, clip_skip: Any) -> Any:
        request = _core.ImageRequest()
        request.batch = whole(1 if count is None else count, "num_images_per_prompt")
        if height is not None:
            request.height = whole(height, "height")
        if width is not None:
            request.width = whole(width, "width")
        if steps is not None:
            request.steps = whole(steps, "num_inference_steps")
        if clip_skip is not None:
            request.clip_skip = whole(clip_skip, "clip_skip", 0)
        return request

    @staticmethod
    def _set_sampler(request: Any, sampler: Any, scheduler: Any, eta: Any, flow_shift: Any) -> None:
        if not isinstance(sampler, (str, type(None))):
            raise TypeError(f"sampler: expected a string, got {type(sampler).__name__}")
        request.sampler = sampler or ""
        request.karras = _KARRAS[_flag(scheduler or "default", "scheduler", tuple(_KARRAS))]
        request.eta = None if eta is None else real(eta, "eta")
        request.flow_shift = None if flow_shift is None else real(flow_shift, "flow_shift")

    def _set_guidance(self, request: Any, scale: Any, normalization: Any, truncation: Any) -> None:
        if scale is not None:
            guidance = real(scale, "guidance_scale")
            if not guidance >= 0:
                raise UsageError(f"guidance_scale: expected 0 or more, got {scale!r}", "guidance_scale")
            request.cfg_scale = guidance + self._core.guidance_offset
        request.cfg_normalization = real(normalization, "cfg_normalization")
        request.cfg_truncation = real(truncation, "cfg_truncation")

    def _add_loras(self, request: Any) -> None:
        for adapter in self._adapters.values():
            if adapter.weight is not None:
                request.add_lora(adapter.file, adapter.weight, adapter.partial)

    @staticmethod
    def _start_from(request: Any, image: Any, strength: Any, resize_mode: Any) -> None:
        _flag(resize_mode, "resize_mode", _RESIZE_MODES)
        if image is None:
            if strength is not None:
                raise UsageError("strength: needs an image to start from", "strength")
            return
        if isinstance(image, (list, tuple)):
            if len(image) != 1:
                raise UsageError(f"image: expected one picture for all prompts, got {len(image)}", "image")
            image = image[0]
        request.set_picture(*_pictures.rgb_bytes(image, "image"), resize_mode)
        request.strength = 0.8 if strength is None else real(strength, "strength")

    def _draw_all(
        self,
        request: Any,
        prompt: Any,
        negative_prompt: Any,
        seed: int | list[int],
        latents: Any,
        output_type: str | None,
        callback: StepCallback | None,
    ) -> ImageOutput:
        kind = _flag(output_type or "pil", "output_type", _OUTPUT_TYPES)
        if kind == "pt":
            _pictures.need_torch('output_type="pt"')  # before any work
        request.decode = kind != "latent"
        prompts = _prompts(prompt, "prompt")
        negatives = _prompts(negative_prompt or "", "negative_prompt")
        if len(negatives) not in (1, len(prompts)):
            raise UsageError(
                f"negative_prompt: expected one for all prompts or one for each ({len(prompts)}), got {len(negatives)}",
                "negative_prompt",
            )
        of_one, count = request.batch, len(prompts) * request.batch
        noise = None if latents is None else _latent_array(latents)
        if noise is not None and noise.shape[:1] != (count,):
            raise UsageError(f"latents: expected those of {count} images, got shape {noise.shape}", "latents")
        if isinstance(seed, list):
            if len(seed) != count:
                raise UsageError(f"generator: expected one for each of {count} images, got {len(seed)}", "generator")
            request.batch = 1  # a batch has consecutive seeds
        output, drawn = ImageOutput([]), _Drawn()
        for first in range(0, count, request.batch):
            if noise is not None:
                request.set_latents(noise[first : first + request.batch].tobytes())
            request.prompt = prompts[first // of_one]
            request.negative = negatives[first // of_one % len(negatives)]
            request.seed = seed[first] if isinstance(seed, list) else (seed + first) % 2**64
            for warning in self._core.warnings(request) if first % of_one == 0 else ():
                warnings.warn(warning, stacklevel=4)
            self._draw(request, callback, kind == "pil", output, drawn)
        output.images = drawn.images(kind)
        return output

    def _draw(
        self, request: Any, callback: StepCallback | None, with_texts: bool, output: ImageOutput, drawn: _Drawn
    ) -> None:
        result = self._core.run(request, None if callback is None else self._on_step(callback), with_texts)
        drawn.pictures += result["images"]
        drawn.texts += result["texts"]
        drawn.latents.append(result["latents"])
        drawn.latent_shape = result["latent_shape"]
        output.seeds += result["seeds"]
        output.width, output.height = result["width"], result["height"]
        output.num_inference_steps = result["steps"]
        output.guidance_scale, output.sampler = result["guidance_scale"], result["sampler"]

    def _on_step(self, callback: StepCallback) -> Callable[..., bytes | None]:
        def on_step(step: int, timestep: float, shape: tuple[int, ...], latents: bytes) -> bytes | None:
            np = _pictures.need_numpy("callback_on_step_end")
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
            return _latent_array(changed).tobytes()

        return on_step

    def __repr__(self) -> str:
        return f"<tenon.Pipeline {self.name} on {self.device}>"
