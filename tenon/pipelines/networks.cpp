#include "tenon/pipelines/networks.h"

#include <array>

namespace tenon {

Plan plan_one(const std::string& name, const std::string& result, const Expr& value, const NetworkOptions& options) {
  PlanOptions o;
  o.name = name;
  o.fusion = options.fusion;
  o.fold_scales = options.fold_scales;
  o.anchors_alone = options.anchors_alone;
  o.target = options.target;
  return make_plan(std::array{Result{result, value}}, o);
}

}  // namespace tenon
