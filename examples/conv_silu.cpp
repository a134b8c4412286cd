// A convolution that reads silu(x): the activation fills the convolution's input hole and the bias its epilogue. One
// launch on the caller's own buffers, compared with the fp64 oracle.
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
  const Shape x_shape{1, 32, 32, 16}, w_shape{24, 16, 3, 3}, y_shape{1, 32, 32, 24};
  std::vector<float> x = wave(x_shape, 0.37f), w = wave(w_shape, 0.11f), b = wave({24}, 1), y = wave(y_shape, 0);

  Graph g;
  const Expr conv =
      conv2d(silu(input(g, "x", DType::F32, x_shape)), param(g, "w", DType::F32, w_shape), 1, {1, 1, 1, 1});
  const Expr result = conv + param(g, "b", DType::F32, {24});

  const HostWeights weights({{"w", {DType::F32, w_shape, w.data()}}, {"b", {DType::F32, {24}, b.data()}}});
  Executable launch(one_launch("conv2d", {store("y", result)}), make_backend("cpu"), weights,
                    {{"x", x.data()}, {"y", y.data()}});
  launch.run();

  Oracle oracle({{"x", HostTensor::from(DType::F32, x_shape, x)},
                 {"w", HostTensor::from(DType::F32, w_shape, w)},
                 {"b", HostTensor::from(DType::F32, {24}, b)}});
  const Comparison found = compare(y, oracle.eval(result), Tolerance{1e-4});
  std::printf("launches %d, %s\n", counts_of(launch.plan()).total, found.text().c_str());
  return counts_of(launch.plan()).total == 1 && found.agrees() ? 0 : 1;
}
