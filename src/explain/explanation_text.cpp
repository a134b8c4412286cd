// An explanation as text.
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

void add_launch(std::string& out, const ExplainedLaunch& l, size_t number) {
  out += "#" + padded(std::to_string(number), 3) + " " + padded(l.skeleton, 10) + l.name;
  if (!l.anchor.empty()) out += "   " + l.anchor;
  out += "\n";
  for (const ExplainedHole& h : l.lets) add_hole(out, h.name, h, false);
  for (const ExplainedHole& h : l.holes) add_hole(out, h.name, h, false);
  for (const ExplainedHole& h : l.sinks) add_hole(out, "out", h, true);
  for (const KeptApart& k : l.apart) out += "    kept apart: " + k.what + ": " + k.why + "\n";
  out += "    ";
  if (l.seconds) {
    out += seconds_text(*l.seconds) + "  ";
    if (l.flops > 0 && *l.seconds > 0)
      out += std::to_string(static_cast<int64_t>(l.flops / *l.seconds / 1e9)) + " GFLOP/s  ";
  }
  out += bytes_text(static_cast<double>(l.bytes)) + " moved (" + bytes_text(static_cast<double>(l.unfused_bytes)) +
         " unfused)";
  if (!l.how.empty()) out += "  " + l.how;
  out += "\n";
}

}  // namespace

std::string explanation_text(const Explanation& e) {
  std::string out = e.model + " " + e.part + " on " + e.device + "\n";
  size_t number = 0;
  for (size_t i = 0; i < e.launches.size(); ++i) {
    const ExplainedLaunch& l = e.launches[i];
    if (i == 0 || l.rate != e.launches[i - 1].rate) out += "\nphase " + std::string(name_of(l.rate)) + "\n";
    add_launch(out, l, number++);
  }
  double seconds = 0, flops = 0;
  for (const ExplainedLaunch& l : e.launches) {
    if (l.rate != e.rate) continue;
    seconds += l.seconds.value_or(0);
    flops += l.flops;
  }
  const PlanCounts& c = e.counts;
  out += "\none " + std::string(e.rate == Rate::Step ? "step" : "run") + ": " + std::to_string(c.total) +
         " launches (" + std::to_string(c.elementwise) + " elementwise, " + std::to_string(c.concat) + " concat, " +
         std::to_string(c.permute) + " permute, " + std::to_string(c.upsample) + " upsample), " +
         bytes_text(static_cast<double>(e.fused_bytes)) + " moved (" +
         bytes_text(static_cast<double>(e.unfused_bytes)) + " unfused), " +
         std::to_string(static_cast<int64_t>(flops / 1e9)) + " GFLOP" +
         (seconds > 0 ? ", " + seconds_text(seconds) : "") + "\n";
  out += "memory: " + bytes_text(static_cast<double>(e.peak_bytes())) + " at most (activations " +
         bytes_text(static_cast<double>(e.memory.arena)) + ", weights " +
         bytes_text(static_cast<double>(e.memory.weights)) + ", scratch " +
         bytes_text(static_cast<double>(e.memory.scratch + e.memory.kept)) + ")\n";
  return out;
}

}  // namespace tenon
