// A linear layer whose epilogue adds the bias and the residual stream and rounds to bf16, as after every attention in a
// transformer block. One launch, bf16 in and out.
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
  const Shape x_shape{2, 77, 96}, w_shape{160, 96}, y_shape{2, 77, 160};
  const HostTensor x = HostTensor::from(DType::BF16, x_shape, wave(x_shape, 0.37f));
  const HostTensor residual = HostTensor::from(DType::BF16, y_shape, wave(y_shape, 0.05f));
  std::vector<float> w = wave(w_shape, 0.11f), b = wave({160}, 1);

  Graph g;
  const Expr out = linear(input(g, "x", DType::BF16, x_shape), param(g, "w", DType::BF16, w_shape)) +
                   param(g, "b", DType::F32, {160});
  const Expr result = cast(out + input(g, "residual", DType::BF16, y_shape), DType::BF16);

  const HostWeights weights({{"w", {DType::F32, w_shape, w.data()}}, {"b", {DType::F32, {160}, b.data()}}});
  Executable launch(one_launch("gemm", {store("y", result)}), make_backend("cpu"), weights);
  launch.set("x", HostView{x.dtype, x.shape, x.data.data()});
  launch.set("residual", HostView{residual.dtype, residual.shape, residual.data.data()});
  launch.run();

  Oracle oracle({{"x", x},
                 {"residual", residual},
                 {"w", HostTensor::from(DType::BF16, w_shape, w)},
                 {"b", HostTensor::from(DType::F32, {160}, b)}});
  const Rounding rounding{.stored = DType::BF16, .operands = DType::BF16, .length = 96, .size = 16};
  const Comparison found = compare(launch.get("y"), oracle.eval(result), rounding.tolerance());
  std::printf("launches %d, %s\n", counts_of(launch.plan()).total, found.text().c_str());
  return counts_of(launch.plan()).total == 1 && found.agrees() ? 0 : 1;
}
