#include "tenon/backend/cpu/tile/conv_pack.h"

#include <algorithm>
#include <cstring>

#include "tenon/backend/cpu/tile/product.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kDensePixels = 64;   // output pixels per im2col buffer
constexpr int64_t kCopyElements = 16;  // elements copied at once between im2col buffers

int64_t chunk_pixels(int64_t channels) { return staging_rows(channels); }
int64_t dense_columns(const ConvShape& s) { return (kDensePixels - 1) * s.stride + s.kw; }
// Elements between im2col rows; the last run of a row may be copied beyond its end.
int64_t dense_ld(int64_t k) { return round_up(k, 16) + kCopyElements; }
int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -div_up(-a, b); }

// In whole vectors: what lies beyond n is overwritten by the next run, or not read. (memcpy of n takes longer to
// begin.)
void copy_vectors(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += kCopyElements) std::memcpy(to + i, from + i, kCopyElements * sizeof(float));
}

}  // namespace

int64_t ConvPacker::staging_floats(const ConvPlan& plan) {
  const ConvShape& s = plan.s;
  if (plan.layout != ConvLayout::Dense) return chunk_pixels(s.c) * round_up(s.c, 16);
  return kDensePixels * dense_ld(plan.w.k) + dense_columns(s) * (round_up(s.c, 16) + s.c) + kCopyElements;
}

int64_t ConvPacker::row_count() const {
  const int64_t rows = block_.y1 - block_.y0;
  return plan_.layout == ConvLayout::Dense ? rows : (rows - 1) * s_.stride + s_.kh;
}

void ConvPacker::pack_row(int64_t row) const {
  switch (plan_.layout) {
    case ConvLayout::Rows:
      return pack_run(row);
    case ConvLayout::Shifts:
      return pack_shifts(row);
    case ConvLayout::Dense:
      return pack_dense(row);
  }
}

ConvPacker::Pixels ConvPacker::pixels(int64_t y, int64_t x0, int64_t x1, float* staging) const {
  if (source_.data) {
    const int64_t pixel = (block_.n * s_.h + y) * s_.w + x0;
    return {Pixels{source_.data, source_.type, source_.ld}.at(pixel), source_.type, source_.ld};
  }
  const int64_t ld = round_up(s_.c, 16);
  source_.pixels(block_.n, y, x0, x1, staging, ld, thread_);
  return {staging, DType::F32, ld};
}

void ConvPacker::zero_lines(int64_t copy, int64_t first, int64_t count) const {
  if (count <= 0) return;
  for (int64_t t = 0; t < plan_.channel_terms; ++t)
    std::memset(line(copy, first + t * plan_.plane), 0, static_cast<size_t>(count * kLine));
}

void ConvPacker::pack_lines(const Pixels& from, int64_t ld, int64_t count, std::byte* to) const {
  ops_.pack_rows({from.data, from.type, ld, count, s_.c, to, plan_.type, kLine, plan_.plane * kLine});
}

// One packed row: pixels and the padding within it.
void ConvPacker::pack_run(int64_t row) const {
  const int64_t y = block_.y0 * s_.stride + row - s_.pad_t, left = block_.x0 * s_.stride - s_.pad_l;
  const int64_t width = (block_.x1 - block_.x0 - 1) * s_.stride + s_.kw, first = row * plan_.pitch;
  const int64_t begin = std::clamp<int64_t>(left, 0, s_.w), end = std::clamp<int64_t>(left + width, begin, s_.w);
  if (y < 0 || y >= s_.h || begin == end) return zero_lines(0, first, width);
  zero_lines(0, first, begin - left);
  zero_lines(0, first + end - left, left + width - end);
  const int64_t most = source_.data ? end - begin : chunk_pixels(s_.c);
  for (int64_t x = begin; x < end; x += most) {
    const Pixels from = pixels(y, x, std::min(end, x + most), staging_);
    pack_lines(from, from.ld, std::min(most, end - x), line(0, first + x - left));
  }
}

// Packs one input row into every copy that contains it.
void ConvPacker::pack_shifts(int64_t row) const {
  const int64_t y = block_.y0 * s_.stride + row - s_.pad_t;
  if (y < 0 || y >= s_.h) return shift_chunk(row, 0, 0, {});
  const int64_t most = source_.data ? s_.w : chunk_pixels(s_.c);
  for (int64_t x = 0; x < s_.w; x += most) {
    const int64_t end = std::min(s_.w, x + most);
    shift_chunk(row, x, end, pixels(y, x, end, staging_));
  }
}

// Pixels [x0, x1) of packed row `row`; the first chunk also writes the padding (an empty one: the whole row).
void ConvPacker::shift_chunk(int64_t row, int64_t x0, int64_t x1, const Pixels& from) const {
  const int64_t out_w = s_.out_w(), rows = block_.y1 - block_.y0;
  for (int ky = 0; ky < (s_.stride == 1 ? 1 : s_.kh); ++ky) {
    const int64_t offset = row - ky;
    const int64_t out_row = s_.stride == 1 ? row : offset / s_.stride;
    if (s_.stride != 1 && (offset < 0 || offset % s_.stride != 0 || out_row >= rows)) continue;
    for (int kx = 0; kx < s_.kw; ++kx) {
      const int64_t copy = s_.stride == 1 ? kx : int64_t{ky} * s_.kw + kx, shift = kx - s_.pad_l;
      const auto first_at = [&](int64_t x) {  // the first output column that reads an input column >= x
        return std::clamp<int64_t>(-floor_div(shift - x, s_.stride), 0, out_w);
      };
      const int64_t first = out_row * plan_.pitch, begin = first_at(x0), end = first_at(x1);
      if (x0 == x1) {
        zero_lines(copy, first, out_w);
        continue;
      }
      if (x0 == 0) zero_lines(copy, first, begin);
      if (x1 == s_.w) zero_lines(copy, first + end, out_w - end);
      if (begin >= end) continue;
      const Pixels start{from.at(begin * s_.stride + shift - x0), from.type, from.ld};
      pack_lines(start, from.ld * s_.stride, end - begin, line(copy, first + begin));
    }
  }
}

// One output row of im2col lines.
void ConvPacker::pack_dense(int64_t row) const {
  const int64_t out_w = s_.out_w(), k = plan_.w.k, ld = dense_ld(k);
  float* input = staging_ + kDensePixels * ld;
  for (int64_t x = 0; x < out_w; x += kDensePixels) {
    const int64_t count = std::min(kDensePixels, out_w - x);
    gather_dense(block_.y0 + row, x, count, staging_, input);
    std::byte* to = packed_ + (row * plan_.pitch + x) * kLine;
    ops_.pack_rows({staging_, DType::F32, ld, count, k, to, plan_.type, kLine, plan_.plane * kLine});
  }
}

// f32 rows (ky, kx, channel) of `count` output pixels from (y, x0) on. Each input row is first gathered without gaps
// between pixels and with its padding, so that all taps of one ky form a single run.
void ConvPacker::gather_dense(int64_t y, int64_t x0, int64_t count, float* rows, float* input) const {
  const int64_t ld = dense_ld(plan_.w.k), c = s_.c, left = x0 * s_.stride - s_.pad_l, taps = int64_t{s_.kw} * c;
  const int64_t width = (count - 1) * s_.stride + s_.kw;
  const int64_t begin = std::clamp<int64_t>(left, 0, s_.w), end = std::clamp<int64_t>(left + width, begin, s_.w);
  float* run = input + dense_columns(s_) * round_up(c, 16);
  for (int ky = 0; ky < s_.kh; ++ky) {
    const int64_t in_y = y * s_.stride + ky - s_.pad_t;
    if (in_y < 0 || in_y >= s_.h || begin == end) {
      std::fill_n(run, width * c, 0.0f);
    } else {
      std::fill_n(run, (begin - left) * c, 0.0f);
      std::fill_n(run + (end - left) * c, (left + width - end) * c, 0.0f);
      close_gaps(pixels(in_y, begin, end, input), end - begin, run + (begin - left) * c);
    }
    for (int64_t i = 0; i < count; ++i) copy_vectors(run + i * s_.stride * c, taps, rows + i * ld + ky * taps);
  }
}

// `count` pixels as f32, one right after the other.
void ConvPacker::close_gaps(const Pixels& from, int64_t count, float* to) const {
  if (from.ld == s_.c) return ops_.widen(from.data, from.type, to, count * s_.c);
  for (int64_t i = 0; i < count; ++i) ops_.widen(from.at(i), from.type, to + i * s_.c, s_.c);
}

}  // namespace tenon::cpu
