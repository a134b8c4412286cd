#include "tenon/models/weights.h"

#include <algorithm>
#include <array>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/expr/ops.h"

namespace tenon {
namespace {

bool same_but_ones(const Shape& a, const Shape& b) {
  const auto extents = [](const Shape& s) {
    std::vector<int64_t> out;
    for (int64_t d : s)
      if (d != 1) out.push_back(d);
    return out;
  };
  return extents(a) == extents(b);
}

// Whether a tensor beside these weights scales one of them: its name continues the weight's ("to_q.weight_scale"), or
// ends in a word for scales after the weight's module ("to_q.scale_weight", as ComfyUI calls them).
bool scales_a_weight(const std::string& name, const WeightShapes& weights) {
  constexpr std::string_view own = ".weight";
  const size_t at = name.rfind(own);
  if (at != std::string::npos && weights.contains(name.substr(0, at + own.size()))) return true;
  return std::ranges::any_of(std::array<std::string_view, 3>{".scale_weight", ".scale", "_scale"}, [&](auto ending) {
    return name.ends_with(ending) && weights.contains(name.substr(0, name.size() - ending.size()).append(own));
  });
}

void append_list(std::string& out, const char* title, const std::vector<std::string>& items, size_t limit) {
  if (items.empty()) return;
  out.append(out.empty() ? "" : "; ").append(std::to_string(items.size())).append(" ").append(title);
  for (size_t i = 0; i < items.size() && i < limit; ++i) out.append(i ? ", " : ": ").append(shown(items[i]));
  if (items.size() > limit) out.append(", ..");
}

}  // namespace

WeightShapes weights_of(std::span<const Expr> roots) {
  WeightShapes out;
  for (const Expr& e : topological(roots)) {
    if (!e.is<nodes::Param>()) continue;
    const auto [it, added] = out.emplace(e->attrs.text, e.shape());
    TENON_CHECK(Internal, added || it->second == e.shape(), "weights")
        << "'" << it->first << "' is used as " << it->second.str() << " and as " << e.shape().str();
  }
  return out;
}

int64_t parameter_count(const WeightShapes& weights) {
  int64_t n = 0;
  for (const auto& [name, shape] : weights) n += shape.numel();
  return n;
}

WeightReport check_weights(const WeightShapes& expected, const WeightShapes& found) {
  WeightReport report;
  for (const auto& [name, shape] : expected) {
    const auto it = found.find(name);
    if (it == found.end())
      report.missing.push_back(name);
    else if (!same_but_ones(shape, it->second))
      report.wrong_shape.push_back({name, shape, it->second});
  }
  for (const auto& [name, shape] : found)
    if (!expected.contains(name) && !name.ends_with("position_ids")) {
      report.unexpected.push_back(name);
      if (scales_a_weight(name, expected)) report.scales.push_back(name);
    }
  return report;
}

std::string WeightReport::str(size_t limit) const {
  std::string out;
  append_list(out, "missing", missing, limit);
  std::vector<std::string> shapes;
  for (const WrongShape& w : wrong_shape)
    shapes.push_back(w.name + " (expected " + w.expected.str() + ", found " + w.found.str() + ")");
  append_list(out, "of the wrong shape", shapes, limit);
  append_list(out, "unexpected", unexpected, limit);
  append_list(out, "beside a quantised weight (not supported)", scales, limit);
  return out;
}

void require_weights(const WeightReport& report, const std::string& where) {
  if (report.usable()) return;
  WeightReport fatal = report;
  fatal.unexpected.clear();
  throw Error(ErrorKind::Model, where, "the weights do not fit the network; " + fatal.str());
}

void require_floats(const WeightShapes& expected, const std::map<std::string, TensorView>& tensors,
                    const std::string& where) {
  for (const auto& [name, shape] : expected) {
    const DType type = tensors.at(name).dtype;
    TENON_CHECK(Model, is_float(type), where)
        << "'" << name << "' is of type " << name_of(type) << ", expected floating point";
  }
}

}  // namespace tenon
