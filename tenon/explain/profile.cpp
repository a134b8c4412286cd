#include "tenon/explain/profile.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "tenon/core/error.h"
#include "tenon/core/text.h"

namespace tenon {
namespace {

std::string kind_of(const ExplainedLaunch& l) {
  if (l.skeleton == "gemm" || l.skeleton == "branched_gemm") return "product";
  if (l.skeleton == "conv2d") return "convolution";
  if (l.skeleton == "rows" || l.skeleton == "groups") return "row";
  return l.skeleton;
}

// "layers.15" for "layers.15.feed_forward.w2"; empty for a name without such a number.
std::string layer_of(const std::string& name) {
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    const size_t end = std::min(name.find('.', dot + 1), name.size());
    const bool number = end > dot + 1 && std::all_of(name.begin() + static_cast<ptrdiff_t>(dot) + 1,
                                                     name.begin() + static_cast<ptrdiff_t>(end),
                                                     [](unsigned char c) { return std::isdigit(c); });
    if (number) return name.substr(0, end);
  }
  return {};
}

// Launches that only write a layer's states are named after them: "cache.0" is not a layer of its own.
std::set<std::string> layers_of_states(const Explanation& e) {
  std::set<std::string> out;
  for (const ExplainedBuffer& b : e.buffers)
    if (b.role == BufferRole::State) out.insert(layer_of(b.name));
  return out;
}

std::vector<const ExplainedLaunch*> launches_of(const Explanation& e) {
  std::vector<const ExplainedLaunch*> out;
  for (const ExplainedLaunch& l : e.launches)
    if (l.rate == e.rate) out.push_back(&l);
  return out;
}

double first_of(const MeasuredStep& s) {
  double first = INFINITY;
  for (const auto* list : {&s.launches, &s.copies})
    for (const DeviceWork& w : *list) first = std::min(first, w.begin);
  return first;
}

double seconds_of(const MeasuredStep& s) {
  double last = -INFINITY;
  for (const auto* list : {&s.launches, &s.copies})
    for (const DeviceWork& w : *list) last = std::max(last, w.end);
  return last - first_of(s);
}

// Sets each time without its overlap with earlier ones; returns the rest of the step.
double share_out(std::vector<ProfiledTime>& times, double step) {
  double ended = 0, taken = 0;
  for (ProfiledTime& t : times) {
    t.seconds = std::max(0.0, t.end - std::max(t.begin, ended));
    ended = std::max(ended, t.end);
    taken += t.seconds;
  }
  return std::max(0.0, step - taken);
}

std::vector<ProfiledTime> summed(const std::vector<ProfiledTime>& times, std::string ProfiledTime::*key) {
  std::map<std::string, ProfiledTime> sums;
  std::map<std::string, double> at_peak, known;  // seconds at peak, and taken, of launches with a roofline
  for (const ProfiledTime& t : times) {
    ProfiledTime& sum = sums[t.*key];
    sum.name = t.*key;
    sum.kind = t.kind;
    sum.seconds += t.seconds;
    sum.launches += t.launches;
    sum.kernels += t.kernels;
    if (!t.roofline) continue;
    at_peak[t.*key] += *t.roofline * t.seconds;
    known[t.*key] += t.seconds;
  }
  std::vector<ProfiledTime> out;
  for (auto& [name, sum] : sums) {
    if (at_peak[name] > 0 && known[name] > 0) sum.roofline = at_peak[name] / known[name];
    out.push_back(std::move(sum));
  }
  std::ranges::stable_sort(out, std::greater(), &ProfiledTime::seconds);
  return out;
}

std::string cell(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string percent(double share) {
  return std::to_string(std::lround(1000 * share) / 10) + "." + std::to_string(std::lround(1000 * share) % 10) + " %";
}

std::string line(const ProfiledTime& t, double step, size_t name_width) {
  std::string out = t.name + cell("", name_width > t.name.size() ? name_width - t.name.size() : 0);
  out += cell(t.launches ? std::to_string(t.launches) : "", 10) + cell(t.kernels ? std::to_string(t.kernels) : "", 9);
  out += cell(seconds_text(t.seconds), 10) + cell(percent(step > 0 ? t.seconds / step : 0), 9);
  return out + cell(t.roofline ? std::to_string(std::lround(100 * *t.roofline)) + " %" : "", 10) + "\n";
}

std::string table(const std::string& title, const std::vector<ProfiledTime>& rows, double step, size_t most) {
  size_t width = title.size();
  for (size_t i = 0; i < std::min(rows.size(), most); ++i) width = std::max(width, rows[i].name.size());
  std::string out = title + cell("launches", width - title.size() + 10) + cell("kernels", 9) + cell("time", 10) +
                    cell("share", 9) + cell("roofline", 10) + "\n";
  for (size_t i = 0; i < std::min(rows.size(), most); ++i) out += line(rows[i], step, width);
  return rows.size() > most ? out + ".. " + std::to_string(rows.size() - most) + " more\n" : out;
}

}  // namespace

MeasuredStep step_of(std::span<const DeviceWork> work, const Explanation& e) {
  MeasuredStep out;
  std::vector<DeviceWork> kernels;
  for (const DeviceWork& w : work) (w.copy ? out.copies : kernels).push_back(w);
  size_t at = 0, expected = 0;
  const auto launches = launches_of(e);
  for (const ExplainedLaunch* l : launches) expected += static_cast<size_t>(l->kernels);
  TENON_CHECK(Numeric, kernels.size() == expected, e.part)
      << "the device ran " << kernels.size() << " kernels, but the plan's launches have " << expected
      << ": they cannot be matched";
  for (const ExplainedLaunch* l : launches) {
    DeviceWork all{.copy = false, .begin = INFINITY, .end = -INFINITY};
    for (int i = 0; i < l->kernels; ++i, ++at) {
      all.begin = std::min(all.begin, kernels[at].begin);
      all.end = std::max(all.end, kernels[at].end);
    }
    out.launches.push_back(all);
  }
  return out;
}

Profile make_profile(const Explanation& e, std::vector<MeasuredStep> runs) {
  Profile p{.model = e.model, .part = e.part, .device = e.device};
  p.runs = static_cast<int>(runs.size());
  TENON_CHECK(Internal, !runs.empty(), "profile") << "there are no runs";
  std::ranges::sort(runs, {}, seconds_of);
  const MeasuredStep& step = runs[runs.size() / 2];
  const double first = first_of(step);
  p.seconds = seconds_of(step);
  const auto launches = launches_of(e);
  TENON_CHECK(Internal, launches.size() == step.launches.size(), "profile")
      << "expected " << launches.size() << " measured launches, got " << step.launches.size();
  const std::set<std::string> of_states = layers_of_states(e);
  std::string layer = "before the first";
  for (size_t i = 0; i < launches.size(); ++i) {
    const ExplainedLaunch& l = *launches[i];
    if (const std::string own = layer_of(l.name); !own.empty() && !of_states.contains(own)) layer = own;
    p.times.push_back({.name = l.name,
                       .kind = kind_of(l),
                       .layer = layer,
                       .begin = step.launches[i].begin - first,
                       .end = step.launches[i].end - first,
                       .launches = 1,
                       .kernels = l.kernels,
                       .how = l.how});
  }
  for (const DeviceWork& w : step.copies)
    p.times.push_back(
        {.name = "copy", .kind = "copy", .layer = "copies", .begin = w.begin - first, .end = w.end - first});
  std::ranges::stable_sort(p.times, {}, &ProfiledTime::begin);
  const double idle = share_out(p.times, p.seconds);
  std::map<std::string, const ExplainedLaunch*> by_name;
  for (const ExplainedLaunch* l : launches) by_name[l->name] = l;
  for (ProfiledTime& t : p.times)
    if (t.launches && t.seconds > 0 && e.roofline) {
      ExplainedLaunch timed = *by_name.at(t.name);
      timed.seconds = t.seconds;
      if (!timed.counts_keys) t.roofline = roofline_share(timed, *e.roofline);
    }
  std::vector<ProfiledTime> all = p.times;
  all.push_back({.name = "idle", .kind = "idle", .layer = "idle", .seconds = idle});
  p.classes = summed(all, &ProfiledTime::kind);
  p.layers = summed(all, &ProfiledTime::layer);
  p.roofline = e.roofline;
  return p;
}

std::string profile_text(const Profile& p, size_t longest) {
  int launches = 0, kernels = 0;
  for (const ProfiledTime& t : p.times) launches += t.launches, kernels += t.kernels;
  std::string out = p.model + " " + p.part + " on " + p.device + ": a step takes " + seconds_text(p.seconds) +
                    " (the median of " + std::to_string(p.runs) + "), " + launches_text(launches) + ", " +
                    kernels_text(kernels) + "\n";
  if (p.roofline) out += roofline_text(*p.roofline) + "\n";
  out += "\n";
  out += table("class", p.classes, p.seconds, p.classes.size());
  if (longest == 0) return out;
  out += "\n" + table("layer", p.layers, p.seconds, longest);
  std::vector<ProfiledTime> order = p.times;
  std::ranges::stable_sort(order, std::greater(), &ProfiledTime::seconds);
  return out + "\n" + table("launch", order, p.seconds, longest);
}

}  // namespace tenon
