#include "tenon/nn/low_rank.h"

#include "tenon/expr/ops.h"
#include "tenon/nn/linear.h"

namespace tenon::nn {

// Two products for all parts: every A below the other, and the B on the diagonal of one matrix.
Expr low_rank(const Scope& s, const Expr& x, std::initializer_list<std::pair<const char*, int64_t>> parts,
              const LowRank& adapter) {
  const auto count = std::ranges::count_if(parts, [&](const auto& p) { return adapter.has(p.first); });
  if (count == 0) return {};
  const int64_t r = adapter.rank;
  std::vector<Expr> downs, rows;
  int64_t zeros = 0;  // rows of parts without an adapter, which go on top of the next one
  for (const auto& [part, outputs] : parts) {
    if (!adapter.has(part)) {
      zeros += outputs;
      continue;
    }
    const auto before = static_cast<int64_t>(downs.size()) * r, behind = count * r - before - r;
    downs.push_back((s / part / "lora_A").weight("weight", {r, x.shape()[-1]}));
    const Expr up = (s / part / "lora_B").weight("weight", {outputs, r});
    rows.push_back(zeros + before + behind > 0 ? pad(up, {zeros, 0, before, behind}) : up);
    zeros = 0;
  }
  if (zeros > 0) rows.back() = pad(rows.back(), {0, zeros, 0, 0});
  const auto stacked = [](const std::vector<Expr>& all) { return all.size() == 1 ? all[0] : concat(all, 0); };
  return nn::linear(nn::linear(x, stacked(downs)) * adapter.scale, stacked(rows));
}

}  // namespace tenon::nn
