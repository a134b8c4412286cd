// Runs hand-built launches beside the oracle, on every way to run one that the test program names (runners.h): the
// instruction sets of this machine with one thread and with two, or a GPU's kernels on an emulator. Buffers and scratch
// are poisoned before each run.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/core/compare.h"
#include "tenon/core/host_tensor.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/oracle.h"
#include "tenon/kernels/skeleton.h"

namespace tenon::launches {

using Tensors = std::map<std::string, HostTensor>;

/// One way to run a launch. Runs with equal `same` must give the same bits.
struct Runner {
  std::string name, same;
  std::function<Tensors(const Launch& launch, const Tensors& tensors)> run;
};
/// All ways of this test program, the plainest first.
const std::vector<Runner>& runners();

/// Weights whose data lies one byte off, as a file may have it.
class Weights : public WeightSource {
 public:
  explicit Weights(const Tensors& tensors);
  HostView find(const std::string& name) const override;

 private:
  std::map<std::string, std::vector<std::byte>> copies_;
  std::map<std::string, HostView> views_;
};

/// What a kernel asks for, made of the tensors in memory that `allocate` gives.
std::vector<std::shared_ptr<void>> weights_of(const Kernel& kernel, Stream& stream, const Tensors& tensors,
                                              const std::function<std::shared_ptr<void>(int64_t)>& allocate);
/// Addresses alone.
std::vector<void*> addresses_of(const std::vector<std::shared_ptr<void>>& memory);

/// prefix followed by a number.
inline std::string numbered(std::string prefix, int64_t number) { return prefix += std::to_string(number); }

/// Normal numbers of this spread, rounded to the tensor's type; the same for the same seed.
HostTensor random_tensor(DType t, const Shape& shape, unsigned seed, double spread = 1);

/// Tensor cores keep 13 bits below the largest of the products of e4m3 that they add up in one go, at most 128; what
/// the longest sums lost so was at most 4e-4 of their size.
inline constexpr double kLostOfE4m3 = 0x1p-10;

class LaunchTest : public testing::Test {
 protected:
  Graph g;
  Tensors tensors;  ///< inputs, states and weights; those that a launch reads and that are missing are random

  /// A weight [.., k] or [o, i, kh, kw] spread so that products of unit inputs have unit size.
  Expr weight(const std::string& name, DType t, const Shape& shape);
  /// A launch on the skeleton that takes it, which must be `skeleton`.
  Launch launch(const std::string& skeleton, std::vector<Output> outputs);
  /// Runs everywhere and EXPECTs the oracle's values.
  void expect(const Launch& launch, const Rounding& rounding, NaN nan = NaN::Differs);
  /// Runs once on the plainest runner; the outputs by buffer name.
  Tensors run(const Launch& launch) { return runners().front().run(launch, tensors); }

  /// EXPECTs that what was got for an output is what the oracle says.
  static void compare(const Output& output, const HostTensor& got, const std::vector<double>& want,
                      const Rounding& rounding, const std::string& where, NaN nan = NaN::Differs);

 private:
  void fill(const Launch& launch);
};

}  // namespace tenon::launches
