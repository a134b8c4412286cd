#include "tenon/explain/explanation.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdio>

#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/kernels/skeleton.h"
#include "tenon/runtime/plan_kernels.h"

namespace tenon {
namespace {

std::string type_text(DType dtype, const Shape& shape) { return std::string(name_of(dtype)) + shape.str(); }

std::string scaled(double value, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f %s" : value < 100 ? "%.1f %s" : "%.0f %s", value, unit);
  return text;
}

// Bytes the launch's nodes would move if each were a launch of its own.
int64_t unfused(const Launch& launch) {
  Graph g;  // planning adds nodes to it
  Memo memo;
  std::vector<Result> results;
  for (const Output& o : launch.outputs) {
    // The state it reads was written by earlier launches, which are not part of this graph.
    for (const Expr& e : topological(std::array{o.value}))
      if (e.is<nodes::State>()) memo.emplace(e.get(), state(g, e->attrs.text, e.dtype(), e.shape()));
    results.push_back({o.buffer, rebuild(g, o.value, memo)});
  }
  PlanOptions options;
  options.name = launch.name;
  options.fusion = false;
  const Plan plan = make_plan(results, options);
  return bytes_moved(plan, plan.phases.back().rate);
}

void fill_from_form(const Launch& launch, const Form& form, Readable& readable, ExplainedLaunch& out) {
  for (const Let& let : form.lets)
    out.lets.push_back(
        {readable.leaf(let.leaf), readable.print(let.value), type_text(let.value.dtype(), let.value.shape())});
  const auto& names = skeleton(launch.skeleton).holes;
  for (size_t i = 0; i < form.holes.size(); ++i) {
    const Expr& hole = form.holes[i];
    const std::string name = i < names.size() ? std::string(names[i]) : std::to_string(i);
    out.holes.push_back({name, readable.print(hole), type_text(hole.dtype(), hole.shape())});
  }
  for (const FormOutput& o : form.outputs) {
    ReadableText value = readable.print(o.value);
    if (o.statistic) value.text = std::string(o.statistic->name) + " by sample and channel of (" + value.text + ")";
    out.outputs.push_back({o.buffer, std::move(value), ""});
  }
  for (const FormOutput& o : form.updates) out.outputs.push_back({o.buffer, readable.print(o.value), ""});
}

bool same_holes(const std::vector<Place>& a, const std::vector<Place>& b) {
  return std::ranges::equal(a, b, {}, &Place::hole, &Place::hole);
}

// Merges neighbours of one kind, with the same reason, that went into holes of the same name: "slice, 3 times".
std::vector<KeptApart> merged(const std::vector<KeptApart>& all) {
  std::vector<KeptApart> out;
  std::vector<int> times;
  std::vector<std::vector<Place>> first;  // places of the first of the merged ones
  const auto kind = [](const KeptApart& k) { return k.what.substr(0, k.what.find(" [")); };
  for (const KeptApart& k : all) {
    size_t i = 0;
    while (i < out.size() &&
           (kind(out[i]) != kind(k) || out[i].kind != k.kind || out[i].why != k.why || !same_holes(first[i], k.into)))
      ++i;
    if (i == out.size()) {
      out.push_back(k);
      times.push_back(0);
      first.push_back(k.into);
    } else {
      for (const Place& place : k.into)
        if (std::ranges::find(out[i].into, place) == out[i].into.end()) out[i].into.push_back(place);
    }
    ++times[i];
  }
  for (size_t i = out.size(); i-- > 0;) {  // from the end: earlier entries still have their own text
    const auto alike = [&](const KeptApart& k) {
      return k.kind == out[i].kind && k.why == out[i].why && kind(k) == kind(out[i]);
    };
    const bool more = std::any_of(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(i), alike);
    if (times[i] > 1)
      out[i].what = kind(out[i]) + ", " + std::to_string(times[i]) + (more ? " more" : " times");
    else if (more)
      out[i].what += ", one more";
  }
  return out;
}

ExplainedLaunch explain_launch(const Launch& launch, Rate rate) {
  ExplainedLaunch out;
  out.name = launch.name;
  out.skeleton = launch.skeleton;
  out.rate = rate;
  out.apart = merged(launch.apart);
  const Expr anchor = anchor_of(launch);
  out.anchor = anchor_text(anchor);
  out.counts_keys = counts_keys(anchor);
  out.flops = out.counts_keys ? 0 : anchor_flops(anchor);
  if (anchor) out.arithmetic = arithmetic_of(anchor);
  out.bytes = bytes_moved(launch);
  for (const Output& o : launch.outputs) out.writes.push_back(o.buffer);
  out.unfused_bytes = unfused(launch);
  for (const Expr& e : operands_of(launch))
    if (!e.is<nodes::Param>()) out.reads.push_back(e->attrs.text);
  Readable readable(launch.name);
  fill_from_form(launch, *launch.form, readable, out);
  for (size_t i = 0; i < out.outputs.size(); ++i)
    out.outputs[i].type = type_text(launch.outputs[i].value.dtype(), launch.outputs[i].value.shape());
  for (const Output& o : launch.outputs)
    if (!o.why.empty()) out.stored.emplace_back(o.buffer, o.why);
  return out;
}

std::vector<ExplainedBuffer> explain_buffers(const Plan& plan, const std::vector<ExplainedLaunch>& launches) {
  const int end = std::max(0, static_cast<int>(launches.size()) - 1);
  std::vector<ExplainedBuffer> out;
  for (const Buffer& b : plan.buffers) {
    ExplainedBuffer e{b.name, type_text(b.dtype, b.shape), b.role, b.offset, b.bytes, end, -1};
    for (int i = 0; i <= end && !launches.empty(); ++i) {
      const ExplainedLaunch& l = launches[static_cast<size_t>(i)];
      const bool touched =
          std::count(l.reads.begin(), l.reads.end(), b.name) || std::count(l.writes.begin(), l.writes.end(), b.name);
      if (!touched) continue;
      e.first = std::min(e.first, i);
      e.last = std::max(e.last, b.rate == l.rate ? i : end);  // a faster phase reads it again in every run
    }
    if (b.role == BufferRole::Input) e.first = 0;
    if (b.role != BufferRole::Temporary || e.last < 0) e.last = end;
    out.push_back(std::move(e));
  }
  return out;
}

}  // namespace

bool asks_for(const std::string& only, const std::string& name) {
  const bool pattern = only.find_first_of("*?[") != std::string::npos;
  return pattern ? fnmatch(only.c_str(), name.c_str(), 0) == 0 : name.find(only) != std::string::npos;
}

void keep(Explanation& e, const LaunchChoice& choice) {
  std::erase_if(e.launches, [&](const ExplainedLaunch& l) { return !asks_for(choice.only, l.name); });
  if (choice.order == LaunchOrder::Plan) return;
  std::ranges::stable_sort(e.launches, std::ranges::greater{}, [&](const ExplainedLaunch& l) {
    return choice.order == LaunchOrder::Time ? l.seconds.value_or(0) : static_cast<double>(l.bytes);
  });
}

double roofline_share(const ExplainedLaunch& l, const Roofline& peak) {
  const double maths = l.arithmetic ? l.flops / peak.operations.at(*l.arithmetic) : 0;
  const double least = std::max(static_cast<double>(l.bytes) / peak.bytes(), maths);
  return l.seconds.value_or(0) > 0 && !l.counts_keys ? least / *l.seconds : 0;
}

KernelCounts kernels_of(const PlanKernels& made) {
  KernelCounts out;
  for (const PlanKernels::Made& m : made.kernels) out[m.launch->name] = m.kernel->kernels();
  return out;
}

Explanation explain(const Plan& plan, const MemoryPlan& memory, int64_t unfused_bytes, const Measurements& measured,
                    const KernelCounts& launched) {
  Explanation out;
  out.part = plan.name;
  out.rate = plan.phases.empty() ? Rate::Step : plan.phases.back().rate;
  out.counts = counts_of(plan, out.rate);
  out.fused_bytes = bytes_moved(plan, out.rate);
  out.memory = memory;
  out.unfused_bytes = unfused_bytes;
  for (const Phase& p : plan.phases)
    for (const Launch& l : p.launches) {
      out.launches.push_back(explain_launch(l, p.rate));
      if (const auto count = launched.find(l.name); count != launched.end())
        out.launches.back().kernels = count->second;
      const auto it = measured.find(l.name);
      if (it == measured.end()) continue;
      out.launches.back().seconds = it->second.seconds;
      out.launches.back().how = it->second.how;
    }
  out.buffers = explain_buffers(plan, out.launches);
  for (size_t i = 0; i < out.launches.size(); ++i) {
    out.launches[i].number = i;
    out.numbers[out.launches[i].name] = i;
    if (!out.launches[i].anchor.empty()) out.with_anchor.insert(out.launches[i].name);
    if (out.launches[i].rate != out.rate) continue;
    out.flops += out.launches[i].flops;
    out.kernels += out.launches[i].kernels;
    out.seconds += out.launches[i].seconds.value_or(0);
  }
  return out;
}

std::string bytes_text(double bytes) {
  if (bytes < 1000) return scaled(bytes, "B");
  if (bytes < 1e6) return scaled(bytes / 1e3, "kB");
  return bytes < 1e9 ? scaled(bytes / 1e6, "MB") : scaled(bytes / 1e9, "GB");
}

std::string flops_text(double flops) {
  if (flops < 1e6) return scaled(flops / 1e3, "kFLOP");
  if (flops < 1e9) return scaled(flops / 1e6, "MFLOP");
  return flops < 1e12 ? scaled(flops / 1e9, "GFLOP") : scaled(flops / 1e12, "TFLOP");
}

std::string launches_text(int64_t count) { return std::to_string(count) + (count == 1 ? " launch" : " launches"); }

std::string kernels_text(int64_t count) { return std::to_string(count) + (count == 1 ? " kernel" : " kernels"); }

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return scaled(seconds * 1e6, "us");
  return seconds < 1 ? scaled(seconds * 1e3, "ms") : scaled(seconds, "s");
}

}  // namespace tenon
