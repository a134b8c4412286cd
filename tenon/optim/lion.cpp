#include "tenon/optim/lion.h"

#include <array>
#include <cmath>
#include <sstream>
#include <vector>

#include "tenon/backend/kernel.h"
#include "tenon/backend/list_form.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/skeleton.h"
#include "tenon/optim/optimizer.h"

namespace tenon {
namespace {

constexpr char kWhere[] = "lion";

// The numbers of a step by the name of their leaf; computed in double, rounded once.
struct Number {
  const char* name;
  double (*value)(const LionOptions&);
};
double scale_of_gradient(const LionOptions& o) { return o.maximize ? -o.grad_scale : o.grad_scale; }
constexpr Number kNumbers[] = {
    {"beta1", [](const LionOptions& o) { return o.beta1; }},
    {"grad1", [](const LionOptions& o) { return scale_of_gradient(o) * (1.0 - o.beta1); }},
    {"beta2", [](const LionOptions& o) { return o.beta2; }},
    {"grad2", [](const LionOptions& o) { return scale_of_gradient(o) * (1.0 - o.beta2); }},
    {"lr", [](const LionOptions& o) { return o.lr; }},
    {"decay", [](const LionOptions& o) { return 1.0 - o.lr * o.weight_decay; }},
};

Expr vector(Graph& g, const char* name, DType type) { return input(g, name, type, Shape{kListLength}); }

/// 1 if g is finite, else 0: infinity minus itself is NaN.
Expr is_finite(const Expr& g) { return equal(g - g, constant(g.graph(), 0)); }

/// The update. `skips`: elements with a non-finite gradient stay unchanged.
Launch update(Graph& g, const LionTypes& types, bool skips) {
  const Expr beta1 = scalar(g, "beta1"), grad1 = scalar(g, "grad1"), beta2 = scalar(g, "beta2"),
             grad2 = scalar(g, "grad2"), lr = scalar(g, "lr"), decay = scalar(g, "decay");
  const Expr grad = vector(g, "grad", types.grad), old_m = vector(g, "exp_avg", types.exp_avg);
  const Expr old_p = types.master ? vector(g, "master", DType::F32) : vector(g, "param", types.param);
  const Expr u = old_m * beta1 + grad * grad1;
  Expr p = old_p * decay - sign(u) * lr;
  Expr m = old_m * beta2 + grad * grad2;
  Expr stored = p;
  if (skips) {
    const Expr takes = is_finite(grad);
    p = where(takes, p, old_p);
    m = where(takes, m, old_m);
    stored = types.master ? where(takes, p, vector(g, "param", types.param)) : p;
  }
  Launch launch{skips ? "lion, skipping" : "lion", "map", {}, {}};
  if (types.master) launch.outputs.push_back({"master", p});
  launch.outputs.push_back({"param", cast(stored, types.param)});
  launch.outputs.push_back({"exp_avg", cast(m, types.exp_avg)});
  return launch;
}

/// Searches for a non-finite gradient.
Launch search(Graph& g, const LionTypes& types) {
  const Expr grad = vector(g, "grad", types.grad);
  return {"lion, gradients that are not finite", "map", {{kFound, 1.0 - is_finite(grad)}}, {}};
}

void check_type(DType type, const char* what) {
  TENON_CHECK(Usage, type == DType::F32 || type == DType::BF16 || type == DType::F16, what)
      << "expected f32, bf16 or f16, found " << name_of(type);
}

void check_options(const LionOptions& o) {
  TENON_CHECK(Usage, std::isfinite(o.lr) && o.lr >= 0, "lr") << "expected a number of at least 0, found " << o.lr;
  TENON_CHECK(Usage, o.beta1 >= 0 && o.beta1 < 1, "beta1") << "expected 0 <= beta1 < 1, found " << o.beta1;
  TENON_CHECK(Usage, o.beta2 >= 0 && o.beta2 < 1, "beta2") << "expected 0 <= beta2 < 1, found " << o.beta2;
  TENON_CHECK(Usage, std::isfinite(o.grad_scale), "grad_scale") << "expected a number, found " << o.grad_scale;
  TENON_CHECK(Usage, std::isfinite(o.weight_decay) && o.weight_decay >= 0, "weight_decay")
      << "expected a number of at least 0, found " << o.weight_decay;
}

void check_tensors(std::span<const LionTensor> tensors, bool master) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const LionTensor& t = tensors[i];
    const std::string where = "tensor " + std::to_string(i);
    TENON_CHECK(Usage, t.count >= 0, where) << "expected a count of at least 0, found " << t.count;
    if (t.count == 0) continue;
    TENON_CHECK(Usage, t.param && t.exp_avg && t.grad, where)
        << "expected addresses of param, exp_avg and grad, found null";
    TENON_CHECK(Usage, !master || t.master, where) << "expected the address of an f32 master copy, found null";
  }
}

void* address_of(const LionTensor& t, const std::string& name) {
  if (name == "param") return t.param;
  if (name == "exp_avg") return t.exp_avg;
  if (name == "master") return t.master;
  return const_cast<void*>(t.grad);  // the launch only reads it
}

}  // namespace

struct Lion::State {
  // A launch and its prepared kernel.
  struct Prepared {
    Graph graph;
    Launch launch;
    std::unique_ptr<ListKernel> kernel;
  };
  std::shared_ptr<Backend> backend;
  LionTypes types;
  std::unique_ptr<Prepared> plain, skipping, searching;
  std::vector<ListItem> items;

  template <class Make>
  Prepared& prepared(std::unique_ptr<Prepared>& slot, Make make) {
    if (!slot) {
      auto made = std::make_unique<Prepared>();
      made->launch = make(made->graph);
      const std::optional<std::string> refused = form_launch(made->launch);
      TENON_CHECK(Internal, !refused, kWhere) << *refused;
      made->kernel = backend->prepare_list(made->launch);
      slot = std::move(made);
    }
    return *slot;
  }
  Prepared& updating(bool skips) {
    return prepared(skips ? skipping : plain, [&](Graph& g) { return update(g, types, skips); });
  }
  Prepared& looking() {
    return prepared(searching, [&](Graph& g) { return search(g, types); });
  }

  /// Turns all tensors into items of a kernel, including empty ones, so that their numbers match.
  std::span<const ListItem> items_of(std::span<const LionTensor> tensors, const ListKernel& kernel) {
    const std::span<const std::string> names = kernel.vectors();
    items.resize(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      items[i].count = tensors[i].count;
      for (size_t v = 0; v < names.size(); ++v) items[i].vectors[v] = address_of(tensors[i], names[v]);
    }
    return items;
  }
};

Lion::Lion(std::shared_ptr<Backend> backend, const LionTypes& types) : state_(std::make_unique<State>(), kWhere) {
  TENON_CHECK(Usage, backend != nullptr, kWhere) << "expected a backend, found none";
  check_type(types.param, "param");
  check_type(types.exp_avg, "exp_avg");
  check_type(types.grad, "grad");
  TENON_CHECK(Usage, !types.master || types.param != DType::F32, "master")
      << "expected parameters of bf16 or f16, found f32, which needs no master copy";
  state_->backend = std::move(backend);
  state_->types = types;
}
Lion::~Lion() = default;
Lion::Lion(Lion&&) noexcept = default;
Lion& Lion::operator=(Lion&&) noexcept = default;

const LionTypes& Lion::types() const { return state_->types; }

int64_t Lion::find_non_finite(Stream& stream, std::span<const LionTensor> tensors) {
  check_tensors(tensors, state_->types.master);
  ListKernel& look = *state_->looking().kernel;
  return look.find(stream, state_->items_of(tensors, look), {});
}

void Lion::step(Stream& stream, std::span<const LionTensor> tensors, const LionOptions& options) {
  check_options(options);
  check_tensors(tensors, state_->types.master);
  if (options.non_finite == NonFinite::Raise) {
    const int64_t found = find_non_finite(stream, tensors);
    TENON_CHECK(Numeric, found < 0, "tensor " + std::to_string(found))
        << "its gradient is not finite; nothing was written";
  }
  ListKernel& kernel = *state_->updating(options.non_finite == NonFinite::Skip).kernel;
  std::array<float, std::size(kNumbers)> numbers{};
  size_t n = 0;
  for (const std::string& name : kernel.scalars())
    for (const Number& number : kNumbers)
      if (name == number.name) numbers[n++] = static_cast<float>(number.value(options));
  kernel.run(stream, state_->items_of(tensors, kernel), std::span(numbers).first(n));
}

std::string Lion::explain() const {
  const State::Prepared& p = state_->updating(false);
  std::ostringstream out;
  out << p.launch.skeleton << " over a list, one launch: " << make_list_form(p.launch).bytes_per_element()
      << " bytes an element\n";
  std::vector<Expr> values;
  for (const Output& o : p.launch.outputs) values.push_back(o.value);
  out << print(values);
  for (size_t i = 0; i < p.launch.outputs.size(); ++i) out << "\n  value " << i << " -> " << p.launch.outputs[i].buffer;
  out << "\n  as " << p.kernel->describe() << "\n";
  return out.str();
}

namespace {

// Lion behind the interface that training uses.
class LionInTraining : public Optimizer {
 public:
  LionInTraining(std::shared_ptr<Backend> backend, const OptimizerOptions& o) : lion_(std::move(backend), {}) {
    if (o.beta1 >= 0) options_.beta1 = o.beta1;
    if (o.beta2 >= 0) options_.beta2 = o.beta2;
    options_.weight_decay = o.weight_decay;
  }
  std::span<const std::string> moments() const override { return names_; }
  void step(Stream& stream, std::span<const OptimizerTensor> tensors, const OptimizerStep& s) override {
    list_.clear();
    for (const OptimizerTensor& t : tensors) list_.push_back({t.param, t.moments[0], t.grad, nullptr, t.count});
    options_.lr = s.lr;
    options_.grad_scale = s.grad_scale;
    lion_.step(stream, list_, options_);
  }

 private:
  Lion lion_;
  LionOptions options_;
  std::vector<std::string> names_{"exp_avg"};
  std::vector<LionTensor> list_;
};

const RegisterOptimizer kLion("lion", [](std::shared_ptr<Backend> backend, const OptimizerOptions& o) {
  return std::make_unique<LionInTraining>(std::move(backend), o);
});

}  // namespace
}  // namespace tenon
