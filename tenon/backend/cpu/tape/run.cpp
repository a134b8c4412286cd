// Runs a tape, block by block.
#include <algorithm>

#include "tenon/backend/cpu/tape/tape.h"

namespace tenon::cpu {
namespace {

MoveArgs move_args(const Rect& r, float* slot, int64_t ld) {
  return {const_cast<void*>(r.data), r.row_step, r.col_step, r.rows, r.cols, slot, ld, 0};
}

void fill_zeros(float* slot, int64_t ld, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) std::fill_n(slot + r * ld, cols, 0.0f);
}

// Reverses the columns of each group in rows of a slot.
void turn_groups(const Rect& r, float* slot, int64_t ld) {
  for (int64_t i = 0; i < r.rows; ++i) {
    float* row = slot + i * ld;
    if (r.group == 2)
      for (int64_t c = 0; c + 1 < r.cols; c += 2) {
        const float first = row[c];
        row[c] = row[c + 1];
        row[c + 1] = first;
      }
    else
      for (int64_t c = 0; c < r.cols; c += r.group) std::reverse(row + c, row + c + r.group);
  }
}

bool covers(const Rect& r, int64_t rows, int64_t cols) { return r.rows == rows && r.cols == cols; }

}  // namespace

int64_t Tape::workspace_bytes() const {
  const int64_t ld = round_up(block_cols_, 16);
  return stream_bytes() + 4 * (full_slots_ * block_rows_ * ld + uniform_slots_ * round_up(block_rows_, 16));
}

float* Tape::slot(int value, const Frame& f) const {
  const Value& v = values_[static_cast<size_t>(value)];
  float* base = reinterpret_cast<float*>(f.slots);
  const int64_t full = block_rows_ * round_up(block_cols_, 16);
  return v.uniform ? base + full_slots_ * full + v.slot * round_up(block_rows_, 16) : base + v.slot * full;
}

Tape::Live Tape::target(int value, const Frame& f) const {
  if (!values_[static_cast<size_t>(value)].external) return {slot(value, f), round_up(f.block.cols, 16), false};
  const TapeCall& c = f.call;
  return {c.rows + (f.block.row0 - c.block.row0) * c.rows_ld + (f.block.col0 - c.block.col0), c.rows_ld, false};
}

void Tape::run(const TapeCall& call) const {
  Live* live = static_cast<Live*>(call.workspace);
  std::byte* slots =
      static_cast<std::byte*>(call.workspace) + round_up(static_cast<int64_t>(values_.size() * sizeof(Live)), 64);
  const Block& b = call.block;
  for (int64_t r = 0; r < b.rows; r += block_rows_)
    for (int64_t c = 0; c < b.cols; c += block_cols_)
      run_block({call,
                 {b.row0 + r, std::min(block_rows_, b.rows - r), b.col0 + c, std::min(block_cols_, b.cols - c)},
                 live,
                 slots});
}

void Tape::run_block(const Frame& f) const {
  for (const Instruction& in : code_) {
    const bool uniform = values_[static_cast<size_t>(in.dst)].uniform;
    switch (in.op) {
      case Op::Load:
        uniform ? load_uniform(in, f) : load(in, f);
        break;
      case Op::Constant:
        f.live[in.dst] = {const_cast<float*>(params(in)), 0, true};
        break;
      case Op::Accumulator: {
        const TapeCall& c = f.call;
        f.live[in.dst] = {c.acc[in.index] + (f.block.row0 - c.block.row0) * c.acc_ld + (f.block.col0 - c.block.col0),
                          c.acc_ld, false};
        break;
      }
      case Op::Pointwise:
      case Op::Round:
        uniform ? pointwise_uniform(in, f) : pointwise(in, f);
        break;
      case Op::Reduce:
        reduce(in, f);
        break;
      case Op::Expand:
        expand(in, f);
        break;
    }
  }
  for (const Store& s : stores_) store(s, f);
}

void Tape::load(const Instruction& in, const Frame& f) const {
  const Live to = target(in.dst, f);
  Live& live = f.live[in.dst];
  live = to;
  const Block& b = f.block;
  accesses_[static_cast<size_t>(in.index)].resolve(
      f.call.bases, b,
      [&](const Rect& rect) {
        Rect r = rect;
        const int64_t pad = r.col + r.cols == b.cols ? round_up(b.cols, 16) - b.cols : 0;
        float* slot = to.p + r.row * to.ld + r.col;
        if (!r.data) return fill_zeros(slot, to.ld, r.rows, r.cols + pad);
        if (!in.every_row && covers(r, b.rows, b.cols)) {
          if (in.in_place && r.col_step == 1 && r.group == 1 && pad == 0) {
            live = {static_cast<float*>(const_cast<void*>(r.data)), r.row_step, r.row_step == 0};
            return;
          }
          if (r.row_step == 0) {
            r.rows = 1;
            live = {to.p, 0, true};
          }
        }
        MoveArgs args = move_args(r, slot, to.ld);
        args.pad = pad;
        in.move(args);
        if (r.group > 1) turn_groups(r, slot, to.ld);
      },
      true);
}

void Tape::load_uniform(const Instruction& in, const Frame& f) const {
  float* p = slot(in.dst, f);
  Live& live = f.live[in.dst];
  live = {p, 1, false};
  const Block one_column = {f.block.row0, f.block.rows, 0, 1};
  accesses_[static_cast<size_t>(in.index)].resolve(f.call.bases, one_column, [&](const Rect& r) {
    if (!r.data) return fill_zeros(p + r.row, 0, 1, r.rows);
    // A column of the block becomes a row of the slot.
    MoveArgs args = {const_cast<void*>(r.data), 0, r.row_step, 1, r.rows, p + r.row, 0, 0};
    if (r.rows == f.block.rows && r.row_step == 0) {
      args.cols = 1;
      live = {p, 0, true};
    }
    in.move(args);
  });
}

void Tape::pointwise(const Instruction& in, const Frame& f) const {
  PointwiseArgs a;
  unsigned mask = 0;
  bool one = !in.every_row;
  for (int i = 0; i < in.operands; ++i) {
    const int x = in.src[static_cast<size_t>(i)];
    const Live& v = f.live[x];
    mask |= static_cast<unsigned>(values_[static_cast<size_t>(x)].uniform) << i;
    one = one && v.one;
    a.src[i] = v.p;
    a.src_ld[i] = v.ld;
  }
  Live to = target(in.dst, f);
  a.dst = to.p;
  a.dst_ld = to.ld;
  a.params = params(in);
  a.rows = one ? 1 : f.block.rows;
  a.cols = f.block.cols;
  (in.op == Op::Round ? in.round : in.functions[mask])(a);
  if (one) to = {to.p, 0, true};
  f.live[in.dst] = to;
}

void Tape::pointwise_uniform(const Instruction& in, const Frame& f) const {
  // The numbers of the block's rows form one row; those that are the same for all rows are uniform in it.
  PointwiseArgs a;
  unsigned mask = 0;
  bool one = true;
  for (int i = 0; i < in.operands; ++i) {
    const Live& v = f.live[in.src[static_cast<size_t>(i)]];
    mask |= static_cast<unsigned>(v.one) << i;
    one = one && v.one;
    a.src[i] = v.p;
    a.src_ld[i] = 0;
  }
  a.dst = slot(in.dst, f);
  a.dst_ld = 0;
  a.params = params(in);
  a.rows = 1;
  a.cols = one ? 1 : f.block.rows;
  if (in.op == Op::Round)
    in.round(a);
  else
    in.functions[mask](a);
  f.live[in.dst] = {a.dst, one ? 0 : 1, one};
}

void Tape::reduce(const Instruction& in, const Frame& f) const {
  const Live& v = f.live[in.src[0]];
  float* out = slot(in.dst, f);
  in.reduce({v.p, v.ld, v.one ? 1 : f.block.rows, f.block.cols, out});
  f.live[in.dst] = {out, v.one ? 0 : 1, v.one};
}

void Tape::expand(const Instruction& in, const Frame& f) const {
  const Live& v = f.live[in.src[0]];
  Live to = target(in.dst, f);
  const bool one = v.one && !in.every_row;
  PointwiseArgs a{};
  a.dst = to.p;
  a.dst_ld = to.ld;
  a.src[0] = v.p;
  a.src_ld[0] = v.ld;
  a.rows = one ? 1 : f.block.rows;
  a.cols = f.block.cols;
  ops_->expand(a);
  f.live[in.dst] = one ? Live{to.p, 0, true} : to;
}

void Tape::store(const Store& s, const Frame& f) const {
  const Live& v = f.live[s.value];
  const Access& place = accesses_[static_cast<size_t>(s.place)];
  if (!values_[static_cast<size_t>(s.value)].uniform)
    return place.resolve(f.call.bases, f.block,
                         [&](const Rect& r) { s.move(move_args(r, v.p + r.row * v.ld + r.col, v.ld)); });
  // Row values: a row of the slot goes to a column of memory, or a single number fills the column.
  const Block one_column = {f.block.row0, f.block.rows, 0, 1};
  place.resolve(f.call.bases, one_column, [&](const Rect& r) {
    const bool one = v.ld == 0;
    s.move({const_cast<void*>(r.data), r.row_step, one ? 1 : r.row_step, one ? r.rows : 1, one ? 1 : r.rows,
            one ? v.p : v.p + r.row, 0, 0});
  });
}

}  // namespace tenon::cpu
