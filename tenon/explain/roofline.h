// What a device does at most, measured: bytes a second of a copy and of reading, operations a second of a matrix
// product.
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
  double copied = 0;                   ///< bytes a second, read plus written, of a copy in f32 that no cache holds
  double read = 0;                     ///< bytes a second of sums of its rows
  std::map<DType, double> operations;  ///< a second, two a multiply-add, of a product of square matrices in that type
  std::string how;                     ///< sizes of all, for people

  /// Bytes a second that memory gives: the faster of both ways to ask.
  double bytes() const { return std::max(copied, read); }
};

/// One line, with the sizes.
std::string roofline_text(const Roofline& peak);

/// Measures what `peak` lacks: copies and reads, and a product in each type that the plan's anchors multiply in. Each
/// at sizes that grow until a run is long enough to be timed, the best of a few runs. Takes well below a second a type.
/// Error(Memory) if not even small ones fit.
void measure_roofline(const Plan& plan, const std::shared_ptr<Backend>& backend, Roofline& peak);

}  // namespace tenon
