// Measured peaks of a device: bytes per second when copying and reading, operations per second of a matrix product.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "tenon/backend/backend.h"
#include "tenon/plan/plan.h"

namespace tenon {

/// What measure_roofline has measured so far.
struct Roofline {
  double copied = 0;                   ///< bytes per second, read plus written, of an f32 copy too large for caches
  double read = 0;                     ///< bytes per second when summing its rows
  std::map<DType, double> operations;  ///< per second, two per multiply-add, of a square matrix product in that type
  std::string how;                     ///< all sizes, for people

  /// Memory bandwidth in bytes per second: the faster of the two measurements.
  double bytes() const { return std::max(copied, read); }
};

/// One line, with the sizes.
std::string roofline_text(const Roofline& peak);

/// Measures what `peak` lacks: copies and reads, and a product in each type that the plan's anchors multiply in. Sizes
/// grow until a run takes long enough to time; the best of a few runs counts. Takes well below a second per type.
/// Throws Error(Memory) if even small sizes do not fit.
void measure_roofline(const Plan& plan, const std::shared_ptr<Backend>& backend, Roofline& peak);

}  // namespace tenon
