// Shared by tests of both attention cores: random problems, the result in double, kernels that are run twice.
#pragma once
#include <cstring>
#include <functional>

#include "tests/cuda/core_harness.h"

namespace tenon::cuda::test {

/// q, k and v are [batch, token, head, depth] if tokens come first, else [batch, head, token, depth].
struct AttentionProblem {
  device::AttentionSizes s;
  std::shared_ptr<void> q, k, v;
  bool tokens_first = false;

  int64_t rows() const { return static_cast<int64_t>(s.batch) * s.heads * s.queries; }
};

/// A core under test: results of its kernel, including what core_harness.h's epilogue adds.
struct AttentionCore {
  std::string name;
  DType type;
  KernelSource source;
  CallShape shape;
  std::function<std::vector<std::byte>(Device& device, const AttentionProblem& x, float* y)> params;

  /// Without what the epilogue adds. Runs twice, once with threads in the opposite order: results must be
  /// bit-identical.
  std::vector<float> run(const AttentionProblem& x) const;
};
/// Makes the core for given sizes.
using MakeAttentionCore = std::function<AttentionCore(const device::AttentionSizes& s)>;

/// Checks that a NaN, and a block that was never written, fail.
void check_faults_fail(const MakeAttentionCore& make);
/// Compares with sums in double. A scale of 1 becomes 1.3 / sqrt(depth). Returns the results.
std::vector<float> check_attention(const MakeAttentionCore& make, device::AttentionSizes s, bool tokens_first = false);
/// One NaN in q, k or v.
void check_nans_reach_those_who_see_them(const MakeAttentionCore& make, bool causal = true);
/// `keys` leading keys with score -inf must have no effect, bit for bit.
void check_keys_that_weigh_nothing(const MakeAttentionCore& make, int keys);

}  // namespace tenon::cuda::test
