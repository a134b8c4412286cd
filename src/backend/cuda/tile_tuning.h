// Measures the choices of tiles for one product on the device, between copies of its constant operand that together do
// not stay in the second-level cache, as weights do not in a network.
#pragma once
#include <functional>
#include <vector>

#include "tenon/backend/cuda/step.h"
#include "tenon/backend/cuda/tile_choice.h"

namespace tenon::cuda {

/// A step of the product on this choice, bound to nothing, and what its split K wants.
struct TunedStep {
  Step step;
  CoreLaunch launch;
  size_t split_at = 0;  ///< of SplitK in the sizes
};
using MakeTunedStep = std::function<TunedStep(const TileChoice& choice)>;

/// Measures the likeliest of `choices` and adds the fastest to the device's TileTable under `key`. `constant`: the leaf
/// that a network's weights lie in.
void tune_tiles(Device& device, const std::string& key, std::vector<TileChoice> choices, const Expr& constant,
                const MakeTunedStep& make);

}  // namespace tenon::cuda
