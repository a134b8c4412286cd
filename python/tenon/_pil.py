"""PIL images that are saved with their texts. Importing this module imports Pillow."""

from __future__ import annotations

import os
from typing import Any

from PIL import Image, PngImagePlugin

_PARAMETERS = "parameters"
_EXIF_IFD, _USER_COMMENT = 0x8769, 0x9286


class Picture(Image.Image):
    """An image drawn by a pipeline. `info` holds "parameters" (in the form of AUTOMATIC1111's web UI) and "tenon"
    (JSON); `save` writes both into PNG files and "parameters" into the EXIF comment of JPEG and WebP, unless it is
    given other text. Copies and edited images are plain images."""

    @classmethod
    def of(cls, width: int, height: int, pixels: bytes, text: dict[str, str]) -> Picture:
        """The image with these RGB bytes."""
        image = Image.frombytes("RGB", (width, height), pixels)
        image.__class__ = cls
        image.info.update(text)
        return image  # type: ignore[return-value]

    def save(self, fp: Any, format: str | None = None, **params: Any) -> None:
        """Like PIL.Image.Image.save, with the picture's text."""
        kind = (format or _format_of(fp)).upper()
        text = {k: v for k, v in self.info.items() if k in (_PARAMETERS, "tenon")}
        if kind == "PNG" and text and "pnginfo" not in params:
            chunks = PngImagePlugin.PngInfo()
            for key, value in text.items():
                (chunks.add_text if value.isascii() else chunks.add_itxt)(key, value)
            params["pnginfo"] = chunks
        elif kind in ("JPEG", "WEBP") and _PARAMETERS in text and "exif" not in params:
            exif = Image.Exif()
            exif.get_ifd(_EXIF_IFD)[_USER_COMMENT] = b"UNICODE\0" + text[_PARAMETERS].encode("utf-16-be")
            params["exif"] = exif
        super().save(fp, format, **params)


def _format_of(fp: Any) -> str:
    name = os.fsdecode(fp) if isinstance(fp, (str, bytes, os.PathLike)) else str(getattr(fp, "name", ""))
    Image.init()
    return Image.EXTENSION.get("." + name.rpartition(".")[2].lower(), "")
