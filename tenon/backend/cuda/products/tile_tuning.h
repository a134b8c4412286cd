// Measures the choices for one product on the device, tiles of ours and algorithms of a library, between copies of its
// constant operand that together do not stay in the second-level cache, as weights do not in a network.
#pragma once
#include <functional>
#include <vector>

#include "tenon/backend/cuda/launches/kernel_call.h"
#include "tenon/backend/cuda/products/tile_choice.h"

namespace tenon::cuda {

/// A kernel call of the product on this choice, bound to nothing, and what its split K or the library's call wants.
struct TunedCall {
  KernelCall call;
  CoreLaunch launch;
  size_t split_at = 0, count_at = 0;    ///< of SplitK and CountSizes in the sizes of a kernel
  std::vector<KernelCall> before = {};  ///< what this choice alone needs done in front of it
  std::vector<KernelCall> after = {};   ///< and behind it
};
using MakeTunedCall = std::function<TunedCall(const TileChoice& choice)>;

/// True if TENON_CUDA_TUNE is 1. Error(Usage) if it is neither that nor 0 nor nothing.
bool asked_to_tune();
/// True while it measures on a device of whose times something can be learnt.
bool tuning(const Device& device);

/// Measures the likeliest of the product's choices that this machine has not measured, and adds the fastest of ours to
/// the device's TileTable under the product's key; where a library could do it, the fastest of all under
/// epilogue_key(). `constants`: the leaves that a network's weights lie in.
void tune_tiles(Device& device, const ProductShape& product, const std::vector<Expr>& constants,
                const MakeTunedCall& make);

/// Measures what a library of network layers offers for a problem beside `own`, the launch's own kernel call, and adds
/// the faster to the TileTable under `key`, unless this machine has. `make`: the kernel call that calls a plan. A plan
/// that every process compiles anew must save a fourteenth.
void tune_dnn(Device& device, const std::string& key, const DnnProblem& problem, const std::vector<Expr>& constants,
              const std::function<TunedCall()>& own, const std::function<TunedCall(const DnnPlan& plan)>& make);

}  // namespace tenon::cuda
