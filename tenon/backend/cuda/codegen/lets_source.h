// Kernel source that computes a launch's lets in one block (device/launches/lets.h): independent lets run side by side,
// and lets of the same shape share a loop.
#pragma once
#include <optional>

#include "tenon/backend/cuda/codegen/program_source.h"

namespace tenon::cuda {

struct LetsSource {
  std::string functors;  ///< ends with "struct Lets { .. };", as map.h expects; its run(..) ends with a barrier
  std::string includes;
  std::vector<ProgramOutput> loaded_first;  ///< the lets whose loads Lets::first(..) issues
};

/// Source for a block of `threads`. Empty if a let is too large for one block. `lets`: ordered so that each reads only
/// earlier ones; their places are leaves. `parts`: equal parts of every let's rows, of which a block computes one.
std::optional<LetsSource> lets_source(std::span<const ProgramOutput> lets, Params& params, int threads,
                                      int64_t parts = 1);

/// The parts into which axis 0 divides `values` over `domain` so that each reads only its own part of the lets, and so
/// does each let: the extent of that axis, or 1.
int64_t parts_of_lets(std::span<const ProgramOutput> values, std::span<const ProgramOutput> lets, const Shape& domain);

/// Moves small weights that `values` read to shared memory: "struct Constants { .. };" for device/launches/plain.h, or
/// empty. Call it before generating other source with these params.
std::string constants_source(std::span<const ProgramOutput> values, Params& params, int threads);

/// The lets that `values` read, directly or through others, in their order.
std::vector<ProgramOutput> lets_read_by(std::span<const ProgramOutput> values, std::span<const ProgramOutput> lets);

}  // namespace tenon::cuda
