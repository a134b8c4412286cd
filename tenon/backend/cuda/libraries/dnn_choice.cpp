#include "tenon/backend/cuda/libraries/dnn_choice.h"

#include "tenon/backend/cuda/products/core_names.h"
#include "tenon/backend/cuda/products/tile_table.h"

namespace tenon::cuda {
namespace {

constexpr std::string_view kCudnn = "cudnn";
[[maybe_unused]] const bool kRegisteredCudnn = (register_core_name(kCudnn, CoreOf::Library), true);

}  // namespace

std::optional<DnnPlan> measured_plan(DnnLibrary& library, const std::string& line, const DnnProblem& problem) {
  const std::string by_it = library.name() + " ";
  if (!line.starts_with(by_it)) return std::nullopt;
  const std::string engine = line.substr(by_it.size());
  std::shared_ptr<LibraryCall> call = library.plan(problem, engine);
  return call ? std::optional(DnnPlan{engine, false, std::move(call)}) : std::nullopt;
}

std::optional<DnnPlan> choose_dnn(Device& device, const std::string& key, const DnnProblem& problem) {
  device.announce(problem);
  if (!core_allowed(kCudnn) || device.facts().batch_invariant()) return std::nullopt;
  const std::optional<std::string> line = TileTable::of(device.facts()).find(key);
  const bool asked = library_asked(kCudnn), measured = line && line->starts_with("cudnn ");
  DnnLibrary* const library = asked || measured ? device.dnn_library() : nullptr;
  if (!library) return std::nullopt;
  if (std::optional<DnnPlan> plan = measured ? measured_plan(*library, *line, problem) : std::nullopt) return plan;
  if (!asked) return std::nullopt;
  std::vector<DnnPlan> plans = library->likeliest(problem, 1);
  return plans.empty() ? std::nullopt : std::optional(std::move(plans.front()));
}

TunedCall dnn_call(Device& device, const std::string& name, const DnnPlan& plan,
                   const std::vector<LibraryOperand>& operands) {
  CallNeeds needs;
  needs.workspace_bytes = plan.call->workspace_bytes();
  return {KernelCall(device, name + " " + device.dnn_library()->name() + " " + plan.engine, plan.call, operands),
          needs};
}

}  // namespace tenon::cuda
