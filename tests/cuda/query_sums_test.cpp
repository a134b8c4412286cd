// Attention's gradient of keys, with and without that of queries: machine code at the size of a picture of 1024 x 1024.
#include "tenon/expr/precision.h"
#include "tests/cuda/launch_code.h"

namespace tenon::launches {
namespace {

class QuerySums : public LaunchCodeTest {
 protected:
  static constexpr int64_t kHeads = 2, kTokens = 4224, kColumns = 128;

  Expr heads(const std::string& name, DType t, int64_t columns) { return leaf(name, t, {1, kHeads, kTokens, columns}); }
  // Operands of the gradients.
  std::vector<Expr> operands() {
    std::vector<Expr> out;
    for (const char* name : {"q", "k", "v", "g"}) out.push_back(heads(name, DType::BF16, kColumns));
    for (const char* name : {"lse", "delta"}) out.push_back(heads(name, DType::F32, 1));
    return out;
  }
};

TEST_F(QuerySums, NothingSpills) {
  SKIP_WITHOUT_NVRTC();
  const Attrs attrs{.dtype = DType::BF16, .ints = {0}, .nums = {0.088}};
  std::vector<Expr> in = operands();
  for (const bool counted : {false, true}) {
    if (counted) in.push_back(leaf("keys", DType::I32, {1}));
    const Expr of_keys = cast(g.make(node_type<nodes::AttentionKeyGradient>(), in, attrs), DType::BF16);
    const Expr of_queries = g.make(node_type<nodes::AttentionQuerySums>(), in, attrs);
    for (const bool sums : {false, true}) {
      std::vector<Output> outputs{{"dkv", of_keys}};
      if (sums) outputs.push_back({"dq", of_queries});
      cuda::KernelExpectations expected;
      expected.contains = {cuda::Opcode::Hgmma};
      EXPECT_EQ(expect_code("sm_90a", launch("attention_gradient", outputs),
                            [&](const cuda::KernelSource&) { return expected; }),
                1U);
    }
  }
}

}  // namespace
}  // namespace tenon::launches
