#include "tenon/backend/cuda/attention/attention_route.h"

#include <algorithm>

#include "tenon/backend/affine.h"
#include "tenon/backend/cuda/launches/anchor_kernel.h"
#include "tenon/backend/forms.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cuda {
namespace {

// For an axis of extent 1, gives the stride that a dense tensor would have.
DnnHeads heads_of(const HeadRows& rows, const Shape& shape) {
  DnnHeads out = {rows.strides.batch, rows.strides.head, rows.strides.token};
  if (shape[1] == 1) out.head = shape[3];
  if (shape[2] == 1) out.token = shape[1] * shape[3];
  if (shape[0] == 1) out.batch = std::max(out.token * shape[2], out.head * shape[1]);
  return out;
}

// True if the launch only stores the product, rounded once.
bool stores_product(const Form& form, DType type) {
  if (form.outputs.size() != 1 || form.lanes != 1 || form.domain.numel() == 0) return false;
  const FormOutput& out = form.outputs.front();
  return !out.statistic && out.dtype == type && acc_lane(without_rounding(out.value, type)) == 0 &&
         out.place.shape() == form.anchor.shape();
}

}  // namespace

std::optional<HeadRows> head_rows(const Expr& view) {
  if (!is_view_chain(view)) return std::nullopt;
  const Shape shape = view.shape();
  const auto pieces = affine_pieces(view, shape, 3);
  if (!pieces || pieces->size() != 1) return std::nullopt;
  const AffinePiece& p = pieces->front();
  if (!p.leaf || p.offset % 8 || p.cols.size() != 1 || p.cols[0].stride != 1) return std::nullopt;
  std::vector<Digit> rows = p.rows;
  int64_t strides[3];  // of batch, heads, tokens
  for (int axis = 2; axis >= 0; --axis) {
    strides[axis] = 8;  // arbitrary for an axis of extent 1
    if (shape[axis] == 1) continue;
    Digit& inner = rows.back();
    if (inner.extent % shape[axis] || inner.stride <= 0 || inner.stride % 8) return std::nullopt;
    strides[axis] = inner.stride;
    inner = {inner.extent / shape[axis], inner.stride * shape[axis]};
    if (inner.extent == 1 && rows.size() > 1) rows.pop_back();
  }
  return HeadRows{p.leaf, p.offset, {strides[2], strides[1], strides[0]}};
}

device::AttentionSizes attention_sizes(const Form& form) {
  const Shape q = form.holes[0].shape(), k = form.holes[1].shape();
  return {.batch = checked_int(q[0]),
          .heads = checked_int(q[1]),
          .kv_heads = checked_int(k[1]),
          .queries = checked_int(q[2]),
          .keys = checked_int(k[2]),
          .depth = checked_int(q[3]),
          .scale = static_cast<float>(form.anchor->attrs.nums[0]),
          .causal = form.anchor->attrs.ints[0] != 0};
}

std::optional<AttentionRoute> AttentionRoute::of(const Form& form, std::span<const Expr> operands, DType type) {
  const Attrs& attrs = form.anchor->attrs;
  if (attrs.ints[0] != 0 || !stores_product(form, type)) return std::nullopt;
  std::vector<HeadRows> rows;
  for (const Expr& view : {operands[0], operands[1], operands[2], form.outputs.front().place}) {
    const auto found = head_rows(view);
    if (!found || size_of(found->leaf.dtype()) != size_of(type)) return std::nullopt;
    rows.push_back(*found);
  }
  AttentionRoute out;
  const Shape q = operands[0].shape(), k = operands[1].shape();
  out.problem = {type,
                 q[0],
                 q[1],
                 k[1],
                 q[2],
                 k[2],
                 q[3],
                 static_cast<float>(attrs.nums[0]),
                 heads_of(rows[0], q),
                 heads_of(rows[1], k),
                 heads_of(rows[2], k),
                 heads_of(rows[3], q)};
  for (const HeadRows& r : rows) out.operands.push_back({r.leaf, r.offset * size_of(type)});
  return out;
}

std::string AttentionRoute::key() const {
  const DnnAttention& a = problem;
  const auto times = [](int64_t x, int64_t y) { return std::to_string(x) + "x" + std::to_string(y); };
  return "attention " + times(a.batch, a.heads) + "x" + std::to_string(a.queries) + " over " +
         times(a.kv_heads, a.keys) + " by " + std::to_string(a.depth) + " bytes " + std::to_string(size_of(a.type)) +
         " epilogue plain";
}

}  // namespace tenon::cuda
