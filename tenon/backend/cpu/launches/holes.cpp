#include "tenon/backend/cpu/launches/holes.h"

#include <algorithm>

#include "tenon/backend/arithmetic.h"
#include "tenon/backend/cpu/host_memory.h"
#include "tenon/backend/cpu/tile/winograd.h"
#include "tenon/backend/forms.h"
#include "tenon/core/stop.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cpu {
namespace {
using PackFn = void(ThreadPool&, const TileOps&, const void*, DType, int64_t, const PackedShape&, void*);

// Calls fn(i) for n work items that are parallel themselves; many items are run on one thread each.
void for_each(ThreadPool& pool, int64_t n, FunctionRef<void(int64_t i)> fn) {
  if (n >= int64_t{4} * pool.threads()) return pool.parallel_for(n, [&](int64_t i, int) { fn(i); });
  for (int64_t i = 0; i < n; ++i) fn(i);
}

// `rows` rows of one lane of a linear layer.
PackedShape group_of(PackedShape shape, int64_t rows) {
  shape.lanes = 1;
  shape.cols = rows;
  return shape;
}
}  // namespace

DType tiles_of(const Launch& launch) {
  static constexpr std::array kMultiplied = {DType::F32, DType::BF16, DType::F16, DType::E4M3, DType::I8};
  const Expr& anchor = launch.form->anchor;
  const size_t types = anchor.is<nodes::Attention>() ? 3 : anchor.is<nodes::Linear>() ? 5 : 4;
  const DType arithmetic = obeyed_arithmetic(launch, std::span(kMultiplied).first(types));
  if (arithmetic == DType::I8) return arithmetic;
  return arithmetic == DType::BF16 || arithmetic == DType::E4M3 ? DType::BF16 : DType::F32;
}

Expr packed_value(const Expr& hole, DType tiles) {
  return tiles == DType::BF16 ? without_rounding(hole, DType::BF16) : hole;
}

bool kernels_read(DType t) { return is_float(t) && t != DType::F64; }

// ---- rows ---------------------------------------------------------------------------------------------------------

RowHole::RowHole(const Expr& hole, DType tiles, LeafTable& leaves, const VecOps& ops) {
  const Expr value = packed_value(hole, tiles);
  const Shape& domain = value.shape();
  if (is_view_chain(value) && kernels_read(value.dtype())) {
    const Access access(value, domain, std::max(domain.rank() - 1, 0), leaves);
    const Piece* p = access.affine();
    const bool joined = p && p->rows.size() == 1 && p->cols.size() == 1;
    if (joined && (p->cols[0].stride == 1 || domain.cols() == 1)) {
      leaf_ = p->number;
      offset_ = p->offset;
      ld_ = p->rows[0].stride;
      type_ = value.dtype();
      return;
    }
  }
  tape_ = std::make_unique<Tape>(std::array{TapeOutput{value, Expr(), DType::F32}}, domain, leaves, ops);
}

const void* RowHole::data(Bases bases) const {
  return tape_ ? nullptr : static_cast<const std::byte*>(bases[leaf_]) + offset_ * size_of(type_);
}

void RowHole::fill(int64_t row0, int64_t rows, float* dst, int64_t ld, Bases bases, void* workspace) const {
  TapeCall call;
  call.block = {row0, rows, 0, tape_->cols()};
  call.bases = bases;
  call.workspace = workspace;
  call.rows = dst;
  call.rows_ld = ld;
  tape_->run(call);
}

std::string RowHole::describe() const {
  if (!tape_) return "memory";
  std::string out = "tape of ";
  return out += std::to_string(tape_->length());
}

// ---- weights ------------------------------------------------------------------------------------------------------

int64_t WeightGeometry::batch_bytes() const {
  return winograd ? winograd_weight_bytes(*winograd, shape.cols, channels) : shape.bytes();
}

std::string WeightGeometry::text() const {
  std::string out = "packed";
  const auto add = [&out](const char* what, int64_t value) { ((out += what) += ' ') += std::to_string(value); };
  if (winograd) (out += " by winograd to ") += name_of(*winograd);
  (out += " as ") += name_of(shape.bytes_of.value_or(shape.type));
  add(", lanes", shape.lanes);
  add(" of", shape.cols);
  add(" by", shape.k);
  add(", batch", batch);
  if (convolution) {
    add(", channels", channels);
    add(", kernel", kh);
    add(" by", kw);
  }
  return out;
}

WeightHole::WeightHole(const Expr& hole, const WeightGeometry& geometry, LeafTable& leaves, const Engine& engine)
    : geometry_(geometry), leaves_(leaves), threads_(engine.pool.threads()) {
  const Expr value = packed_value(hole, geometry.shape.type);
  const Shape& domain = value.shape();
  const int split = geometry.convolution ? 1 : domain.rank() - 1;
  row_elements_ = 1;
  for (int a = split; a < domain.rank(); ++a) row_elements_ *= domain[a];
  if (find_parts(value, split, leaves) && (!geometry.winograd || parts_.size() == 1)) return;
  parts_.clear();
  TapeOptions options;  // reductions are over a filter's last axis, so its rows are computed one by one
  options.split = reduces_rows(value) ? domain.rank() - 1 : split;
  tape_ =
      std::make_unique<Tape>(std::array{TapeOutput{value, Expr(), DType::F32}}, domain, leaves, engine.vec, options);
}

WeightRequest packed_weights(const Expr& hole, const WeightGeometry& geometry, std::shared_ptr<Engine> engine) {
  const auto graph = std::make_shared<Graph>();
  Memo memo;
  const Expr value = rebuild(*graph, packed_value(hole, geometry.shape.type), memo);
  const auto make = [graph, value, geometry, engine = std::move(engine)](const WeightMaking& with,
                                                                         std::span<void* const> parts) {
    LeafTable leaves;
    WeightHole(value, geometry, leaves, *engine).pack(*engine, with, static_cast<std::byte*>(parts[0]));
  };
  return {{{geometry.text() + "\n" + print(value), round_up(geometry.bytes(), 64)}},
          params_of(std::array{value}),
          {},
          make};
}

bool WeightHole::find_parts(const Expr& hole, int split, LeafTable& leaves) {
  if (!is_view_chain(hole)) return false;
  if (!kernels_read(hole.dtype())) return false;
  const Access access(hole, hole.shape(), split, leaves);
  const std::vector<Piece>& pieces = access.pieces();
  return !pieces.empty() && std::all_of(pieces.begin(), pieces.end(), [&](const Piece& p) { return cut(p); });
}

// Cuts a piece at group boundaries and where the row stride changes; each part must begin on a panel.
bool WeightHole::cut(const Piece& p) {
  if (p.number < 0 || p.cols.size() != 1 || p.col_end - p.col_begin != row_elements_) return false;
  const Digit inner = p.rows.back();
  const int64_t group = geometry_.shape.cols;
  const bool plain = p.cols[0].stride == 1 || row_elements_ == 1, turned = !plain && inner.stride == 1;
  const bool turns = !geometry_.convolution && !geometry_.shape.bytes_of && geometry_.shape.type != DType::I8;
  if (!plain && (!turned || !turns)) return false;
  for (int64_t row = p.row_begin; row < p.row_end;) {
    const int64_t local = row - p.row_begin;
    const int64_t end = std::min({p.row_end, (row / group + 1) * group, row + inner.extent - local % inner.extent});
    int64_t offset = p.offset, rest = local;
    for (size_t i = p.rows.size(); i-- > 0; rest /= p.rows[i].extent)
      offset += rest % p.rows[i].extent * p.rows[i].stride;
    if (row % group % kPanel) return false;
    if (geometry_.convolution && inner.stride != row_elements_ && end - row > 1) return false;
    parts_.push_back({p.number, row, end - row, offset, turned ? p.cols[0].stride : inner.stride, turned});
    row = end;
  }
  return true;
}

int64_t WeightHole::position(int64_t row) const {
  const PackedShape& s = geometry_.shape;
  return (row / s.cols * s.panels() + row % s.cols / kPanel) * s.panel_bytes();
}

int64_t WeightHole::pack_scratch() const {
  return tape_ && !geometry_.winograd ? pack_scratch_bytes(row_elements_, threads_) : 0;
}

void WeightHole::pack_part(Engine& engine, const Part& part, const void* data, DType type, std::byte* dst) const {
  const PackedShape& s = geometry_.shape;
  const std::byte* from = static_cast<const std::byte*>(data) + part.offset * size_of(type);
  std::byte* to = dst + position(part.row);
  if (geometry_.winograd)
    pack_winograd(engine.pool, engine.tile, from, type, geometry_.filters(part.rows), *geometry_.winograd, dst);
  else if (geometry_.convolution)
    pack_conv(engine.pool, engine.tile, from, type, geometry_.filters(part.rows), s.type, to);
  else
    (part.turned ? pack_transposed : static_cast<PackFn*>(pack_linear))(engine.pool, engine.tile, from, type, part.ld,
                                                                        group_of(s, part.rows), to);
}

void WeightHole::pack(const TileOps& ops, Bases bases, const PanelRange& range, std::byte* dst) const {
  const PackedShape& s = geometry_.shape;
  const int64_t stride = (range.term_end - range.term) * kBlock, k0 = range.term * term_elements(DType::BF16);
  const int64_t k = std::min(range.term_end * term_elements(DType::BF16), s.k) - k0;
  for (int64_t panel = range.panel0, end = range.panel0 + range.panels; panel < end;) {
    const int64_t row = range.lane * s.cols + panel * kPanel;
    const auto part =
        std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.row <= row && row < p.row + p.rows; });
    const DType type = leaves_.leaf(part->leaf).dtype();
    const auto at = [&](int64_t element) {
      return static_cast<const std::byte*>(bases[part->leaf]) + (part->offset + element) * size_of(type);
    };
    const int64_t first = row - part->row, rows = std::min((end - panel) * kPanel, part->rows - first);
    if (part->turned) ops.pack_columns({at(k0 * part->ld + first), type, part->ld, k, rows, dst, DType::BF16, stride});
    for (int64_t r = 0; !part->turned && r < rows; r += kPanel)
      ops.pack_panel({at((first + r) * part->ld + k0), type, part->ld, k,
                      static_cast<int>(std::min<int64_t>(kPanel, rows - r)), dst + r / kPanel * stride, DType::BF16});
    panel += div_up(rows, kPanel);
    dst += div_up(rows, kPanel) * stride;
  }
}

void WeightHole::pack_rows(Engine& engine, WeightRowsFn rows, std::byte* dst, std::byte* scratch) const {
  const PackedShape& s = geometry_.shape;
  for_each(engine.pool, geometry_.batch * s.lanes, [&](int64_t g) {
    const auto shifted = [&](int64_t row0, int64_t n, float* to, int64_t ld, int thread) {
      rows(row0 + g * s.cols, n, to, ld, thread);
    };
    std::byte* to = dst + g * s.panels() * s.panel_bytes();
    if (geometry_.convolution)
      pack_conv(engine.pool, engine.tile, shifted, geometry_.filters(s.cols), s.type, to, scratch);
    else
      pack_linear(engine.pool, engine.tile, shifted, group_of(s, s.cols), to, scratch);
  });
}

// True if packing directly from the file's type gives the same as rounding to the leaf's type first.
bool WeightHole::reads_directly(const ParamView& view, const Expr& leaf) const {
  if (view.dtype == leaf.dtype()) return true;
  if (!kernels_read(view.dtype)) return false;
  return leaf.dtype() == DType::F32 || (leaf.dtype() == DType::BF16 && geometry_.shape.type == DType::BF16);
}

void WeightHole::pack(Engine& engine, const WeightMaking& with, std::byte* dst) const {
  // Memory of every leaf, in the leaf's type unless all rows are packed directly from the file.
  std::vector<const void*> bases;
  std::vector<DType> types;
  std::vector<std::shared_ptr<void>> copies;
  for (int i = 0; i < leaves_.size(); ++i) {
    const Expr& leaf = leaves_.leaf(i);
    types.push_back(leaf.dtype());
    bases.push_back(leaves_.literal(i));
    if (leaves_.literal(i)) continue;
    check_stop("weights");
    const ParamView view = with.find(leaf);
    bases.back() = view.data;
    if (tape_ ? view.dtype == leaf.dtype() : reads_directly(view, leaf)) {
      types.back() = view.dtype;
      continue;
    }
    copies.push_back(allocate_host(leaf.shape().numel() * size_of(leaf.dtype())));
    copy_weight(view, leaf.dtype(), copies.back().get(), engine.vec);
    bases.back() = copies.back().get();
  }
  pack(engine, bases.data(), types, dst);
}

void WeightHole::pack(Engine& engine, Bases bases, const std::vector<DType>& types, std::byte* dst) const {
  if (tape_ && geometry_.winograd) return pack_winograd_rows(engine, bases, dst);
  if (tape_) {
    const int64_t each = round_up(tape_->workspace_bytes(), 64);
    const std::shared_ptr<void> workspaces = allocate_host(each * threads_), scratch = allocate_host(pack_scratch());
    std::byte* first = static_cast<std::byte*>(workspaces.get());
    pack(
        engine, bases, [&](int thread) { return first + thread * each; }, dst, static_cast<std::byte*>(scratch.get()));
    return;
  }
  pack_parts(
      engine, bases, [&](int leaf) { return types[static_cast<size_t>(leaf)]; }, dst);
}

void WeightHole::pack_parts(Engine& engine, Bases bases, FunctionRef<DType(int leaf)> type, std::byte* dst) const {
  for_each(engine.pool, std::ssize(parts_), [&](int64_t i) {
    const Part& p = parts_[static_cast<size_t>(i)];
    check_stop("weights");
    pack_part(engine, p, bases[p.leaf], type(p.leaf), dst);
  });
}

// Computes rows of the packed matrix, which are whole filters in a convolution: one or many rows of the tape each.
void WeightHole::fill(int64_t row0, int64_t rows, float* to, int64_t ld, Bases bases, void* workspace) const {
  TapeCall call;
  call.block = {row0, rows, 0, tape_->cols()};
  call.bases = bases;
  call.workspace = workspace;
  call.rows = to;
  call.rows_ld = ld;
  if (tape_->cols() == row_elements_) return tape_->run(call);
  const int64_t count = row_elements_ / tape_->cols(), padded = round_up(tape_->cols(), 16);
  const std::shared_ptr<void> filter = allocate_host(count * padded * int64_t{sizeof(float)});
  call.rows = static_cast<float*>(filter.get());
  call.rows_ld = padded;
  for (int64_t r = 0; r < rows; ++r) {
    call.block = {(row0 + r) * count, count, 0, tape_->cols()};
    tape_->run(call);
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(call.rows + i * padded, tape_->cols(), to + r * ld + i * tape_->cols());
  }
}

void WeightHole::pack(Engine& engine, Bases bases, FunctionRef<void*(int thread)> workspace, std::byte* dst,
                      std::byte* scratch) const {
  if (tape_ && geometry_.winograd) return pack_winograd_rows(engine, bases, dst);
  if (!tape_)
    return pack_parts(
        engine, bases, [&](int leaf) { return leaves_.leaf(leaf).dtype(); }, dst);
  const auto filled = [&](int64_t row0, int64_t rows, float* to, int64_t ld, int thread) {
    fill(row0, rows, to, ld, bases, workspace(thread));
  };
  pack_rows(engine, filled, dst, scratch);
}

// The transform reads whole filters from memory, so computed filters are stored there first.
void WeightHole::pack_winograd_rows(Engine& engine, Bases bases, std::byte* dst) const {
  const int64_t rows = geometry_.shape.cols, ld = round_up(row_elements_, 16);
  const std::shared_ptr<void> padded = allocate_host(ld * 4), plain = allocate_host(rows * row_elements_ * 4);
  const std::shared_ptr<void> workspace = allocate_host(tape_->workspace_bytes());
  for (int64_t r = 0; r < rows; ++r) {
    float* row = static_cast<float*>(padded.get());
    fill(r, 1, row, ld, bases, workspace.get());
    std::copy_n(row, row_elements_, static_cast<float*>(plain.get()) + r * row_elements_);
  }
  pack_winograd(engine.pool, engine.tile, plain.get(), DType::F32, geometry_.filters(rows), *geometry_.winograd, dst);
}

}  // namespace tenon::cpu
