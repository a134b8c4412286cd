"""Opens models of any kind, and image encoders: features of pictures by a vision transformer."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _checks, _core, _dtypes
from ._checks import whole
from ._errors import ModelError, UsageError
from ._opened import Opened, set_options
from ._pictures import check_mode, check_sides, is_array, is_pil, need_numpy, shape_text, upright
from .pipeline import Pipeline
from .text import TextPipeline

if TYPE_CHECKING:
    import numpy.typing

_LARGEST_BATCH = 4096


@dataclass
class ImageFeatures:
    """Features of n pictures, in their order, as f32 NumPy arrays. `features` [n, width]: the class token after the
    last norm. `patch_features` [n, rows, columns, width]: from the top left."""

    features: numpy.typing.NDArray[Any]
    patch_features: numpy.typing.NDArray[Any]


def _check_array(array: Any, name: str) -> None:
    if str(array.dtype).rpartition(".")[2] != "uint8":
        raise UsageError(f"{name}: expected uint8 values, 0 to 255, got {array.dtype}", name)
    if len(array.shape) != 3 or array.shape[2] != 3:
        raise UsageError(f"{name}: expected shape [height, width, 3], got {shape_text(array)}", name)


def _check(image: Any, name: str) -> None:
    """Refuses what is not a picture; copies nothing."""
    if is_pil(image):
        check_mode(image, name)
        width, height = image.size
    elif is_array(image):
        _check_array(image, name)
        height, width = image.shape[:2]
    else:
        raise TypeError(
            f"{name}: expected a PIL image or a uint8 array [height, width, 3], got {type(image).__name__}"
        )
    check_sides(width, height, name)


def _pictures(images: Any) -> list[Any]:
    """The pictures as a list, all checked."""
    if is_pil(images) or (is_array(images) and len(images.shape) != 4):
        _check(images, "images")
        return [images]
    if not isinstance(images, (list, tuple)) and not is_array(images):
        raise TypeError(
            "images: expected a PIL image, a uint8 array [height, width, 3] or a list of them, "
            f"got {type(images).__name__}"
        )
    if len(images) == 0:
        raise UsageError("images: expected at least one picture, got none", "images")
    for i, image in enumerate(images):
        _check(image, f"images[{i}]")
    return list(images)


def _pixels(image: Any) -> Any:
    """A contiguous NumPy array. Transparency is dropped, as when reading files."""
    np = need_numpy("tenon.load")
    if is_pil(image):
        image = upright(image)
    elif hasattr(image, "detach"):  # a PyTorch tensor on any device
        image = image.detach().cpu().numpy()
    return np.ascontiguousarray(image)


class ImageEncoder(Opened):
    """A vision transformer ready to run. Concurrent calls wait for one another.

    enc = tenon.load("dinov2-small")
    enc(PIL.Image.open("cat.png")).features          # [1, 384]
    """

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        *,
        device: str = "cpu",
        dtype: Any = None,
        threads: int = 0,
        fusion: bool = True,
        deterministic: str = "run",
    ) -> ImageEncoder:
        """Opens a model: a folder or .safetensors file of timm's, transformers' or the original's, or "random:vit-s14".
        `device` as in Pipeline.from_pretrained. `dtype`: type of computation: "bf16", "f16" (on a GPU), "f32", a
        library's type such as torch.float32, or a type with exceptions as the command's --type takes them, "bf16, f32:
        blocks.0"; default: bf16 where the device computes in it, else f32. `threads`: CPU threads, 0 for those of
        set_num_threads, else of TENON_THREADS, else all processors. `fusion`: False runs every node as its own launch.
        `deterministic`: "run" gives the same features in every run; "batch" also in every batch, which costs time on a
        GPU. Raises ModelError if it is not an image encoder, UsageError for a type that it or the device does not have,
        DeviceError if the device does not exist."""
        options = _core.EmbeddingOptions()
        options.batch_invariant = _checks.batch_invariant(deterministic)
        set_options(options, device, dtype, threads, fusion)
        with _dtypes.named_dtype():
            return cls(_core.ImageEncoder(os.fspath(path), options))

    @property
    def dtype(self) -> str:
        """The type of computation, with its exceptions: what `dtype` took, such as "f32" or "bf16, f32: blocks.0"."""
        return self._core.dtype

    def __call__(
        self, images: Any, *, preprocessing: str | None = None, size: int | None = None, batch_size: int = 8
    ) -> ImageFeatures:
        """Features of a PIL image, a uint8 array [height, width, 3], or a list of either (or an array of several). They
        are resized, cropped and normalised as in `preprocessing` ("timm" or "hf"; default: the checkpoint's kind), to a
        square of `size` pixels (a multiple of the patch). A picture's features are bit-identical whatever else is in
        the batch. A new size or number of pictures at a time (at most `batch_size`) prepares the network again. Ctrl-C
        ends the call within a launch."""
        if preprocessing not in (None, "timm", "hf"):
            raise UsageError(f'preprocessing: expected "timm", "hf" or None, got {preprocessing!r}', "preprocessing")
        side = 0 if size is None else whole(size, "size")
        batch = whole(batch_size, "batch_size", 1, _LARGEST_BATCH)
        pixels = [_pixels(image) for image in _pictures(images)]
        return ImageFeatures(*self._core.embed(pixels, preprocessing or "", side, batch))

    def __repr__(self) -> str:
        return f"<tenon.ImageEncoder {self.name} in {self.dtype} on {self.device}>"


# By the engine's name for an ability.
_CLASSES: dict[str, type[ImageEncoder] | type[Pipeline] | type[TextPipeline]] = {
    "embed": ImageEncoder,
    "generate": Pipeline,
    "complete": TextPipeline,
}


def load(
    spec: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    device: str | None = None,
    dtype: Any = None,
    threads: int = 0,
    fusion: bool = True,
) -> ImageEncoder | Pipeline | TextPipeline:
    """Opens a model of any kind: a folder, a .safetensors file or "random:NAME". The weights decide the kind: an
    ImageEncoder for features of pictures, a Pipeline for drawing, a TextPipeline for generating text. `device`: "cpu"
    (also None), "cuda", "cuda:1" (one of several) or "auto". The rest as in the class's from_pretrained. Raises ModelError if
    it is none of these, or does not exist."""
    if not isinstance(spec, (str, bytes, os.PathLike)):
        raise TypeError(f"spec: expected a path or random:NAME, got {type(spec).__name__}")
    if device is not None and not isinstance(device, str):
        raise TypeError(f'device: expected "cpu", "cuda" or None, got {type(device).__name__}')
    path = os.fspath(spec)
    if not path:
        raise UsageError("spec: expected a path or random:NAME, got an empty string", "spec")
    abilities = _core.model_abilities(path)
    kind = next((_CLASSES[a] for a in abilities if a in _CLASSES), None)
    if kind is None:
        expected = " or ".join(_CLASSES)
        raise ModelError(f"spec: {path!r} can {' and '.join(abilities)}; expected one that can {expected}", "spec")
    return kind.from_pretrained(path, device=device or "cpu", dtype=dtype, threads=threads, fusion=fusion)
