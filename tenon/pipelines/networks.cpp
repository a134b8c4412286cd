#include "tenon/pipelines/networks.h"

#include <array>

#include "tenon/core/error.h"

namespace tenon {

Plan plan_one(const std::string& name, const std::string& result, const Expr& value, const NetworkOptions& options,
              const std::optional<PrecisionPolicy>& e4m3) {
  TENON_CHECK(Usage, !options.e4m3_rows || e4m3, "type")
      << "e4m3: which layers of '" << name << "' bear it is not known; use bf16 or f32";
  PlanOptions o;
  if (options.e4m3_rows) o.precision = *e4m3;
  if (options.side.rank && o.precision.rule == PrecisionPolicy::Rule::E4m3Rows)
    for (const char* end : {".lora_A", ".lora_B"}) o.precision.exceptions.push_back({PrecisionPolicy::Rule::BF16, end});
  o.name = name;
  o.fusion = options.fusion;
  o.fold_scales = options.fold_scales;
  o.anchors_alone = options.anchors_alone;
  o.target = options.target;
  return make_plan(std::array{Result{result, nn::with_side_branches(value, options.side)}}, o);
}

}  // namespace tenon
