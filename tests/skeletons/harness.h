// Runs hand-built launches against the oracle, in every way that the test program provides (runners.h): this machine's
// instruction sets with one thread and with two, or a GPU's kernels on an emulator. Buffers and scratch are poisoned
// before each run.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/backend/kernel.h"
#include "tenon/backend/weight_source.h"
#include "tenon/core/compare.h"
#include "tenon/core/host_tensor.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"
#include "tenon/oracle/oracle.h"

namespace tenon::launches {

using Tensors = std::map<std::string, HostTensor>;

/// One way to run a launch. Runs with equal `same` must give the same bits.
struct Runner {
  std::string name, same;
  std::function<Tensors(const Launch& launch, const Tensors& tensors)> run;
};
/// All ways of this test program, simplest first.
const std::vector<Runner>& runners();

/// Weights whose data is misaligned by one byte, as may occur in a file.
class Weights : public WeightSource {
 public:
  explicit Weights(const Tensors& tensors);
  HostView find(const std::string& name) const override;

 private:
  std::map<std::string, std::vector<std::byte>> copies_;
  std::map<std::string, HostView> views_;
};

/// The weights that a kernel asks for, made from the tensors, in memory from `allocate`.
std::vector<std::shared_ptr<void>> weights_of(const Kernel& kernel, Stream& stream, const Tensors& tensors,
                                              const std::function<std::shared_ptr<void>(int64_t)>& allocate);
/// Addresses only.
std::vector<void*> addresses_of(const std::vector<std::shared_ptr<void>>& memory);

/// prefix followed by a number.
inline std::string numbered(std::string prefix, int64_t number) { return prefix += std::to_string(number); }

/// Normally distributed numbers with this spread, rounded to the tensor's type; deterministic for a seed.
HostTensor random_tensor(DType t, const Shape& shape, unsigned seed, double spread = 1);

/// Tensor cores keep 13 bits below the largest of the e4m3 products that they add in one go, at most 128; the largest
/// error observed in the longest sums was 4e-4 of their magnitude.
inline constexpr double kLostOfE4m3 = 0x1p-10;

class LaunchTest : public testing::Test {
 protected:
  Graph g;
  Tensors tensors;  ///< inputs, states and weights; missing ones that a launch reads are random

  /// A weight [.., k] or [o, i, kh, kw] scaled so that products with unit inputs have unit magnitude.
  Expr weight(const std::string& name, DType t, const Shape& shape);
  /// A launch on the skeleton that accepts it, which must be `skeleton`.
  Launch launch(const std::string& skeleton, std::vector<Output> outputs);
  /// Runs everywhere and EXPECTs the oracle's values.
  void expect(const Launch& launch, const Rounding& rounding, NaN nan = NaN::Differs);
  /// Runs once on the simplest runner; returns outputs by buffer name.
  Tensors run(const Launch& launch) { return runners().front().run(launch, tensors); }

  /// EXPECTs an output to match the oracle.
  static void compare(const Output& output, const HostTensor& got, const std::vector<double>& want,
                      const Rounding& rounding, const std::string& where, NaN nan = NaN::Differs);

 private:
  void fill(const Launch& launch);
};

}  // namespace tenon::launches
