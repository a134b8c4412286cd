// Writes NumPy's .npy files (version 1.0), f32.
#pragma once
#include <filesystem>
#include <span>

#include "tenon/core/shape.h"
#include "tenon/io/files.h"

namespace tenon {

/// Writes row-major values of `shape` as '<f4' into a file under construction. Error(Usage) if there are not
/// shape.numel() values.
void write_npy(AtomicFile& file, const Shape& shape, std::span<const float> values);
/// The same as a whole file: all or nothing.
void write_npy(const std::filesystem::path& path, const Shape& shape, std::span<const float> values,
               Overwrite overwrite);

}  // namespace tenon
