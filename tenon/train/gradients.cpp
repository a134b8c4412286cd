#include "tenon/train/gradients.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/vjp.h"
#include "tenon/train/rematerialise.h"

namespace tenon::train {
namespace {

constexpr const char* kLoss = "loss";
std::string gradient_name(const std::string& parameter) { return "d." + parameter; }

Launch sum_of_gradients(Graph& g) {
  return {"sum of gradients", "map", {{"sum", list_vector(g, "sum") + list_vector(g, "fresh")}}, {}};
}

}  // namespace

Differentiated differentiate(const Expr& loss) {
  TENON_CHECK(Usage, loss.shape().numel() == 1, "loss") << "is " << loss.shape().str() << ", expected one number";
  std::vector<Expr> params;
  for (const Expr& e : topological(std::array{loss}))
    if (e.is<nodes::Param>()) params.push_back(e);
  const std::vector<Expr> grads = gradients(loss, {}, params);
  Differentiated out{loss, {}, {}, {loss}};
  for (size_t i = 0; i < params.size(); ++i) out.gradients.push_back({params[i]->attrs.text, grads[i]});
  return out;
}

PrecisionPolicy training_precision(DType type) {
  return {type == DType::BF16 ? PrecisionPolicy::Rule::BF16 : PrecisionPolicy::Rule::Operands};
}

Plan plan_gradients(const Differentiated& d, const Target& target, const GradientOptions& o) {
  std::vector<Result> results{{kLoss, d.loss}};
  for (const Result& r : d.gradients) results.push_back({gradient_name(r.name), r.value});
  results.insert(results.end(), d.results.begin(), d.results.end());
  PlanOptions options;
  options.name = "training step";
  options.fold_scales = false;  // weights change at every step, and rollouts must multiply the same numbers
  options.merge_siblings = o.merge_siblings;
  options.precision = o.precision;
  options.target = target;
  options.copies_weights = target.copies_e4m3 && o.arena_bytes == 0;
  if (o.arena_bytes > 0) results = rematerialise(results, d.forward, o.arena_bytes, options);
  return make_plan(results, options);
}

Gradients::Gradients(Parameters& parameters, const Differentiated& d, const GradientOptions& options,
                     std::optional<Plan> made)
    : parameters_(parameters), accumulates_(options.accumulates), sum_(parameters.backend(), sum_of_gradients) {
  const std::shared_ptr<Backend>& backend = parameters.backend();
  Plan plan = made ? std::move(*made) : plan_gradients(d, backend->target(), options);
  for (const Parameter& p : parameters.all()) {
    const auto has = std::ranges::find(d.gradients, p.name, &Result::name);
    TENON_CHECK(Usage, has != d.gradients.end(), p.name) << "the loss does not depend on this parameter";
    const DType type = plan.buffer(gradient_name(p.name)).dtype;
    TENON_CHECK(Internal, type == DType::F32, p.name) << "has a gradient of " << name_of(type) << ", expected f32";
  }
  TENON_CHECK(Usage, d.gradients.size() == parameters.all().size(), "gradients")
      << d.gradients.size() << " for " << parameters.all().size() << " parameters";
  executable_ = std::make_unique<Executable>(std::move(plan), parameters.store(), std::map<std::string, void*>{},
                                             parameters.stream(), nullptr, options.arena);
  if (accumulates_) static_cast<void>(parameters.sums());
}

double Gradients::run(bool first) {
  TENON_CHECK(Internal, first || accumulates_, "gradients") << "were not made to be accumulated";
  if (ran_)
    executable_->run(executable_->plan().phases.back().rate);
  else
    executable_->run_all();
  ran_ = true;
  const double loss = static_cast<double>(executable_->get(kLoss)[0]);
  if (!std::isfinite(loss)) {
    const std::shared_ptr<void> checks = executable_->checks_finite();  // a caller may go on with another batch
    executable_->run_all();
    throw Error(ErrorKind::Numeric, "loss", "is " + std::to_string(loss));
  }
  std::vector<std::shared_ptr<void>> fresh;
  for (const Parameter& p : parameters_.all())
    fresh.emplace_back(std::shared_ptr<void>(), executable_->address(gradient_name(p.name)));
  parameters_.set_gradients(accumulates_ ? parameters_.sums() : fresh);
  if (accumulates_) add_up(fresh, first);
  return loss;
}

void Gradients::add_up(const std::vector<std::shared_ptr<void>>& fresh, bool first) {
  const std::vector<Parameter>& all = parameters_.all();
  Stream& stream = *parameters_.stream();
  if (first) {
    for (size_t i = 0; i < all.size(); ++i)
      parameters_.backend()->copy(stream, all[i].grad.get(), fresh[i].get(), all[i].bytes());
    return;
  }
  sum_.run(
      stream, all.size(), [&](size_t i) { return all[i].count(); },
      [&](size_t i, const std::string& name) { return (name == "sum" ? all[i].grad : fresh[i]).get(); },
      [](const std::string&) { return 0.0; });
}

}  // namespace tenon::train
