#!/usr/bin/env python3
"""Rewrites a GGUF file's model with its matrices in another type: the same weights for peers that read other types.

    gguf_types.py FROM.gguf TO.gguf q8_0|bf16|f16|f32

Vectors stay f32. In f32 nothing of the file's values is lost; the other types round them once. Needs gguf and numpy.
"""
import argparse
import pathlib

import numpy
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.quants import dequantize, quantize

TYPES = {"q8_0": LlamaFileType.MOSTLY_Q8_0, "bf16": LlamaFileType.MOSTLY_BF16, "f16": LlamaFileType.MOSTLY_F16, "f32": LlamaFileType.ALL_F32}
OF_THE_WRITER = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.file_type",
                 "general.quantization_version")


def copy_metadata(reader: GGUFReader, writer: GGUFWriter) -> None:
    for name, field in reader.fields.items():
        if name in OF_THE_WRITER:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)


def rewrite(source: pathlib.Path, target: pathlib.Path, kind: str) -> None:
    """Writes `target`, replacing an existing file."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer)
    writer.add_file_type(TYPES[kind])
    writer.add_quantization_version(2)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        to = GGMLQuantizationType[kind.upper()] if len(tensor.shape) > 1 else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quantize(values, to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("type", choices=list(TYPES))
    arguments = parser.parse_args()
    rewrite(arguments.source, arguments.target, arguments.type)


if __name__ == "__main__":
    main()
