#include "tenon/plan/one_launch.h"

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

Plan one_launch(const std::string& skeleton_name, std::span<const Result> results) {
  Launch launch;
  launch.name = launch.skeleton = skeleton_name;
  std::vector<Expr> values;
  TENON_CHECK(Usage, !results.empty(), skeleton_name) << "needs a result";
  for (const Result& r : results) {
    TENON_CHECK(Usage, !r.name.empty(), skeleton_name) << "needs the name of the tensor it writes";
    TENON_CHECK(Usage, r.value, skeleton_name) << "result '" << r.name << "' is empty";
    TENON_CHECK(Usage, !is_update(r.value) || r.name == state_of(r.value)->attrs.text, skeleton_name)
        << "an update must have its state's name, got '" << r.name << "'";
    values.push_back(r.value);
  }
  values = set_precision(values[0].graph(), values, {});
  for (size_t i = 0; i < values.size(); ++i) launch.outputs.push_back({results[i].name, values[i]});
  const std::optional<std::string> reason = form_launch(launch);
  TENON_CHECK(Usage, !reason, skeleton_name) << *reason;

  Plan plan;
  plan.name = skeleton_name;
  plan.graph = std::make_shared<Graph>();
  Memo memo;
  for (Output& o : launch.outputs) o.value = rebuild(*plan.graph, o.value, memo);
  for (const Expr& e : operands_of(launch))
    if (!e.is<nodes::Param>())
      plan.buffers.push_back({e->attrs.text, e.dtype(), e.shape(),
                              e.is<nodes::State>() ? BufferRole::State : BufferRole::Input, Rate::Step, -1, 0});
  for (const Output& o : launch.outputs)
    if (!is_update(o.value))
      plan.buffers.push_back({o.buffer, o.value.dtype(), o.value.shape(), BufferRole::Output, Rate::Step, -1, 0});
  plan.phases.push_back({Rate::Step, {std::move(launch)}});
  lay_out_memory(plan);
  return plan;
}

}  // namespace tenon
