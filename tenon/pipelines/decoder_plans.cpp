#include "tenon/pipelines/decoder_plans.h"

namespace tenon {

PrecisionPolicy decoder_precision(const NetworkOptions& o) {
  using Rule = PrecisionPolicy::Rule;
  PrecisionPolicy out = precision_of("decoder", o);
  const auto as_target_has_it = [&](Rule& r) { r = r == Rule::I8Weights && o.target.i8_blocks ? Rule::I8Blocks : r; };
  as_target_has_it(out.rule);
  for (PrecisionPolicy::Exception& e : out.exceptions) as_target_has_it(e.rule);
  return out;
}

nn::Precision decoder_types(const NetworkOptions& o) {
  const bool blocks = decoder_precision(o).rule == PrecisionPolicy::Rule::I8Blocks;
  return {o.precision.act, blocks ? DType::F32 : o.precision.weight};
}

PlanOptions decoder_options(const std::string& name, const NetworkOptions& networks) {
  PlanOptions o;
  o.name = name;
  o.fusion = networks.fusion;
  o.fold_scales = networks.fold_scales && !decoder_precision(networks).follows(PrecisionPolicy::Rule::I8Blocks);
  o.anchors_alone = networks.anchors_alone;
  o.target = networks.target;
  o.precision = decoder_precision(networks);
  return o;
}

Plan plan_prompt(const DecoderConfig& c, const DecoderShape& shape, nn::Precision p, const PlanOptions& options) {
  Graph g;
  std::vector<Result> results;
  for (const auto& [name, value] : decoder(g, c, shape, p).states) results.push_back({name, value});
  return make_plan(results, options);
}

Plan plan_decoder(const DecoderConfig& c, const DecoderShape& shape, const NetworkOptions& options) {
  Graph g;
  const Decoder d = decoder(g, c, shape, decoder_types(options));
  std::vector<Result> results{{"logits", d.logits}};
  for (const auto& [name, value] : d.states) results.push_back({name, value});
  return make_plan(results, decoder_options("decoder", options));
}

}  // namespace tenon
