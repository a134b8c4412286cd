// A projection whose result is written as [batch, heads, tokens, depth]: the permute of multi-head attention without a
// separate pass.
#include <cmath>
#include <cstdio>

#include "tenon/core/compare.h"
#include "tenon/core/host_tensor.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/expr/ops.h"
#include "tenon/oracle/oracle.h"
#include "tenon/plan/one_launch.h"
#include "tenon/runtime/executable.h"

using namespace tenon;

static std::vector<float> wave(const Shape& shape, float step) {
  std::vector<float> v(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(step * static_cast<float>(i));
  return v;
}

int main() {
  const int64_t batch = 2, tokens = 50, heads = 4, depth = 24;
  const Shape x_shape{batch, tokens, 64}, w_shape{heads * depth, 64};
  std::vector<float> x = wave(x_shape, 0.37f), w = wave(w_shape, 0.11f);

  Graph g;
  const Expr q = linear(input(g, "x", DType::F32, x_shape), param(g, "w", DType::F32, w_shape));
  const Expr by_head = permute(reshape(q, {batch, tokens, heads, depth}), {0, 2, 1, 3});

  const HostWeights weights({{"w", {DType::F32, w_shape, w.data()}}});
  Executable launch(one_launch("gemm", {store("q", by_head)}), make_backend("cpu"), weights);
  launch.set("x", x);
  launch.run();

  Oracle oracle({{"x", HostTensor::from(DType::F32, x_shape, x)}, {"w", HostTensor::from(DType::F32, w_shape, w)}});
  const Comparison found = compare(launch.get("q"), oracle.eval(by_head), Tolerance{1e-4});
  std::printf("launches %d, %s\n", counts_of(launch.plan()).total, found.text().c_str());
  return counts_of(launch.plan()).total == 1 && found.agrees() ? 0 : 1;
}
