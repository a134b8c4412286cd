// tenon compile: compiles every kernel of a model's plans into the kernel cache, for GPUs that need not be present.
#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/cli/parts.h"
#include "tenon/backend/offline_compiler.h"
#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/stop.h"
#include "tenon/explain/explanation.h"
#include "tenon/expr/ops.h"
#include "tenon/io/json.h"
#include "tenon/runtime/executable.h"

namespace tenon::cli {
namespace {
using nlohmann::ordered_json;

struct CompileFlags {
  PartFlags part;
  std::vector<std::string> archs = {"sm_90a"};
  bool cudnn = false;
};

// Weights with the shapes that a plan needs but without values: compiling reads none.
class ShapesOnly : public WeightSource {
 public:
  explicit ShapesOnly(const Plan& plan) {
    for (const Phase& phase : plan.phases)
      for (const Launch& l : phase.launches)
        for (const Expr& e : operands_of(l)) add(e);
  }
  HostView find(const std::string& name) const override { return views_.at(name); }

 private:
  // Adds a parameter, and those that a computed one is made of.
  void add(const Expr& e) {
    if (!e.is<nodes::Param>()) return;
    views_[e->attrs.text] = {e.dtype(), e.shape(), nullptr};
    Graph g;
    for (const Expr& x : topological(std::array{computation_of(g, e->attrs.text)}))
      if (x.is<nodes::Param>()) views_.try_emplace(x->attrs.text, HostView{x.dtype(), x.shape(), nullptr});
  }

  std::map<std::string, HostView> views_;
};

ordered_json kernel_json(const CompiledKernel& k) {
  return {
      {"name", k.name},   {"registers", k.registers}, {"stack_bytes", k.stack_bytes}, {"shared_bytes", k.shared_bytes},
      {"calls", k.calls}, {"problems", k.problems}};
}

// Reports which plans of a library are available; returns the number of missing ones.
int report_plans(const std::string& arch, const PlannedCalls& planned, const Common& common, ordered_json& out) {
  if (planned.library.empty()) return 0;
  ordered_json calls = ordered_json::array();
  int missing = 0;
  for (const PlannedCalls::Call& c : planned.calls) {
    missing += c.engine.empty();
    if (c.engine.empty()) spdlog::error("{}: {} has no plan for {}: {}", arch, planned.library, c.problem, c.why_not);
    spdlog::debug("{}: {}: {} {}", arch, c.problem, planned.library, c.engine);
    calls.push_back({{"problem", c.problem}, {"engine", c.engine}, {"why_not", c.why_not}});
  }
  if (!common.json)
    std::cout << arch << ": " << planned.library << " has plans for " << calls.size() - static_cast<size_t>(missing)
              << " of " << calls.size() << " convolutions and attentions, " << seconds_text(planned.seconds) << "\n";
  out["plans"] = {{"library", planned.library}, {"seconds", planned.seconds}, {"calls", calls}};
  return missing;
}

// All of them, before minutes are spent on the first.
void check_archs(const std::vector<std::string>& archs, const BackendOptions& options) {
  for (auto it = archs.begin(); it != archs.end(); ++it) {
    TENON_CHECK(Usage, !it->empty(), "--arch") << "expected names such as sm_89,sm_90a, got an empty one";
    TENON_CHECK(Usage, std::find(archs.begin(), it, *it) == it, "--arch") << *it << " is given more than once";
    make_offline_compiler("cuda", {.architecture = *it, .backend = options});
  }
}

// Compiles the parts for one architecture; returns the number of failed kernels and missing library plans.
int compile_for(const std::string& arch, const CompileFlags& f, const Common& common, ordered_json& out) {
  const auto begin = Clock::now();
  const std::shared_ptr<const ModelParts> model = open_parts(f.part.spec);
  OfflineOptions options{.architecture = arch, .plan_libraries = f.cudnn, .backend = common.backend_options()};
  options.backend.batch_invariant = is_batch_invariant(f.part.deterministic);
  const std::unique_ptr<OfflineCompiler> compiler = make_offline_compiler("cuda", options);
  const std::shared_ptr<Backend> backend = compiler->backend();
  for (const std::string& part : model->parts_named(f.part.part)) {
    check_stop();
    const Plan plan = model->plan(part, f.part.request, f.part.networks(*backend, *model));
    Executable executable(plan, backend, ShapesOnly(plan));
    executable.run_all();
  }
  spdlog::info("{}: waiting for kernels; compiling those that are not in the cache takes minutes for a whole model",
               arch);
  const std::vector<CompiledKernel> compiled = compiler->compiled();  // waits for the compiler
  check_stop();
  ordered_json kernels = ordered_json::array();
  int bad = 0, max_registers = 0;
  for (const CompiledKernel& k : compiled) {
    bad += !k.problems.empty();
    max_registers = std::max(max_registers, k.registers);
    for (const std::string& p : k.problems) spdlog::error("{}: {}: {}", arch, k.name, p);
    kernels.push_back(kernel_json(k));
  }
  const double seconds = seconds_since(begin);
  if (!common.json)
    std::cout << arch << ": " << kernels.size() << " kernels, at most " << max_registers << " registers, " << bad
              << " with problems, " << seconds_text(seconds) << "\n";
  out.push_back({{"arch", arch}, {"seconds", seconds}, {"kernels", kernels}});
  return bad + report_plans(arch, compiler->planned(), common, out.back());
}

Action declare_compile(CLI::App& app, const Common& common) {
  const auto f = std::make_shared<CompileFlags>();
  f->part.declare(app, "all");
  CLI::Option* offload = app.get_option("--offload")->group("");  // recognised so that it can be refused with a reason
  offer(comma_list(app, "--arch", f->archs, "GPU architectures to compile for, comma-separated: sm_89, sm_90a"),
        {"sm_89", "sm_90a"});
  app.add_flag("--cudnn", f->cudnn, "also check that cuDNN has a plan for every convolution and attention");
  return [f, offload, &common] {
    TENON_CHECK(Usage, offload->empty(), "--offload")
        << "has no effect here: kernels are the same wherever weights are, and compiling reads none";
    ordered_json out = ordered_json::array();
    int bad = 0;
    check_archs(f->archs, common.backend_options());
    for (const std::string& arch : f->archs) bad += compile_for(arch, *f, common, out);
    check_stop();
    if (common.json) std::cout << json_text(out, 2) << "\n";
    return bad ? 1 : 0;
  };
}

const RegisterVerb kCompile{{"compile", "compile a model's GPU kernels ahead of time, without a GPU", declare_compile}};

}  // namespace
}  // namespace tenon::cli
