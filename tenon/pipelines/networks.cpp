#include "tenon/pipelines/networks.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/similar.h"
#include "tenon/core/text.h"

namespace tenon {
namespace {

using Rule = PrecisionPolicy::Rule;

// Adds the parts of a dotted name that have as many dots as `like`.
void add_parts(std::set<std::string>& to, const std::string& name, const std::string& like) {
  std::vector<size_t> begins{0};
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) begins.push_back(dot + 1);
  begins.push_back(name.size() + 1);
  const auto length = static_cast<size_t>(std::ranges::count(like, '.')) + 1;
  for (size_t i = 0; i + length < begins.size(); ++i)
    to.insert(name.substr(begins[i], begins[i + length] - 1 - begins[i]));
}

void check_no_int8(const std::string& network, const PrecisionPolicy& policy) {
  TENON_CHECK(Usage, !policy.follows(Rule::I8Weights), "type")
      << "int8 is for language models, not for '" << network << "'; use bf16 or f32";
}

}  // namespace

NetworkType NetworkOptions::type() const {
  NetworkType out(precision.act);
  out.policy = policy;
  return out;
}

void check_exceptions(const NetworkType& type, const std::function<std::vector<NamedNetwork>()>& networks) {
  if (type.policy.exceptions.empty()) return;
  const std::vector<NamedNetwork> all = networks();
  for (const PrecisionPolicy::Exception& e : type.policy.exceptions) {
    const bool fits = std::ranges::any_of(all, [&](const NamedNetwork& n) {
      return n.name == e.name ||
             std::ranges::any_of(n.weights, [&](const auto& w) { return w.first.find(e.name) != std::string::npos; });
    });
    if (fits) continue;
    std::vector<std::string> known;
    std::set<std::string> parts;
    std::string example;
    for (const NamedNetwork& n : all) {
      known.push_back(n.name);
      for (const auto& [weight, shape] : n.weights) {
        add_parts(parts, weight, e.name);
        if (example.empty() && shape.rank() > 1) example = weight;
      }
    }
    const std::string there = "networks: " + joined(known) + "; weights such as " + example;
    known.insert(known.end(), parts.begin(), parts.end());
    throw Error(ErrorKind::Usage, "type",
                "the exception '" + shown(e.name) + "' matches no network and no weight name of this model",
                did_you_mean(e.name, known, there));
  }
}

PrecisionPolicy precision_of(const std::string& name, const NetworkOptions& options,
                             const std::optional<PrecisionPolicy>& own) {
  PrecisionPolicy out{options.policy.rule};
  bool named = false;
  for (const PrecisionPolicy::Exception& e : options.policy.exceptions) {
    if (e.name != name)
      out.exceptions.push_back(e);
    else if (!std::exchange(named, true))
      out.rule = e.rule;
  }
  if (out.rule == Rule::E4m3Rows) {
    TENON_CHECK(Usage, own.has_value(), "type")
        << "e4m3: it is not known which layers of '" << name << "' tolerate it; use bf16 or f32, or name them, as in "
        << "'bf16, e4m3: LAYER'";
    out.rule = own->rule;
    out.exceptions.insert(out.exceptions.end(), own->exceptions.begin(), own->exceptions.end());
  }
  if (options.side.rank && out.quantizes())
    for (const char* end : {".lora_A", ".lora_B"}) out.exceptions.insert(out.exceptions.begin(), {Rule::BF16, end});
  return out;
}

void check_rules(const NetworkType& type, std::span<const std::string_view> networks,
                 const std::optional<PrecisionPolicy>& own) {
  for (const std::string_view name : networks) {
    PrecisionPolicy policy = type.policy;  // an exception that names another of the networks is not about this one
    std::erase_if(policy.exceptions, [&](const auto& e) {
      return e.name != name && std::ranges::find(networks, e.name) != networks.end();
    });
    check_no_int8(std::string(name), precision_of(std::string(name), {.policy = policy}, own));
  }
}

Plan plan_one(const std::string& name, const std::string& result, const Expr& value, const NetworkOptions& options,
              const std::optional<PrecisionPolicy>& own) {
  PlanOptions o;
  o.precision = precision_of(name, options, own);
  check_no_int8(name, o.precision);
  o.name = name;
  o.fusion = options.fusion;
  o.fold_scales = options.fold_scales;
  o.anchors_alone = options.anchors_alone;
  o.target = options.target;
  return make_plan(std::array{Result{result, nn::with_side_branches(value, options.side)}}, o);
}

}  // namespace tenon
