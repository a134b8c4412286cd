#include "tenon/backend/cuda/launches/operands.h"

#include <algorithm>
#include <array>

#include "tenon/backend/affine.h"
#include "tenon/backend/arithmetic.h"
#include "tenon/backend/attention_scale.h"
#include "tenon/backend/cuda/attention/attention_route.h"
#include "tenon/backend/cuda/attention/attention_tiles.h"
#include "tenon/backend/cuda/attention/paged_heads.h"
#include "tenon/backend/cuda/codegen/program_source.h"
#include "tenon/backend/cuda/launches/device_weights.h"
#include "tenon/backend/cuda/products/core_names.h"
#include "tenon/backend/cuda/products/skinny_tile.h"
#include "tenon/backend/forms.h"
#include "tenon/backend/paged_axis.h"
#include "tenon/expr/ops.h"
#include "tenon/expr/precision.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cuda {
namespace {

bool takes_e4m3(const Form& form, const DeviceFacts& facts) {
  const auto whole = [](const Expr& h) { return h.dtype() == DType::E4M3 && h.shape().numel() > 0; };
  if (!multiplies_rows(form.anchor) || !whole(form.holes[0]) || !whole(form.holes[1])) return false;
  if (facts.arch != "sm_90a") return true;
  const Expr& b = form.holes[1];
  const int64_t columns = b.shape()[-2], lanes = lanes_apart(form) ? 1 : form.lanes;
  const bool permuted = b.shape().rank() == 2 && of_weights_only(b) && (lanes == 1 || columns % (32 * lanes) == 0);
  return core_allowed("wgmma") && (permuted || columns % (8 * lanes) == 0);
}

// Other head sizes are multiplied in f32, which holds all values; the running maximum needs a positive scale. Gradients
// of attention have only one core, which takes_gradient checks.
bool takes_heads(const Form& form, const DeviceFacts& facts) {
  const int depth = checked_int(form.holes[0].shape()[3]);
  return depth % 8 == 0 && pick_attention_tile(depth, facts.shared_bytes).depth > 0 &&
         form.anchor->attrs.nums[0] >= kLeastAttentionScale;
}

DType core_for(DType arithmetic, const Form& form, const DeviceFacts& facts) {
  if (form.anchor.is<nodes::Attention>() && !takes_heads(form, facts)) return DType::F32;
  if (form.anchor.is<nodes::Sample>()) return DType::F32;  // scores are compared
  return arithmetic == DType::E4M3 && !takes_e4m3(form, facts) ? DType::F16 : arithmetic;
}

bool rows_in_memory(const Expr& hole, DType t) {
  if (!is_view_chain(hole) || hole.dtype() != t || hole.shape().rank() == 0 || hole.shape().numel() == 0) return false;
  Params unused;
  const AccessSource access("x", hole, {hole.shape(), hole.shape().rank() - 1}, false, unused);
  return access.allows(vector_width(t)) && access.contiguous(vector_width(t)) &&
         hole.shape()[-1] % vector_width(t) == 0;
}

// True if a tensor of the hole's shape and type can be read in place. Filters that change cannot: they are reordered.
bool would_be_read(const Form& form, size_t hole, DType unit) {
  const Expr& h = form.holes[hole];
  return h.dtype() == unit && h.shape().numel() > 0 && h.shape()[-1] % vector_width(unit) == 0 &&
         !(form.anchor.is<nodes::Conv2d>() && hole == 1);
}

// Rows that TMA cannot load as boxes go to a core with less than half the speed, so large products are worth a copy of
// them.
bool wants_boxes(const Form& form, size_t hole, DType unit, const DeviceFacts& facts) {
  constexpr int64_t kMaxSmall = 512;  // rows or columns of the result up to which the copy takes longer
  if (!form.anchor.is<nodes::Linear>() || hole > 0 || size_of(unit) != 2) return false;
  const Shape &x = form.holes[0].shape(), &w = form.holes[1].shape();
  const bool large = x.rank() > 1 && std::min(x.rows(), w[-2]) > kMaxSmall && x[-1] > kMaxSmall;
  return large && wgmma_allowed(facts) && !nodes::Linear::batched(x, w);
}

// Heads must suit TMA boxes; row sums must be f32; the key count may be anything.
bool in_place_for_gradient(const Expr& h, size_t hole, DType unit) {
  constexpr size_t kHeads = 4;
  if (hole >= nodes::AttentionGradient::kOperands) return true;
  return hole < kHeads ? h.dtype() == unit && head_rows(h) : h.dtype() == DType::F32 && is_view_chain(h);
}

// A branch's operands, and those of the layer beside it, are read in place in the type in which they are multiplied.
bool in_place_beside(const Form& form, size_t hole, DType unit) {
  const Expr& h = form.holes[hole];
  if (hole >= nodes::BranchedLinear::kOperands) return is_view_chain(h);
  const DType t = hole < 2 ? unit : h.dtype();
  return rows_in_memory(h, t) && rows_in_boxes(h, t);
}

// All lanes share a tile, whatever their number. The kernel has no split-K, so there must be tiles for at least half of
// the multiprocessors. The branch's stages wait for each other, so the branch must be narrow.
bool takes_branch(const Expr& anchor, const DeviceFacts& facts) {
  constexpr int64_t kTile = 128 * 128, kLaneColumns = 32 * kMaxFormLanes, kNarrow = 4;
  const std::optional<DType> t = arithmetic_of(anchor);
  const Expr &x = anchor->in[0], &w = anchor->in[1], &u = anchor->in[2], &v = anchor->in[3];
  const bool typed = t && *t != DType::F32 && size_of(*t) <= 2 && x.dtype() == *t && w.dtype() == *t &&
                     (u.dtype() == DType::BF16 || u.dtype() == DType::F16);
  return typed && wgmma_allowed(facts) && of_weights_only(v) && x.shape()[-1] % vector_width(*t) == 0 &&
         u.shape()[-1] % vector_width(u.dtype()) == 0 && u.shape()[-1] > 0 &&
         kNarrow * u.shape()[-1] <= x.shape()[-1] && w.shape()[0] % kLaneColumns == 0 &&
         x.shape().rows() > SkinnyTileShape::kMaxRowsInFront &&
         2 * anchor.shape().numel() >= kTile * facts.multiprocessors;
}

// One kernel computes the gradients of queries, keys and values where its blocks of a head, which wait for each other,
// can all run at once, even beside those of such a kernel on another stream. All blocks should have work for all
// queries: under a causal mask they do not.
bool sums_queries(const Expr& anchor, const AttentionGradientShape& tile, const DeviceFacts& facts) {
  const int64_t keys = anchor->in[1].shape()[2];
  return !anchor->attrs.ints[0] && 2 * div_up(keys, tile.rows()) <= facts.multiprocessors && !facts.one_order;
}

bool takes_gradient(const Expr& anchor, const DeviceFacts& facts) {
  const std::optional<DType> arithmetic = arithmetic_of(anchor);
  const Shape &q = anchor->in[0].shape(), &v = anchor->in[2].shape();
  const bool typed = arithmetic && (*arithmetic == DType::BF16 || *arithmetic == DType::F16);
  const bool shaped = q[3] == v[3] && q[3] % 8 == 0 && q[3] > 0 && anchor.shape().numel() > 0;
  if (!typed || !shaped || anchor->attrs.nums[0] < kLeastAttentionScale || !wgmma_allowed(facts)) return false;
  const bool of_all = anchor.is<nodes::AttentionQuerySums>();
  const AttentionGradients which = of_all                                       ? AttentionGradients::All
                                   : anchor.is<nodes::AttentionQueryGradient>() ? AttentionGradients::Queries
                                                                                : AttentionGradients::Keys;
  const AttentionGradientShape tile = pick_attention_gradient(checked_int(q[3]), which, facts);
  return tile.depth > 0 && (!of_all || sums_queries(anchor, tile, facts));
}

}  // namespace

DType unit_of(const Launch& launch, const Form& form, const DeviceFacts& facts) {
  static constexpr std::array kMultiplied = {DType::F32, DType::BF16, DType::F16, DType::E4M3};
  const size_t types = multiplies_heads(form.anchor) ? 3 : kMultiplied.size();
  return core_for(obeyed_arithmetic(launch, std::span(kMultiplied).first(types)), form, facts);
}

std::set<int> lanes_of(const Expr& value) {
  std::set<int> out;
  for (const Expr& e : topological(std::array{value}))
    if (acc_lane(e) >= 0) out.insert(acc_lane(e));
  return out;
}

bool lanes_apart(const Form& form) {
  return form.lanes > 1 && std::all_of(form.outputs.begin(), form.outputs.end(),
                                       [&](const FormOutput& o) { return lanes_of(o.value).size() == 1; });
}

int vector_width(DType t) { return static_cast<int>(16 / size_of(t)); }

bool read_in_place(const Expr& hole, DType unit, const DeviceFacts& facts) {
  // On sm_90a e4m3 has a single core, which needs boxes.
  const bool needs_boxes = unit == DType::E4M3 && facts.arch == "sm_90a";
  return rows_in_memory(hole, unit) && (!needs_boxes || rows_in_boxes(hole, unit));
}

AttentionGroupedShape grouped_tile(const Form& form, DType unit) {
  if (!form.anchor.is<nodes::Attention>() || unit == DType::F32 || !core_allowed("skinny")) return {.depth = 0};
  const Shape q = form.holes[0].shape(), k = form.holes[1].shape();
  return pick_attention_grouped(k[1] ? q[1] / k[1] * q[2] : 0, q[3]);
}

bool reads_pages(const Form& form, DType unit) {
  if (!form.anchor.is<nodes::Attention>()) return false;
  if (unit == DType::F32) return paged_axis(form.holes[1], 2) && paged_axis(form.holes[2], 2);  // reads any view chain
  return form.holes[1].dtype() == unit && form.holes[2].dtype() == unit &&
         form.holes[1].shape()[3] % vector_width(unit) == 0 && in_pages(form.holes[1], form.holes[2]);
}

const FormOutput& update_of(const Form& form, size_t hole) {
  const std::vector<Expr> leaves = memory_leaves(form.holes[hole]);
  const auto is = [&](const FormOutput& o) {
    return std::ranges::any_of(leaves,
                               [&](const Expr& l) { return l.is<nodes::State>() && l->attrs.text == o.buffer; });
  };
  const auto found = std::ranges::find_if(form.updates, is);
  TENON_CHECK(Internal, found != form.updates.end(), "attention") << "reads a state that it does not write";
  return *found;
}

bool writes_rows(const Form& form, DType unit) {
  constexpr int64_t kMaxRows = int64_t{1} << 24;  // row numbers up to this are exact in f32
  if (!grouped_tile(form, unit).depth || !form.lets.empty() || form.updates.size() != 2) return false;
  const bool pages = reads_pages(form, unit);
  const auto has_update = [&](const Expr& hole) {
    const auto paged = pages ? paged_heads(hole, 1) : std::nullopt;
    const auto rows = paged ? paged->rows : head_rows(hole);
    const Shape s = hole.shape(), all{paged ? paged->pages * paged->page : s[0] * s[2], s[1], s[3]};
    if (!rows || !rows->leaf.is<nodes::State>() || rows->leaf.shape() != all || all[0] > kMaxRows) return false;
    const bool plain = rows->offset == 0 && (s[2] == 1 || rows->strides.token == s[1] * s[3]) &&
                       (s[1] == 1 || rows->strides.head == s[3]) &&
                       (paged || s[0] == 1 || rows->strides.batch == s[1] * s[2] * s[3]);
    return plain && std::ranges::any_of(form.updates, [&](const FormOutput& o) {
             return o.buffer == rows->leaf->attrs.text && o.place.is<nodes::Gather>() &&
                    o.place->in[1].dtype() == DType::I32 && o.dtype == unit && !reduces_rows(o.value);
           });
  };
  return has_update(form.holes[1]) && has_update(form.holes[2]) &&
         form.updates[0].place->in[1] == form.updates[1].place->in[1] &&
         form.updates[0].buffer != form.updates[1].buffer;
}

// Transposed rows, as in gradients of narrow weights, would have to be copied for the skinny core.
static bool few_in_columns(const Form& form, DType unit, const DeviceFacts& facts) {
  return wgmma_allowed(facts) && columns_in_boxes(form.holes[0], unit);
}

bool takes_few_rows(const Form& form, DType unit, const DeviceFacts& facts) {
  if (!form.anchor.is<nodes::Linear>() || size_of(unit) != 2 || !core_allowed("skinny")) return false;
  if (facts.batch_invariant()) return false;  // a larger batch has too many rows for this core
  // From this many weights on, a vocabulary's, wgmma's tiles read them faster than 16 rows can be used here.
  constexpr int64_t kManyWeights = int64_t{1} << 26, kFew = 8;
  const Shape x = form.holes[0].shape(), w = form.holes[1].shape();
  if (wgmma_allowed(facts) && x.rows() > kFew && w.numel() >= kManyWeights) return false;
  return !nodes::Linear::batched(x, w) && x.rows() <= SkinnyTileShape::kMaxRows && !few_in_columns(form, unit, facts);
}

bool computes_rows(const Form& form, DType unit, const DeviceFacts& facts) {
  constexpr int64_t kMaxBytes = 64 << 10;  // of shared memory
  const Expr& hole = form.holes[0];
  const int64_t columns = hole.shape()[-1];
  if (!takes_few_rows(form, unit, facts) || hole.shape().rows() > SkinnyTileShape::kMaxRowsInFront) return false;
  if (!reduces_rows(hole) || columns % vector_width(unit) || columns > kMaxColumnsInFront) return false;
  ProductShape product{.m = hole.shape().rows(), .n = form.holes[1].shape()[-2], .k = columns};
  product.lanes = lanes_apart(form) ? 1 : form.lanes;
  product.front = product.m * (columns + SkinnyTileShape::kFrontPadding) * size_of(unit);
  return hole.shape().numel() * size_of(unit) <= kMaxBytes && SkinnyCall(product, facts, {}).fits();
}

MatrixStack stack_of(const Expr& operand, const AffinePiece& whole) {
  constexpr Digit kAlone{1, 16};  // TMA wants a stride of whole 16 bytes even for a single matrix
  const Digit &inner = whole.rows.back(), &outer = whole.rows.size() > 1 ? whole.rows[0] : kAlone;
  return {inner.extent / operand.shape()[-2], outer.extent, outer.stride};
}

namespace {

// True if the matrices next to each other along an axis are whole, and each begins where a box may: at 16 bytes.
bool stacks_in_boxes(int64_t extent, int64_t rows, int64_t element_bytes) {
  return extent % rows == 0 && (extent == rows || rows * element_bytes % 16 == 0);
}

// True if boxes 128 bytes wide along one axis (rows or columns) cover the other axis fully: of one tensor, or of
// several joined at whole boxes; a stack of matrices is of one tensor.
bool in_boxes(const Expr& operand, DType unit, BoxesOf boxes) {
  const bool along_rows = boxes != BoxesOf::Rows, matrices = boxes == BoxesOf::StackedColumns;
  const int64_t least = along_rows ? 1 : 0;  // stride from one line of a box to the next
  const int64_t size = size_of(unit), width = 128 / size;
  const auto pieces = affine_pieces(operand, operand.shape(), operand.shape().rank() - 1);
  if (!pieces || (matrices && pieces->size() > 1)) return false;
  for (const AffinePiece& p : *pieces) {
    const bool whole = along_rows ? p.col_begin == 0 && p.col_end == operand.shape()[-1]
                                  : p.row_begin == 0 && p.row_end == operand.shape().rows();
    if (!whole || (along_rows ? p.row_begin : p.col_begin) % width) return false;
    if (!p.leaf || p.rows.size() > (matrices ? 2 : 1) || p.cols.size() != 1) return false;
    if (matrices && !stacks_in_boxes(p.rows.back().extent, operand.shape()[-2], size)) return false;
    if (p.rows.size() > 1 && p.rows[0].stride * size % 16) return false;
    const Digit &inside = (along_rows ? p.rows : p.cols).back(), &lines = (along_rows ? p.cols : p.rows)[0];
    if (inside.stride != 1 || lines.stride < least || lines.stride * size % 16 || p.offset * size % 16) return false;
  }
  return true;
}

}  // namespace

bool rows_in_boxes(const Expr& operand, DType unit) { return in_boxes(operand, unit, BoxesOf::Rows); }

bool columns_in_boxes(const Expr& operand, DType unit, bool matrices) {
  return is_view_chain(operand) && operand.dtype() == unit && operand.shape().numel() > 0 &&
         in_boxes(operand, unit, matrices ? BoxesOf::StackedColumns : BoxesOf::Columns);
}

namespace {

// True for a product that the wgmma core may take with transposed operands.
bool may_take_columns(const Form& form, DType unit, const DeviceFacts& facts) {
  if (!multiplies_rows(form.anchor) || size_of(unit) != 2 || !wgmma_allowed(facts)) return false;
  const Shape &x = form.holes[0].shape(), &w = form.holes[1].shape();
  if (nodes::Linear::batched(x, w) && (of_weights_only(form.holes[0]) || of_weights_only(form.holes[1]))) return false;
  return x.rank() > 1 && x[-1] > 0 && (form.lanes == 1 || lanes_apart(form)) &&
         (x.rows() > SkinnyTileShape::kMaxRowsInFront || few_in_columns(form, unit, facts));
}

// True if hole i is, or will be stored as, rows that TMA loads.
bool boxed_rows(const Form& form, size_t i, DType unit) {
  const Expr& h = form.holes[i];
  if (i == 1 && of_weights_only(h)) return true;
  return (i == 0 || h.shape()[-2] % 8 == 0) && rows_in_memory(h, unit) && rows_in_boxes(h, unit);
}

}  // namespace

bool takes_columns(const Form& form, size_t i, DType unit, const DeviceFacts& facts) {
  if (i > 1 || !may_take_columns(form, unit, facts) || of_weights_only(form.holes[i])) return false;
  const Expr &mine = form.holes[i], &other = form.holes[1 - i];
  const bool matrices = nodes::Linear::batched(form.holes[0].shape(), form.holes[1].shape());
  return columns_in_boxes(mine, unit, matrices) &&
         (columns_in_boxes(other, unit, matrices) || boxed_rows(form, 1 - i, unit));
}

Expr weights_in_columns(const Form& form, DType unit, const DeviceFacts& facts) {
  constexpr int64_t kPermutedRows = 32;  // rows of weights are stored permuted of this many
  const Expr &hole = form.holes[1], value = without_rounding(hole, unit);
  if (!may_take_columns(form, unit, facts) || !of_weights_only(hole) || !value.is<nodes::Permute>()) return {};
  const Expr& rows = value->in[0];
  const bool whole =
      rows.shape().rank() == 2 && rows.shape()[0] % kPermutedRows == 0 && rows.shape()[1] % vector_width(unit) == 0;
  return whole && (boxed_rows(form, 0, unit) || columns_in_boxes(form.holes[0], unit)) ? rows : Expr();
}

bool counts_statistics(const Form& form) {
  return std::ranges::any_of(form.outputs, [](const FormOutput& o) { return o.statistic != nullptr; });
}

// Each block reduces its own rows, which costs about as much as a launch for kMaxColumns, and more than the launch of
// kFewRows, which all run at once. Counting statistics takes too many registers beside that, and sums in ranges would
// have to be reduced in ranges too.
std::optional<CentredNorm> norm_behind(const Form& form, DType unit, const DeviceFacts& facts) {
  if (!form.anchor.is<nodes::Linear>() || size_of(unit) != 2 || !wgmma_allowed(facts) || facts.one_order) return {};
  const Expr &hole = form.holes[0], &weights = form.holes[1];
  const Shape &x = hole.shape(), &w = weights.shape();
  constexpr int64_t kMaxColumns = 1280, kFewRows = 192;
  const int64_t width = 128 / size_of(unit), k = x[-1];
  const bool few = x.rows() <= kFewRows && !facts.batch_invariant();  // more in a larger batch
  if (counts_statistics(form) || few || k == 0 || k % width || k > kMaxColumns) return {};
  if (!of_weights_only(weights) || w.rank() != 2 || w[0] % (8 * form.lanes) || weights_in_columns(form, unit, facts))
    return {};
  std::optional<CentredNorm> norm = centred_norm(hole, unit);
  const auto in_place = [&](const Expr& rows) { return read_in_place(rows, unit, facts) && rows_in_boxes(rows, unit); };
  return norm && in_place(norm->factor.rows) ? norm : std::nullopt;
}

Target target_of(std::shared_ptr<Device> device) {
  constexpr int64_t kLaunchBytes = int64_t{2} << 20;  // what an H200 moves while a recorded launch starts
  constexpr int64_t kRoomy = int64_t{40} << 30;       // trains a network of 6e9 weights beside a copy of them
  const DeviceFacts& facts = device->facts();
  const auto reads = [device](const Form& form, size_t hole) {
    const std::optional<DType> arithmetic = arithmetic_of(form.anchor);
    if (!arithmetic) return true;  // its kernel rejects that
    const DType unit = core_for(*arithmetic, form, device->facts());
    if (form.anchor.is<nodes::BranchedLinear>() && hole != 1) return in_place_beside(form, hole, unit);
    if (is_attention_gradient(form.anchor)) return in_place_for_gradient(form.holes[hole], hole, unit);
    if ((hole == 1 || hole == 2) && reads_pages(form, unit)) return true;
    if (hole == 0 && grouped_tile(form, unit).depth && !reduces_rows(form.holes[0])) return true;
    if (hole == 0 && computes_rows(form, unit, device->facts())) return true;
    if (hole == 0 && norm_behind(form, unit, device->facts())) return true;
    if (takes_columns(form, hole, unit, device->facts())) return true;
    if (!would_be_read(form, hole, unit)) return true;
    return read_in_place(form.holes[hole], unit, device->facts()) &&
           (!wants_boxes(form, hole, unit, device->facts()) || rows_in_boxes(form.holes[hole], unit));
  };
  const auto writes = [device = std::move(device)](const Form& form) {
    const std::optional<DType> arithmetic = arithmetic_of(form.anchor);
    return arithmetic && writes_rows(form, core_for(*arithmetic, form, device->facts()));
  };
  const auto runs = [facts](const Expr& anchor) {
    return anchor.is<nodes::BranchedLinear>() ? takes_branch(anchor, facts)
                                              : is_attention_gradient(anchor) && takes_gradient(anchor, facts);
  };
  return {.reads = reads,
          .writes = writes,
          .runs = runs,
          .copies_e4m3 = facts.memory_bytes >= kRoomy,
          .launch_bytes = kLaunchBytes};
}

}  // namespace tenon::cuda
