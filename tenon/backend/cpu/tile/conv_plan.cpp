#include "tenon/backend/cpu/tile/conv_plan.h"

#include <algorithm>

#include "tenon/backend/cpu/tile/product.h"
#include "tenon/core/error.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kMaxTogether = 48 << 20;  // most bytes of packed images in memory at once

ConvLayout pick_layout(const ConvShape& s, const PackedShape& w) {
  if (w.taps == 1 && s.kh * s.kw > 1) return ConvLayout::Dense;
  const int64_t width = s.out_w();
  // Rows needs runs that fill tiles of 16 pixels well, and a stride that the kernels support.
  const bool runs = width >= 32 && width * 100 >= 85 * round_up(width, 16);
  return runs && s.stride <= 2 && s.kh * s.kw > 1 ? ConvLayout::Rows : ConvLayout::Shifts;
}

int64_t in_extent(int64_t out, int stride, int kernel) { return (out - 1) * stride + kernel; }

// Lines of a block of rows x cols output pixels.
int64_t lines_of(const ConvPlan& p, int64_t rows, int64_t cols) {
  const ConvShape& s = p.s;
  if (p.layout == ConvLayout::Rows)
    return in_extent(rows, s.stride, s.kh) * in_extent(cols, s.stride, s.kw) * p.channel_terms;
  if (p.layout == ConvLayout::Dense) return rows * cols * p.w.terms();
  return p.copies() * p.channel_terms * cols * (s.stride == 1 ? in_extent(rows, 1, s.kh) : rows);
}

// The block shape that fits `lines` and packs the least of the image twice.
void pick_block(ConvPlan& p, int64_t lines) {
  const int64_t out_h = p.s.out_h(), out_w = p.s.out_w();
  double best = 0;
  for (int64_t cols = out_w;; cols = round_up(div_up(cols, 2), 16)) {
    int64_t rows = 1;
    while (rows < out_h && lines_of(p, rows + 1, cols) <= lines) ++rows;
    const double packed = static_cast<double>(lines_of(p, rows, cols)) / static_cast<double>(rows * cols);
    const bool fits = lines_of(p, rows, cols) <= lines;
    if (best == 0 || !fits || packed < best) {  // narrower until one fits, then the best
      best = fits ? packed : 0;
      p.rows = rows;
      p.cols = cols;
    }
    if (p.layout != ConvLayout::Rows || cols <= kMaxTileRows) break;
  }
  p.row_blocks = div_up(out_h, p.rows);
  p.col_blocks = div_up(out_w, p.cols);
}

// Enough blocks for all threads to finish together.
void balance(ConvPlan& p, int threads) {
  while (p.blocks() < int64_t{4} * threads && p.blocks() % threads != 0 && p.row_blocks < p.s.out_h()) ++p.row_blocks;
  p.rows = div_up(p.s.out_h(), p.row_blocks);
  p.row_blocks = div_up(p.s.out_h(), p.rows);
}

}  // namespace

int64_t ConvPlan::copies() const {
  if (layout != ConvLayout::Shifts) return 1;
  return s.stride == 1 ? s.kw : int64_t{s.kw} * s.kh;
}

ConvPlan::ConvPlan(const ConvShape& shape, DType t, int threads)
    : s(shape), type(t), layout(ConvLayout::Rows), w(conv_shape(t, shape.filters())) {
  TENON_CHECK(Internal, s.n > 0 && s.c > 0 && s.o > 0 && s.stride > 0 && s.out_h() > 0 && s.out_w() > 0, "conv2d")
      << "nothing to compute: input [" << s.n << "," << s.h << "," << s.w << "," << s.c << "]";
  layout = pick_layout(s, w);
  channel_terms = div_up(s.c, term_elements(type));
  pick_block(*this, l2_bytes() / 2 / kLine);
  balance(*this, threads);
  // Traffic beyond the L2 cache: each block reads all weights; together, each column group reads all images.
  const int64_t whole = lines_of(*this, s.out_h(), s.out_w()) * s.n * kLine;
  const int64_t by_blocks = blocks() * w.bytes(), by_columns = column_groups(w) * whole + w.bytes();
  together = whole <= kMaxTogether && (by_columns < by_blocks || blocks() < threads);
  if (together) {
    rows = s.out_h();
    cols = s.out_w();
    row_blocks = col_blocks = 1;
  }
  const bool by_rows = layout == ConvLayout::Rows;
  pitch = by_rows ? in_extent(cols, s.stride, s.kw) : s.out_w();
  plane = pitch * (by_rows                                         ? in_extent(rows, s.stride, s.kh)
                   : layout == ConvLayout::Shifts && s.stride == 1 ? in_extent(rows, 1, s.kh)
                                                                   : rows);
}

void ConvPlan::fill_offsets(int64_t* a_off) const {
  if (layout == ConvLayout::Dense) {
    for (int64_t t = 0; t < w.terms(); ++t) a_off[t] = t * plane * kLine;
    return;
  }
  for (int64_t t = 0; t < channel_terms; ++t)
    for (int ky = 0; ky < s.kh; ++ky)
      for (int kx = 0; kx < s.kw; ++kx) {
        int64_t first = ky * pitch + kx, copy = 0;  // Rows
        if (layout == ConvLayout::Shifts) {
          copy = s.stride == 1 ? kx : int64_t{ky} * s.kw + kx;
          first = s.stride == 1 ? ky * pitch : 0;
        }
        *a_off++ = ((copy * channel_terms + t) * plane + first) * kLine;
      }
}

}  // namespace tenon::cpu
