#include "tenon/optim/optimizer.h"

#include <cmath>
#include <map>

#include "tenon/core/error.h"

namespace tenon {
namespace {

std::map<std::string, OptimizerFactory>& factories() {
  static std::map<std::string, OptimizerFactory> all;
  return all;
}

void check_beta(const char* name, double beta) {
  TENON_CHECK(Usage, beta < 1 && !std::isnan(beta), name) << "expected 0 <= " << name << " < 1, found " << beta;
}

}  // namespace

RegisterOptimizer::RegisterOptimizer(std::string name, OptimizerFactory factory) {
  factories().emplace(std::move(name), std::move(factory));
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> out;
  for (const auto& [name, factory] : factories()) out.push_back(name);
  return out;
}

void check_optimizer(const OptimizerOptions& options) {
  check_beta("beta1", options.beta1);
  check_beta("beta2", options.beta2);
  TENON_CHECK(Usage, std::isfinite(options.eps), "eps") << "expected a number, found " << options.eps;
  TENON_CHECK(Usage, std::isfinite(options.weight_decay) && options.weight_decay >= 0, "weight_decay")
      << "expected a number of at least 0, found " << options.weight_decay;
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, std::shared_ptr<Backend> backend,
                                          const OptimizerOptions& options) {
  const auto it = factories().find(name);
  if (it == factories().end()) {
    std::string known;
    for (const std::string& n : optimizer_names()) known += (known.empty() ? "" : ", ") + n;
    throw Error(ErrorKind::Usage, "optimizer", "unknown optimizer '" + name + "'; expected one of " + known);
  }
  TENON_CHECK(Usage, backend != nullptr, name) << "expected a backend, found none";
  check_optimizer(options);
  return it->second(std::move(backend), options);
}

}  // namespace tenon
