"""Converts pictures between Python's libraries and the engine: PIL images, arrays and tensors, and their texts."""

from __future__ import annotations

from typing import Any

from . import _core
from ._errors import UsageError

_ORIENTATION = 0x0112
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")


def need_numpy(caller: str) -> Any:
    """NumPy, or an ImportError that names the caller."""
    try:
        import numpy
    except ImportError as e:
        raise ImportError(f"{caller} needs NumPy here: pip install numpy") from e
    return numpy


def need_torch(caller: str) -> Any:
    """PyTorch, or an ImportError that names the caller."""
    try:
        import torch
    except ImportError as e:
        raise ImportError(f"{caller} needs PyTorch: pip install torch") from e
    return torch


def is_pil(image: Any) -> bool:
    """Whether it behaves like a Pillow image."""
    return hasattr(image, "mode") and hasattr(image, "convert") and hasattr(image, "size")


def is_array(image: Any) -> bool:
    """Whether it has a shape and element type."""
    return hasattr(image, "shape") and hasattr(image, "dtype")


def check_mode(image: Any, name: str) -> None:
    """Refuses PIL images without 8-bit colours."""
    if image.mode not in _MODES:
        raise UsageError(f"{name}: pictures of mode {image.mode!r} have no 8-bit colours; convert it to RGB first", name)


def check_sides(width: int, height: int, name: str) -> None:
    """Refuses empty and absurdly large pictures."""
    if not (0 < width <= _core.LARGEST_SIDE and 0 < height <= _core.LARGEST_SIDE):
        raise UsageError(f"{name}: expected sides from 1 to {_core.LARGEST_SIDE} pixels, got {width}x{height}", name)


def shape_text(array: Any) -> str:
    """The array's shape for a message."""
    return f"[{', '.join(str(n) for n in array.shape)}]"


def upright(image: Any) -> Any:
    """A PIL image as RGB, turned as its EXIF says: Pillow leaves that to its callers; the command does it for files."""
    if hasattr(image, "getexif") and image.getexif().get(_ORIENTATION, 1) != 1:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    return image.convert("RGB")


def rgb_bytes(image: Any, name: str) -> tuple[int, int, bytes]:
    """Width, height and 8-bit RGB of one picture in diffusers' forms: a PIL image; a NumPy array [height, width, 3] of
    uint8 or of numbers in 0..1; a PyTorch tensor [3, height, width] of numbers in 0..1. Arrays and tensors may have a
    leading axis of 1. Transparency is dropped; a PIL image is turned as its EXIF says."""
    np = need_numpy("tenon.Pipeline")
    if is_pil(image):
        check_mode(image, name)
        array = np.asarray(upright(image))
    elif not is_array(image):
        raise TypeError(f"{name}: expected a PIL image, an array or a tensor, got {type(image).__name__}")
    else:
        tensor = hasattr(image, "detach")
        array = image.detach().float().cpu().numpy() if tensor else np.asarray(image)
        if array.ndim == 4 and array.shape[0] == 1:
            array = array[0]
        if tensor and array.ndim == 3 and array.shape[0] == 3:
            array = array.transpose(1, 2, 0)
        if array.ndim != 3 or array.shape[2] != 3:
            expected = "[3, height, width]" if tensor else "[height, width, 3]"
            raise UsageError(f"{name}: expected shape {expected}, got {shape_text(image)}", name)
        if array.dtype != np.uint8:
            array = _eight_bits(np, array, name)
    check_sides(array.shape[1], array.shape[0], name)
    return array.shape[1], array.shape[0], np.ascontiguousarray(array).tobytes()


def _eight_bits(np: Any, array: Any, name: str) -> Any:
    if array.dtype.kind != "f":
        raise UsageError(f"{name}: expected uint8 values or numbers in 0..1, got {array.dtype}", name)
    if array.size and not (array.min() >= 0 and array.max() <= 1):  # NaN too
        raise UsageError(f"{name}: expected numbers in 0..1, got {array.min()} to {array.max()}", name)
    return np.rint(array * 255).astype(np.uint8)


def pil_image(width: int, height: int, pixels: bytes, text: dict[str, str]) -> Any:
    """A PIL image with `text` as its `info`, which `save` writes into PNG files (and into EXIF of JPEG and WebP)."""
    try:
        from ._pil import Picture
    except ImportError as e:
        raise ImportError('pictures as PIL images need Pillow: pip install pillow, or pass output_type="np"') from e
    return Picture.of(width, height, pixels, text)


def float_array(pictures: list[tuple[int, int, int, bytes]]) -> Any:
    """f32 [n, height, width, channels] in 0..1."""
    np = need_numpy("tenon.Pipeline")
    parts = [np.frombuffer(pixels, np.uint8).reshape(h, w, c) for w, h, c, pixels in pictures]
    return np.stack(parts).astype(np.float32) / 255.0
