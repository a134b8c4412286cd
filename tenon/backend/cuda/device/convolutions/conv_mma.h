// The convolution of NHWC pixels with mma, or in f32 on the CUDA cores (implicit GEMM): ConvSizes, a product of the
// pixels in each output pixel's window, in the order [kernel_h][kernel_w][channels], with the weights. The window is
// never materialized: a row of A in shared memory is copied tap by tap from the tap's position, and is zero outside the
// image. A few channels may also be computed there: with A::kComputed, A::eval(p, pixel, channel) gives kWidth of them.
//
// grid.x = tiles of m * tiles of n with m = batch * out_height * out_width and n = outputs, grid.y = splits. Rows of A
// are the input's pixels, (image * height + y) * width + x; rows of B are the outputs, kernel_h * kernel_w * channels
// long; the epilogue's rows are the output's pixels. x_bits must suffice for x, and the others for y.
#pragma once
#include "tenon/backend/cuda/device/products/mma_tile.h"

namespace tenon::device {

template <class Operand>
concept ComputedPixels = requires {
  requires Operand::kComputed;
};

/// Copies the pixels of kRows windows, one K tile at a time. A thread has one chunk of the channels in every one
/// and advances through the taps with it.
template <class Tile, int kRows, class Operand>
struct WindowLoader {
  using T = typename Operand::T;
  using Part = CopyPart<Tile, kRows, T>;
  static constexpr int kBytes = Operand::kWidth * sizeof(T) < 16 ? Operand::kWidth * sizeof(T) : 16;
  int origin[Part::kPasses];  ///< number of the window's first pixel, which may be outside
  int corner[Part::kPasses];  ///< y << x_bits | x of that pixel, both with their signs
  typename Operand::Row rows[Part::kPasses];
  uint32_t inside = 0;  ///< bit i: the current tap of window i is inside the image
  int channel, tap_y, tap_x;

  /// Windows of the output pixels from first_pixel on, clamped to the existing `pixels`.
  template <class Params>
  DEV WindowLoader(const Params& p, int k_tile, int first_pixel, int pixels) {
    const ConvSizes& c = p.sizes;
    UNROLL for (int i = 0; i < Part::kPasses; ++i) {
      const int row = first_pixel + (Part::has(i) ? Part::first() + i * Part::kStride : 0);
      const int pixel = row < pixels ? row : pixels - 1;
      const int line = pixel / c.out_width, image = line / c.out_height;
      const int y = (line - image * c.out_height) * c.stride - c.pad_top;
      const int x = (pixel - line * c.out_width) * c.stride - c.pad_left;
      origin[i] = (image * c.height + y) * c.width + x;
      corner[i] =
          static_cast<int>(static_cast<uint32_t>(y) << c.x_bits | (static_cast<uint32_t>(x) & ((1u << c.x_bits) - 1)));
    }
    const int column = k_tile * Part::kColumns + Part::column(), tap = column / c.channels;
    channel = column - tap * c.channels;
    tap_y = tap / c.kernel_w;
    tap_x = tap - tap_y * c.kernel_w;
    aim(p);
  }

  /// Finds the current tap's pixel in every window.
  template <class Params>
  DEV void aim(const Params& p) {
    const ConvSizes& c = p.sizes;
    inside = 0;
    UNROLL for (int i = 0; i < Part::kPasses; ++i) {
      const int y = (corner[i] >> c.x_bits) + tap_y,
                x = (static_cast<int>(static_cast<uint32_t>(corner[i]) << (32 - c.x_bits)) >> (32 - c.x_bits)) + tap_x;
      const bool in = static_cast<uint32_t>(y) < static_cast<uint32_t>(c.height) &&
                      static_cast<uint32_t>(x) < static_cast<uint32_t>(c.width) && tap_y < c.kernel_h;
      rows[i] = Operand::row(p, in ? origin[i] + tap_y * c.width + tap_x : 0);
      inside |= static_cast<uint32_t>(in) << i;
    }
  }

  template <class Params>
  DEV void advance(const Params& p, int columns) {
    const ConvSizes& c = p.sizes;
    channel += columns;
    if (channel < c.channels) return;
    do {
      channel -= c.channels;
      if (++tap_x == c.kernel_w) tap_x = 0, ++tap_y;
    } while (channel >= c.channels);
    aim(p);
  }

  /// One vector of window i's current pixel.
  DEV void copy_vector(int i, uint32_t to) const {
    const int bytes = inside >> i & 1 ? kBytes : 0;
    const T* from = Operand::at(rows[i], channel);
    if constexpr (kBytes == 16)
      cp_async16(to, from, bytes);
    else if constexpr (kBytes == 8)
      cp_async8(to, from, bytes);
    else
      cp_async4(to, from, bytes);
  }
  template <class Params>
  DEV void compute(const Params& p, int i, uint32_t to) const {
    const auto x = inside >> i & 1 ? Operand::eval(p, rows[i].pixel, channel) : splat<Operand::kWidth>(0.0f);
    unsigned char* const place = shared_memory() + (to - shared_address(shared_memory()));
    store(reinterpret_cast<T*>(place), from_floats<T>(x));
  }

  template <class Params>
  DEV void copy(const Params& p, uint32_t shared) {
    const uint32_t to = shared + Part::offset();
    UNROLL for (int vector = 0; vector < 16 / kBytes; ++vector) {
      UNROLL for (int i = 0; i < Part::kPasses; ++i) {
        if (!Part::has(i)) continue;
        const uint32_t at = to + i * Part::kStride * Tile::kRowBytes + vector * kBytes;
        if constexpr (ComputedPixels<Operand>)
          compute(p, i, at);
        else
          copy_vector(i, at);
      }
      if (vector + 1 < 16 / kBytes) advance(p, kBytes / sizeof(T));
    }
    advance(p, Part::kColumns - (16 - kBytes) / sizeof(T));
  }
};

/// A block's tile: its first result, and the sizes of the product. Computed twice, before and after the sums: a few
/// divisions cost less than holding registers throughout.
template <class Tile, int kLanes>
struct ConvTile {
  using Lanes = LaneColumns<Tile, kLanes>;
  int pixels, columns, row, column;
  DEV RowSamples samples(const ConvSizes& c) const { return {c.count.inner, row / Tile::kM, Tile::kM, pixels}; }

  DEV explicit ConvTile(const ConvSizes& c)
      : pixels(anew(c.batch) * c.out_height * c.out_width), columns(anew(c.outputs) / kLanes) {
    const int tiles_m = (pixels + Tile::kM - 1) / Tile::kM, tiles_n = (columns + Lanes::kTile - 1) / Lanes::kTile;
    const TileAt tile(anew(block_x()), tiles_m, tiles_n);
    row = tile.m * Tile::kM;
    column = tile.n * Lanes::kTile;
  }
};

template <class Tile, class A, class B, class Epilogue, class Params>
DEV void conv_mma(const Params& p) {
  using T = typename A::T;
  using Place = ConvTile<Tile, Epilogue::kLanes>;
  constexpr int kColumns = Tile::kRowBytes / sizeof(T);
  const ConvSizes& c = p.sizes;
  MmaSums<Tile> sums = {};
  {
    const Place at(c);
    const int k = c.kernel_h * c.kernel_w * c.channels;
    const TileRange k_tiles((k + kColumns - 1) / kColumns, c.split.splits, block_y());
    griddep_wait();
    griddep_launch();
    WindowLoader<Tile, Tile::kM, A> a(p, k_tiles.first, at.row, at.pixels);
    RowLoader<Tile, Tile::kN, B> b(p, k, k_tiles.first, [&](int i) {
      return Place::Lanes::template source<B::kPermuted>(i, at.column, at.columns);
    });
    if constexpr (sizeof(T) == 4)
      plain_loop<Tile, false>(p, sums, a, b, k_tiles.count, 0);
    else
      mma_loop<Tile, T>(p, sums, a, b, k_tiles.count);
  }
  if (c.split.splits > 1 &&
      !mma_meet<Tile, WholeBlock>(c.split, block_x(), block_y(), sums, reinterpret_cast<uint32_t*>(shared_memory())))
    return;
  const Place at(c);
  mma_finish<Tile, Epilogue, WholeBlock>(
      p, sums, mma_place<Tile, Epilogue::kLanes>(), [&](int i) { return at.row + i < at.pixels ? at.row + i : -1; },
      at.column, at.columns, [&] { return at.samples(c); });
}

}  // namespace tenon::device
