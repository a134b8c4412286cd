// An explanation as text.
#include <algorithm>
#include <cmath>

#include "tenon/core/text.h"
#include "tenon/explain/explanation.h"

namespace tenon {
namespace {

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

void add_hole(std::string& out, const std::string& label, const ExplainedHole& hole, bool show_type) {
  out += "    " + padded(label, 7) + " " + hole.value.text + (show_type ? "  -> " + hole.name + " " + hole.type : "") +
         "\n";
  for (const std::string& line : hole.value.where) out += "            where " + line + "\n";
}

// "#6, #8, .. 3 more (hole x)": consecutive launches with the same hole are grouped.
std::string places_text(const KeptApart& k, const std::map<std::string, size_t>& numbers) {
  constexpr size_t kShown = 6;
  std::string out;
  for (size_t i = 0; i < k.into.size() && i < kShown; ++i) {
    const Place& place = k.into[i];
    const auto found = numbers.find(place.launch);
    if (found != numbers.end()) out += (out.empty() ? "#" : ", #") + std::to_string(found->second);
    if (i + 1 == k.into.size() || i + 1 == kShown || k.into[i + 1].hole != place.hole) {
      if (i + 1 == kShown && k.into.size() > kShown) out += ", .. " + std::to_string(k.into.size() - kShown) + " more";
      out += " (hole " + place.hole + ")";
    }
  }
  return out;
}

// "fused into #6 (hole x): mul, 3 times", "read by #7 (hole a): linear", "refused: mean: why; fused into #8 (hole a)".
std::string apart_text(const KeptApart& k, const Explanation& e) {
  const std::string places = places_text(k, e.numbers);
  if (k.kind == Apart::Anchor) return "read by " + places + ": " + k.what;
  if (k.kind == Apart::Fused) return "fused into " + places + ": " + k.what;
  const bool fused = std::ranges::any_of(k.into, [&](const Place& p) { return e.with_anchor.contains(p.launch); });
  return "refused: " + k.what + ": " + k.why +
         (places.empty() ? "" : (fused ? "; fused into " : "; computed in ") + places);
}

std::string cost_text(const ExplainedLaunch& l, const std::optional<Roofline>& peak) {
  const double bytes = static_cast<double>(l.bytes);
  std::string out;
  if (l.seconds) out += seconds_text(*l.seconds) + "  ";
  out += bytes_text(bytes) + " moved (" + bytes_text(static_cast<double>(l.unfused_bytes)) + " unfused)";
  if (l.counts_keys) out += ", of its cache only the keys there are";
  if (l.seconds && *l.seconds > 0 && !l.counts_keys) {
    const auto rate = [&](double amount) { return number_text(std::round(amount / *l.seconds / 1e8) / 10); };
    out += "  " + rate(bytes) + " GB/s";
    if (l.flops > 0) out += "  " + rate(l.flops) + " GFLOP/s";
    if (l.flops > 0 && l.bytes > 0) out += "  " + number_text(std::round(10 * l.flops / bytes) / 10) + " FLOP a byte";
    if (peak) out += "  " + std::to_string(std::lround(100 * roofline_share(l, *peak))) + " % of the roofline";
  }
  return out;
}

void add_launch(std::string& out, const ExplainedLaunch& l, const Explanation& e) {
  out += "#" + padded(std::to_string(l.number), 3) + " " + padded(l.skeleton, 10) + l.name;
  if (!l.anchor.empty()) out += "   " + l.anchor;
  out += "\n";
  for (const ExplainedHole& h : l.lets) add_hole(out, h.name, h, false);
  for (const ExplainedHole& h : l.holes) add_hole(out, h.name, h, false);
  for (const ExplainedHole& h : l.outputs) add_hole(out, "out", h, true);
  for (const auto& [buffer, why] : l.stored)
    out.append("    stored: ").append(buffer).append(": ").append(why).append("\n");
  for (const KeptApart& k : l.apart) out += "    " + apart_text(k, e) + "\n";
  out += "    " + cost_text(l, e.roofline);
  if (l.kernels != 1) out += "  " + kernels_text(l.kernels);
  if (!l.how.empty()) out += "  " + l.how;
  out += "\n";
}

}  // namespace

std::string roofline_text(const Roofline& peak) {
  const auto giga = [](double x) { return number_text(std::round(x / 1e8) / 10); };
  std::string out = "roofline: " + giga(peak.copied) + " GB/s copied, " + giga(peak.read) + " read";
  for (const auto& [type, rate] : peak.operations)
    out += ", " + giga(rate) + " GFLOP/s in " + std::string(name_of(type));
  return out + ", measured in this run: " + peak.how;
}

std::string explanation_text(const Explanation& e) {
  std::string out = e.model + " " + e.part + " on " + e.device + "\n";
  // Sorted by cost, launches of all phases are mixed.
  const bool in_order = std::ranges::is_sorted(e.launches, {}, &ExplainedLaunch::number);
  if (!in_order) out += "\n";
  for (size_t i = 0; i < e.launches.size(); ++i) {
    const ExplainedLaunch& l = e.launches[i];
    if (in_order && (i == 0 || l.rate != e.launches[i - 1].rate))
      out += "\nphase " + std::string(name_of(l.rate)) + "\n";
    if (!in_order && l.rate != e.rate) out += "phase " + std::string(name_of(l.rate)) + ": ";
    add_launch(out, l, e);
  }
  const PlanCounts& c = e.counts;
  out += "\none " + std::string(e.rate == Rate::Step ? "step" : "run") + ": " + launches_text(c.total) + ", " +
         kernels_text(e.kernels) + " (" + std::to_string(c.elementwise) + " elementwise, " + std::to_string(c.concat) +
         " concat, " + std::to_string(c.permute) + " permute, " + std::to_string(c.upsample) + " upsample), " +
         bytes_text(static_cast<double>(e.fused_bytes)) + " moved (" +
         bytes_text(static_cast<double>(e.unfused_bytes)) + " unfused)" +
         (e.flops > 0 ? ", " + flops_text(e.flops) : "") + (e.seconds > 0 ? ", " + seconds_text(e.seconds) : "") + "\n";
  out += "memory: " + bytes_text(static_cast<double>(e.peak_bytes())) + " at most (activations " +
         bytes_text(static_cast<double>(e.memory.arena)) + ", weights " +
         bytes_text(static_cast<double>(e.memory.weights)) + ", scratch " +
         bytes_text(static_cast<double>(e.memory.scratch + e.memory.kept));
  if (e.memory.states) out += ", states " + bytes_text(static_cast<double>(e.memory.states));
  if (e.memory.host)
    out += ", places " + bytes_text(static_cast<double>(e.memory.staging)) + " for weights of " +
           bytes_text(static_cast<double>(e.memory.host)) + " that wait in the host's memory";
  out += ")\n";
  if (e.roofline) out += roofline_text(*e.roofline) + "\n";
  return out;
}

}  // namespace tenon
