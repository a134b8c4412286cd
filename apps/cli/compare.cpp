#include "apps/cli/compare.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <span>

#include "tenon/core/error.h"
#include "tenon/explain/explanation.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/expr/state.h"
#include "tenon/kernels/form.h"

namespace tenon::cli {
namespace {

// A launch's name up to and including its first number: "blocks.3" of "blocks.3.attn.qkv".
std::string block_of(const std::string& name) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) return name.substr(0, end);
    begin = end + 1;
  }
  return {};
}

bool of_block(const Launch& l, const std::string& block) {
  const Expr anchor = anchor_of(l);
  return anchor && !multiplies_heads(anchor) && block_of(l.name) == block;
}

// The second one of the blocks with most launches.
std::string choose_block(const std::vector<Launch>& launches, const std::string& part) {
  std::vector<std::string> order;
  std::map<std::string, int> count;
  for (const Launch& l : launches) {
    const std::string block = block_of(l.name);
    if (block.empty() || !anchor_of(l)) continue;
    if (count[block]++ == 0) order.push_back(block);
  }
  TENON_CHECK(Usage, !order.empty(), "--compare") << part << " has no numbered blocks";
  int most = 0;
  for (const auto& [block, n] : count) most = std::max(most, n);
  std::erase_if(order, [&](const std::string& block) { return count[block] < most; });
  return order.size() > 1 ? order[1] : order[0];
}

int64_t stored_bytes(const Expr& e, DType act) {
  const bool wide = e.dtype() == DType::F32 && !e.is<nodes::Param>() && e.shape().rank() > 1;
  return bytes_of(e.shape(), wide ? act : e.dtype());
}

// Every tensor in memory that a launch reads, once. Weights that its anchor multiplies are stored in the type of the
// multiplication, with whatever was folded into them; of a state that is updated, nothing is read.
int64_t bytes_read(const Launch& l, DType act) {
  const Expr anchor = anchor_of(l);
  const bool multiplies = anchor && arithmetic_of(anchor);
  const DType type = multiplies ? *arithmetic_of(anchor) : act;
  const std::span<const Expr> factors =
      multiplies ? std::span(anchor->in).first(static_cast<size_t>(anchor->type->factors)) : std::span<const Expr>();
  const auto is_weight = [&](const Expr& e) {
    return std::ranges::find(factors, e) != factors.end() && of_weights_only(e) && size_of(e.dtype()) >= size_of(type);
  };
  std::vector<Expr> needed;
  for (const Output& o : l.outputs)
    for (const Expr& e : needed_for(o.value)) needed.push_back(e);
  int64_t bytes = 0;
  walk_below(std::move(needed), [&](const Expr& e) {
    const bool weight = is_weight(e), memory = is_memory_leaf(e) || is_update(e);  // an update's reader reads memory
    if (weight)
      bytes += bytes_of(e.shape(), type);
    else if (memory)
      bytes += stored_bytes(e, act);
    return !weight && !memory;
  });
  return bytes;
}

ComparedLaunch compared(const Launch& l, DType act) {
  ComparedLaunch out{l.name, l.skeleton, "", "", bytes_read(l, act)};
  std::vector<Expr> roots;
  for (const Output& o : l.outputs) {
    roots.push_back(o.value);
    out.bytes += stored_bytes(written_by(o.value), act);
    out.type += (out.type.empty() ? "" : ", ") + std::string(name_of(o.value.dtype())) + o.value.shape().str();
  }
  for (const Expr& e : topological(roots)) {
    if (e->family() == Family::Leaf || e.is<nodes::Broadcast>()) continue;
    const std::string name(e->name());
    out.maths += (out.maths.empty() ? "" : " ") + (e->family() == Family::Anchor ? "[" + name + "]" : name);
  }
  if (out.maths.empty()) out.maths = std::string(roots.front()->name());  // it only repeats or copies
  return out;
}

// The block's launches of a plan.
std::vector<ComparedLaunch> launches_of(const Plan& plan, const std::string& block, DType act) {
  const std::vector<Launch>& all = plan.phases.back().launches;
  const auto mine = [&](const Launch& l) { return of_block(l, block); };
  const auto first = std::find_if(all.begin(), all.end(), mine);
  const auto last = std::find_if(all.rbegin(), all.rend(), mine).base();  // one past the last
  auto begin = first;
  while (begin != all.begin() && !anchor_of(*(begin - 1))) --begin;
  std::vector<ComparedLaunch> out;
  for (auto l = begin; l < last; ++l) out.push_back(compared(*l, act));
  return out;
}

}  // namespace

int64_t ComparedWay::bytes() const {
  int64_t sum = 0;
  for (const ComparedLaunch& l : launches) sum += l.bytes;
  return sum;
}

Comparison compare(const ModelParts& model, const std::string& part, const PartRequest& request,
                   const NetworkOptions& options) {
  const DType act = options.precision.act;
  NetworkOptions nodes = options, compiler = options;
  nodes.fusion = false;
  compiler.anchors_alone = true;
  const Plan own = model.plan(part, request, options);
  Comparison out{model.name(),
                 part,
                 choose_block(own.phases.back().launches, part),
                 model.describe(part, request),
                 std::string(name_of(act)),
                 {}};
  const auto add = [&](const char* key, const char* title, const Plan& plan) {
    out.ways.push_back({key, title, launches_of(plan, out.block, act)});
  };
  add("nodes", "node by node", model.plan(part, request, nodes));
  add("compiler", "library calls, the maths between them fused", model.plan(part, request, compiler));
  add("tenon", "Tenon", own);
  return out;
}

std::string comparison_text(const Comparison& c) {
  std::string out = c.model + " " + c.part + ", " + c.works_on + ", " + c.type + ": " + c.block + "\n";
  for (const ComparedWay& way : c.ways) {
    out += "\n" + way.title + ": " + launches_text(static_cast<int64_t>(way.launches.size())) + ", " +
           bytes_text(static_cast<double>(way.bytes())) + "\n";
    for (const ComparedLaunch& l : way.launches) {
      char bytes[32];
      std::snprintf(bytes, sizeof bytes, "%10s  ", bytes_text(static_cast<double>(l.bytes)).c_str());
      out += bytes + l.skeleton + std::string(l.skeleton.size() < 10 ? 10 - l.skeleton.size() : 1, ' ') + l.maths +
             " -> " + l.type + (l.name.starts_with(c.block) ? "   " + l.name : "") + "\n";
    }
  }
  out += "\n";
  const double all = static_cast<double>(c.ways.front().bytes());
  for (const ComparedWay& way : c.ways) {
    char line[160];
    std::snprintf(line, sizeof line, "%-48s %3zu launches  %10s  %5.1f %% of the first\n", way.title.c_str(),
                  way.launches.size(), bytes_text(static_cast<double>(way.bytes())).c_str(),
                  100 * static_cast<double>(way.bytes()) / all);
    out += line;
  }
  return out;
}

nlohmann::ordered_json comparison_json(const Comparison& c) {
  nlohmann::ordered_json ways = nlohmann::ordered_json::array();
  for (const ComparedWay& way : c.ways) {
    nlohmann::ordered_json launches = nlohmann::ordered_json::array();
    for (const ComparedLaunch& l : way.launches)
      launches.push_back(
          {{"name", l.name}, {"skeleton", l.skeleton}, {"maths", l.maths}, {"type", l.type}, {"bytes", l.bytes}});
    ways.push_back({{"way", way.key}, {"launches", launches}, {"bytes", way.bytes()}});
  }
  return {{"model", c.model}, {"part", c.part}, {"block", c.block}, {"type", c.type}, {"ways", ways}};
}

}  // namespace tenon::cli
