// A C++ user of the installed library: writes an expression, prints the plan, runs it, compares with the oracle.
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/core/compare.h"
#include "tenon/core/host_tensor.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/oracle/oracle.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/executable.h"

namespace {

// The only weight of the example.
class OneWeight : public tenon::WeightSource {
 public:
  OneWeight(std::string name, const tenon::HostTensor& tensor) : name_(std::move(name)), tensor_(tensor) {}
  tenon::HostView find(const std::string& name) const override {
    if (name != name_) throw tenon::Error(tenon::ErrorKind::Model, name, "no such weight");
    return {tensor_.dtype, tensor_.shape, tensor_.data.data()};
  }

 private:
  std::string name_;
  const tenon::HostTensor& tensor_;
};

tenon::HostTensor filled(const tenon::Shape& shape, double step) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(std::sin(step * static_cast<double>(i)));
  return tenon::HostTensor::from(tenon::DType::F32, shape, std::span<const float>(values));
}

}  // namespace

int main() {
  using namespace tenon;
  Graph graph;
  const Expr x = input(graph, "x", DType::F32, {5, 32});
  const Expr w = param(graph, "w", DType::F32, {48, 32});
  const Expr y = silu(linear(silu(x), w)) + 1.0;

  const Expr scale = quantize_rows(y).scale;
  const std::vector<Result> results{{"y", y}, {"scale", scale}};
  const Plan plan = make_plan(results);
  std::fputs(print_plan(plan).c_str(), stdout);

  const HostTensor x_values = filled({5, 32}, 0.37), w_values = filled({48, 32}, 0.11);
  Executable run(plan, make_backend("cpu"), OneWeight("w", w_values));
  run.set("x", HostView{x_values.dtype, x_values.shape, x_values.data.data()});
  run.run_all();

  Oracle oracle(std::map<std::string, HostTensor>{{"x", x_values}, {"w", w_values}});
  const Comparison found = compare(run.get("y"), oracle.eval(y), Tolerance{1e-4});
  const Comparison scales = compare(run.get("scale"), oracle.eval(scale), Tolerance{1e-6});
  std::printf("%d launches, beside the oracle %s; scales %s\n", counts_of(plan).total, found.text().c_str(),
              scales.text().c_str());
  return found.agrees() && scales.agrees() && counts_of(plan).total == 2 ? 0 : 1;
}
