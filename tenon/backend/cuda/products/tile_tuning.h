// Times the choices for a product on the device, our tiles and a library's algorithms. Launches cycle through copies of
// the constant operand that together exceed the L2 cache, since weights are not in it in a network either.
#pragma once
#include <functional>
#include <vector>

#include "tenon/backend/cuda/launches/kernel_call.h"
#include "tenon/backend/cuda/products/tile_choice.h"

namespace tenon::cuda {

/// An unbound kernel call of the product for this choice, and the memory that its split-K or its library call needs.
struct TunedCall {
  KernelCall call;
  CallNeeds needs;
  size_t split_at = 0, count_at = 0;    ///< offsets of SplitK and CountSizes in a kernel's sizes
  std::vector<KernelCall> before = {};  ///< calls that only this choice needs before it
  std::vector<KernelCall> after = {};   ///< and after it
};
using MakeTunedCall = std::function<TunedCall(const TileChoice& choice)>;

/// True if TENON_CUDA_TUNE is 1. Throws Error(Usage) if it is anything else but 0 or empty.
bool asked_to_tune();
/// True if tuning is on, the device's times are meaningful and TENON_CUDA_CORE does not select one core of ours, whose
/// best is not the best of all.
bool tuning(const Device& device);

/// Times the most promising choices, unless this machine has measured them and what it found can still run, and adds
/// the fastest of ours to the device's TileTable under the product's key; if a library could do the product, also the
/// fastest of all under epilogue_key(). `constants`: the leaves that hold a network's weights.
void tune_tiles(Device& device, const ProductShape& product, const std::vector<Expr>& constants,
                const MakeTunedCall& make);

/// Times a neural-network library's plans for a problem against `own`, the launch's own kernel call, and adds the
/// faster to the TileTable under `key`, unless this machine has measured it and can still run that. `make`: makes the
/// kernel call for a plan. A plan that every process must compile anew has to be faster by a fourteenth.
void tune_dnn(Device& device, const std::string& key, const DnnProblem& problem, const std::vector<Expr>& constants,
              const std::function<TunedCall()>& own, const std::function<TunedCall(const DnnPlan& plan)>& make);

}  // namespace tenon::cuda
