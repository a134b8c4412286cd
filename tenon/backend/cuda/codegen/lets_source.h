// Text that computes a launch's lets in one block (device/lets.h): those that can run side by side do, and lets of one
// shape share a loop.
#pragma once
#include <optional>

#include "tenon/backend/cuda/codegen/program_source.h"

namespace tenon::cuda {

struct LetsSource {
  std::string functors;  ///< ending with "struct Lets { .. };", which map.h wants; its run(..) ends with a barrier
  std::string includes;
  std::vector<ProgramOutput> loaded_first;  ///< the lets that Lets::first(..) loads for
};

/// Text for a block of `threads`. Nothing if a let is too large for one block. `lets`: in an order in which each reads
/// only ones before it; their places are leaves.
std::optional<LetsSource> lets_source(std::span<const ProgramOutput> lets, Params& params, int threads);

/// Small weights that `values` read move to shared memory: "struct Constants { .. };" for device/plain.h, to be asked
/// for before other text is made of these params, or nothing.
std::string constants_source(std::span<const ProgramOutput> values, Params& params, int threads);

/// The lets that `values` read, through others too, in their order.
std::vector<ProgramOutput> lets_read_by(std::span<const ProgramOutput> values, std::span<const ProgramOutput> lets);

}  // namespace tenon::cuda
