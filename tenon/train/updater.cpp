#include "tenon/train/updater.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/not_null.h"
#include "tenon/core/stop.h"
#include "tenon/expr/ops.h"

namespace tenon::train {
namespace {

constexpr double kClipEpsilon = 1e-6;  // as in clip_grad_norm_

std::string input_name(size_t i) { return "grad." + std::to_string(i); }

// The sum of a column of numbers; a long one in blocks, because a device holds the row that it sums.
Expr sum_of_column(Expr x) {
  constexpr int64_t kBlock = 16384;
  for (int64_t n = x.shape().numel(); n > kBlock; n = x.shape().numel()) {
    const int64_t blocks = (n + kBlock - 1) / kBlock;
    x = sum(reshape(pad(reshape(x, {1, n}), {0, 0, 0, blocks * kBlock - n}), {blocks, kBlock}));
  }
  return sum(reshape(x, {1, x.shape().numel()}));
}

// The sum of all squares, by rows first to keep each sum short.
Plan norm_plan(const std::vector<Parameter>& all, const Target& target) {
  Graph g;
  std::vector<Expr> sums;
  for (size_t i = 0; i < all.size(); ++i) {
    const Expr grad = input(g, input_name(i), DType::F32, {all[i].shape.rows(), all[i].shape.cols()});
    sums.push_back(sum_of_column(sum(grad * grad)));
  }
  PlanOptions options;
  options.name = "gradient norm";
  options.outside = true;
  options.target = target;
  const Expr total = sum(concat(sums, -1));
  return make_plan(std::vector<Result>{{"sum", reshape(total, {1})}}, options);
}

Launch moving_average(Graph& g) {
  const Expr average = list_vector(g, "average") * scalar(g, "decay");
  return {"moving average", "map", {{"average", average + list_vector(g, "master") * scalar(g, "share")}}, {}};
}

}  // namespace

void check_update(double clip, double decay) {
  TENON_CHECK(Usage, decay >= 0 && decay < 1, "ema") << decay << ": expected a decay from 0 to below 1";
  TENON_CHECK(Usage, clip >= 0 && std::isfinite(clip), "clip") << clip << ": expected 0 (no limit) or more";
}

Updater::Updater(Parameters& parameters, std::unique_ptr<Optimizer> optimizer, double clip, double decay)
    : parameters_(parameters),
      optimizer_(not_null(std::move(optimizer), "optimizer")),
      clip_(clip),
      decay_(decay),
      average_(parameters.backend(), moving_average) {
  check_update(clip, decay);
  const std::vector<Parameter>& all = parameters.all();
  TENON_CHECK(Usage, !all.empty(), "parameters") << "there are none to update";
  for (const Parameter& p : all) TENON_CHECK(Usage, p.count() > 0, p.name) << "has no elements";
  sum_ = parameters.backend()->allocate(4);
  std::map<std::string, void*> bound{{"sum", sum_.get()}};
  for (size_t i = 0; i < all.size(); ++i) bound[input_name(i)] = all[i].master.get();  // until there are gradients
  norm_ = std::make_unique<Executable>(norm_plan(all, parameters.backend()->target()), parameters.store(), bound,
                                       parameters.stream());
}

double Updater::norm() {
  std::map<std::string, void*> moved;
  const std::vector<Parameter>& all = parameters_.all();
  read_.resize(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    TENON_CHECK(Usage, all[i].grad, all[i].name) << "has no gradient";
    void* const now = all[i].grad.get();
    if (now != read_[i]) moved[input_name(i)] = read_[i] = now;
  }
  if (!moved.empty()) norm_->bind(moved);  // discards what was recorded
  norm_->run_all();
  return std::sqrt(static_cast<double>(norm_->get("sum")[0]));
}

std::string Updater::first_not_finite() const {
  for (const Parameter& p : parameters_.all())
    if (!std::ranges::all_of(parameters_.values(p.grad, p.count()), [](float x) { return std::isfinite(x); }))
      return p.name;
  return {};
}

void Updater::average() {
  const auto n = static_cast<double>(steps_);
  const double decay = steps_ == 1 ? 0 : std::min(decay_, n / (9 + n));  // where training began does not count
  const std::vector<Parameter>& all = parameters_.all();
  average_.run(
      *parameters_.stream(), all.size(), [&](size_t i) { return all[i].count(); },
      [&](size_t i, const std::string& name) { return (name == "average" ? all[i].average : all[i].master).get(); },
      [&](const std::string& name) { return name == "decay" ? decay : 1 - decay; });
}

Updater::Report Updater::step(double lr, int64_t runs) {
  TENON_CHECK(Usage, runs >= 1, "runs") << "expected 1 or more per step, got " << runs;
  const double mean = 1 / static_cast<double>(runs);
  Report out{norm() * mean, mean};
  if (!std::isfinite(out.norm)) {
    const std::string name = first_not_finite();
    throw Error(ErrorKind::Numeric, name.empty() ? "gradients" : name,
                name.empty() ? "the norm of all gradients is too large for f32" : "its gradient is not finite");
  }
  if (clip_ > 0) out.scale *= std::min(1.0, clip_ / (out.norm + kClipEpsilon));
  std::vector<OptimizerTensor> tensors;
  for (const Parameter& p : parameters_.all())
    tensors.push_back({p.master.get(), p.grad.get(), {p.moments[0].get(), p.moments[1].get()}, p.count()});
  const StopShield whole;  // masters, moments, averages and what networks read change together
  optimizer_->step(*parameters_.stream(), tensors, {lr, steps_ + 1, out.scale});
  ++steps_;
  if (parameters_.averaged()) average();
  parameters_.publish();
  return out;
}

}  // namespace tenon::train
