#include "tenon/pipelines/networks.h"

#include <array>

#include "tenon/core/error.h"

namespace tenon {

PrecisionPolicy precision_of(const std::string& name, const NetworkOptions& options,
                             const std::optional<PrecisionPolicy>& e4m3) {
  if (!options.e4m3_rows) return {};
  TENON_CHECK(Usage, e4m3.has_value(), "type")
      << "e4m3: which layers of '" << name << "' bear it is not known; use bf16 or f32";
  PrecisionPolicy out = *e4m3;
  if (options.side.rank && out.rule == PrecisionPolicy::Rule::E4m3Rows)
    for (const char* end : {".lora_A", ".lora_B"}) out.exceptions.push_back({PrecisionPolicy::Rule::BF16, end});
  return out;
}

Plan plan_one(const std::string& name, const std::string& result, const Expr& value, const NetworkOptions& options,
              const std::optional<PrecisionPolicy>& e4m3) {
  TENON_CHECK(Usage, !options.i8_weights, "type")
      << "int8: is for language models, not for '" << name << "'; use bf16 or f32";
  PlanOptions o;
  o.precision = precision_of(name, options, e4m3);
  o.name = name;
  o.fusion = options.fusion;
  o.fold_scales = options.fold_scales;
  o.anchors_alone = options.anchors_alone;
  o.target = options.target;
  return make_plan(std::array{Result{result, nn::with_side_branches(value, options.side)}}, o);
}

}  // namespace tenon
