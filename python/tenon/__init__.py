"""Tenon: transformers, diffusion models and optimizers as few fused kernels.

`fuse` turns a Python function into kernels; `load` opens a model (a `Pipeline` draws pictures, an `ImageEncoder`
computes features of them, a `TextPipeline` generates text); `lion_step` and `optim.Lion` train. Arrays of NumPy,
PyTorch, CuPy and JAX are exchanged through DLPack without copies. Importing the package imports none of them.
"""

from __future__ import annotations

from typing import Any

from ._core import __version__, backend_names
from . import train as train
from ._devices import describe_device, set_num_threads
from ._errors import (
    CancelledError,
    DeviceError,
    Error,
    InternalError,
    ModelError,
    NumericError,
    OutOfMemoryError,
    UsageError,
)
from ._expr import (
    Expr,
    attention,
    broadcast_to,
    concat,
    conv2d,
    gather,
    linear,
    matmul,
    pad,
    permute,
    reshape,
    resize_nearest,
)
from ._functions import (
    NODES,
    cast,
    group_norm,
    layer_norm,
    rms_norm,
    round_to,
    softmax,
)
from ._fuse import Fused, fuse
from ._grad import grad, value_and_grad
from .encoder import ImageEncoder, ImageFeatures, load
from .lion import explain_lion, lion_foreach, lion_step
from .pipeline import ImageOutput, Pipeline
from .text import TextOutput, TextPipeline, TextStream, TextToken



def __getattr__(name: str) -> Any:
    if name == "optim":  # imports torch, so only on demand
        import importlib

        return importlib.import_module(".optim", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


globals().update(NODES)  # tenon.silu, tenon.sum, ..: one function per node of the engine

__all__ = [
    "__version__",
    "CancelledError",
    "DeviceError",
    "Error",
    "Expr",
    "Fused",
    "ImageEncoder",
    "ImageFeatures",
    "ImageOutput",
    "InternalError",
    "ModelError",
    "NumericError",
    "OutOfMemoryError",
    "Pipeline",
    "TextOutput",
    "TextPipeline",
    "TextStream",
    "TextToken",
    "UsageError",
    "attention",
    "backend_names",
    "broadcast_to",
    "cast",
    "concat",
    "conv2d",
    "describe_device",
    "explain_lion",
    "fuse",
    "gather",
    "grad",
    "group_norm",
    "layer_norm",
    "linear",
    "lion_foreach",
    "lion_step",
    "load",
    "matmul",
    "pad",
    "permute",
    "reshape",
    "resize_nearest",
    "rms_norm",
    "round_to",
    "set_num_threads",
    "softmax",
    "train",
    "value_and_grad",
    *NODES,
]
