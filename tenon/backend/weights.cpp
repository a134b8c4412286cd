#include "tenon/backend/weights.h"

#include <array>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon {

HostView HostWeights::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  TENON_CHECK(Model, it != tensors_.end(), "weights") << "no tensor '" << name << "'";
  TENON_CHECK(Model, it->second.data || !it->second.shape.numel(), name) << "weight has no address";
  return it->second;
}

ParamView WeightMaking::find(const Expr& leaf) const {
  const ParamView view = param(leaf->attrs.text);
  TENON_CHECK(Model, view.shape == leaf.shape(), leaf->attrs.text)
      << "weight has shape " << view.shape.str() << ", expected " << leaf.shape().str();
  return view;
}

std::vector<std::string> params_of(std::span<const Expr> roots) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Expr& e : topological(roots)) {
    if (!e.is<nodes::Param>()) continue;
    Graph g;
    const Expr computed = computation_of(g, e->attrs.text);
    if (!computed) add(e->attrs.text);
    for (const Expr& p : topological(std::array{computed}))
      if (p.is<nodes::Param>()) add(p->attrs.text);
  }
  return names;
}

std::string plain_key(const Expr& leaf) { return "as it is\n" + print(leaf); }

std::vector<std::shared_ptr<void>> make_apart(std::span<const WeightRequest> requests, const WeightMaking& with,
                                              const std::function<std::shared_ptr<void>(int64_t bytes)>& allocate) {
  std::vector<std::shared_ptr<void>> out;
  for (const WeightRequest& r : requests) {
    std::vector<void*> parts;
    for (const WeightRequest::Part& p : r.parts) parts.push_back(out.emplace_back(allocate(p.bytes)).get());
    r.make(with, parts);
  }
  return out;
}

}  // namespace tenon
