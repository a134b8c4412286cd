// An explanation as JSON: in the documented form for scripts (docs/cli.md), and extended for the page.
#include <nlohmann/json.hpp>

#include "apps/cli/explain_json.h"
#include "tenon/explain/plan_counts.h"
#include "tenon/io/json.h"

namespace tenon::cli {
namespace {
using nlohmann::ordered_json;

ordered_json text_of(const ReadableText& text) {
  std::string out = text.text;
  for (size_t i = 0; i < text.where.size(); ++i) out += (i ? "; " : " where ") + text.where[i];
  return out;
}

ordered_json holes_of(const ExplainedLaunch& l) {
  ordered_json holes = ordered_json::object();
  for (const ExplainedHole& h : l.lets) holes[h.name] = text_of(h.value);
  for (const ExplainedHole& h : l.holes) holes[h.name] = text_of(h.value);
  for (const ExplainedHole& h : l.outputs) holes["out " + h.name] = text_of(h.value);
  return holes;
}

ordered_json apart_json(const KeptApart& k) {
  ordered_json into = ordered_json::array();
  for (const Place& place : k.into) into.push_back({{"launch", place.launch}, {"hole", place.hole}});
  return {{"kind", kApartNames[static_cast<size_t>(k.kind)]}, {"what", k.what}, {"why", k.why}, {"into", into}};
}

ordered_json products_json(const Roofline& peak) {
  ordered_json out = ordered_json::object();
  for (const auto& [type, rate] : peak.operations) out[std::string(name_of(type))] = rate / 1e9;
  return out;
}

ordered_json launch_json(const ExplainedLaunch& l, const std::optional<Roofline>& peak) {
  ordered_json why = ordered_json::array();
  ordered_json apart = ordered_json::array();
  for (const KeptApart& k : l.apart) {
    why.push_back(k.what + ": " + k.why);
    apart.push_back(apart_json(k));
  }
  ordered_json out{
      {"name", l.name}, {"skeleton", l.skeleton}, {"holes", holes_of(l)}, {"bytes", l.bytes}, {"why_apart", why}};
  out["number"] = l.number;
  out["apart"] = apart;
  for (const auto& [buffer, reason] : l.stored) out["stored"].push_back({{"buffer", buffer}, {"why", reason}});
  out["unfused_bytes"] = l.unfused_bytes;
  out["anchor"] = l.anchor;
  out["flops"] = l.counts_keys ? ordered_json() : ordered_json(l.flops);
  out["kernels"] = l.kernels;
  out["rate"] = name_of(l.rate);
  if (l.flops > 0 && l.bytes > 0) out["flop_per_byte"] = l.flops / static_cast<double>(l.bytes);
  if (l.seconds) out["ms"] = *l.seconds * 1e3;
  if (l.counts_keys && l.seconds) {
    for (const char* rate : {"gb_per_s", "gflop_per_s", "roofline_share"}) out[rate] = nullptr;
  } else if (l.seconds.value_or(0) > 0) {
    out["gb_per_s"] = static_cast<double>(l.bytes) / *l.seconds / 1e9;
    out["gflop_per_s"] = l.flops / *l.seconds / 1e9;
    if (peak) out["roofline_share"] = roofline_share(l, *peak);
  }
  if (!l.how.empty()) out["how"] = l.how;
  return out;
}

ordered_json lines_json(const std::vector<ExplainedHole>& holes) {
  ordered_json out = ordered_json::array();
  for (const ExplainedHole& h : holes)
    out.push_back({{"name", h.name}, {"text", h.value.text}, {"where", h.value.where}, {"type", h.type}});
  return out;
}

}  // namespace

ordered_json explanation_object(const Explanation& e) {
  ordered_json launches = ordered_json::array(), hoisted = ordered_json::array();
  for (const ExplainedLaunch& l : e.launches)
    (l.rate == e.rate ? launches : hoisted).push_back(launch_json(l, e.roofline));
  const PlanCounts& c = e.counts;
  ordered_json out{{"model", e.model},
                   {"part", e.part},
                   {"device", e.device},
                   {"rate", name_of(e.rate)},
                   {"launches", launches},
                   {"hoisted", hoisted},
                   {"counts",
                    {{"total", c.total},
                     {"kernels", e.kernels},
                     {"elementwise", c.elementwise},
                     {"concat", c.concat},
                     {"permute", c.permute},
                     {"upsample", c.upsample}}},
                   {"bytes", {{"fused", e.fused_bytes}, {"unfused", e.unfused_bytes}}},
                   {"peak_bytes", e.peak_bytes()},
                   {"memory",
                    {{"activations", e.memory.arena},
                     {"weights", e.memory.weights},
                     {"scratch", e.memory.scratch + e.memory.kept}}}};
  if (e.memory.states) out["memory"]["states"] = e.memory.states;
  if (e.memory.host) out["memory"].update({{"places", e.memory.staging}, {"host", e.memory.host}});
  if (e.roofline)
    out["roofline"] = {{"copy_gb_per_s", e.roofline->copied / 1e9},
                       {"read_gb_per_s", e.roofline->read / 1e9},
                       {"product_gflop_per_s", products_json(*e.roofline)},
                       {"how", e.roofline->how}};
  return out;
}

ordered_json page_object(const Explanation& e) {
  ordered_json out = explanation_object(e);
  out.erase("hoisted");
  out["launches"] = ordered_json::array();
  for (const ExplainedLaunch& l : e.launches) {
    ordered_json launch = launch_json(l, e.roofline);
    launch.erase("holes");
    launch["lets"] = lines_json(l.lets);
    launch["holes"] = lines_json(l.holes);
    launch["outputs"] = lines_json(l.outputs);
    launch["reads"] = l.reads;
    launch["writes"] = l.writes;
    out["launches"].push_back(std::move(launch));
  }
  out["buffers"] = ordered_json::array();
  static constexpr const char* kRoles[] = {"temporary", "input", "output", "state"};
  for (const ExplainedBuffer& b : e.buffers)
    out["buffers"].push_back({{"name", b.name},
                              {"type", b.type},
                              {"role", kRoles[static_cast<int>(b.role)]},
                              {"offset", b.offset},
                              {"bytes", b.bytes},
                              {"first", b.first},
                              {"last", b.last}});
  return out;
}

std::string explanation_json(const Explanation& e) { return json_text(explanation_object(e), 2); }

}  // namespace tenon::cli
