// What a device does at most, measured: bytes a second of a copy, operations a second of a matrix product.
#pragma once
#include <memory>
#include <string>

#include "tenon/backend/backend.h"

namespace tenon {

struct Roofline {
  double bytes_per_second = 0;  ///< read plus written, of a copy in f32 that no cache holds
  double flops_per_second = 0;  ///< of a product of square matrices, two operations a multiply-add
  std::string how;              ///< sizes of both, for people
};

/// Runs a copy and a product of `dtype` on the device, each at sizes that grow until a run is long enough to be timed,
/// and takes the best of a few runs. Takes well below a second. Error(Memory) if not even small ones fit.
Roofline measure_roofline(const std::shared_ptr<Backend>& backend, DType dtype);

}  // namespace tenon
