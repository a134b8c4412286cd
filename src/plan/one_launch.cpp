#include "tenon/plan/one_launch.h"

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"

namespace tenon {

Plan one_launch(const std::string& skeleton_name, std::span<const Expr> sinks) {
  Launch launch;
  launch.name = launch.skeleton = skeleton_name;
  for (SinkOutput& o : expand_sinks(sinks)) launch.outputs.push_back({o.name, o.value});
  TENON_CHECK(Usage, !launch.outputs.empty(), skeleton_name) << "needs a sink";
  const std::optional<std::string> reason = form_launch(launch);
  TENON_CHECK(Usage, !reason, skeleton_name) << *reason;

  Plan plan;
  plan.name = skeleton_name;
  plan.graph = std::make_shared<Graph>();
  Memo memo;
  for (Output& o : launch.outputs) o.value = rebuild(*plan.graph, o.value, memo);
  for (const Expr& e : operands_of(launch))
    if (!e.is<nodes::Param>())
      plan.buffers.push_back({e->attrs.text, e.dtype(), e.shape(), BufferRole::Input, Rate::Step, -1, 0});
  for (const Output& o : launch.outputs)
    plan.buffers.push_back({o.buffer, o.value.dtype(), o.value.shape(), BufferRole::Output, Rate::Step, -1, 0});
  plan.phases.push_back({Rate::Step, {std::move(launch)}});
  lay_out_memory(plan);
  return plan;
}

}  // namespace tenon
