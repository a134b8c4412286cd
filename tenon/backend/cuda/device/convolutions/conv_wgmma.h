// The convolution of NHWC pixels with wgmma (implicit GEMM): ConvSizes, persistent blocks.
//
// A tile's rows are a box of output pixels, box_width x box_height x box_images, at most kM. For each tap and each 128
// bytes of channels TMA loads the box of input pixels under that tap: the same box, shifted, zero outside the image.
// That costs no address arithmetic and no registers; the drawback is that boxes do not fill tiles if images are small
// or have odd sizes. With stride 2 the input is viewed as [image][y / 2][y % 2][x / 2][x % 2 * channels + channel], in
// which the pixels under a tap are a box again. An upsampled input (ConvSizes::phases) is read at its original size:
// the taps of an output row, even or odd, cover two input rows, and likewise for columns. conv_mma handles other
// resizing views and strides.
//
// grid.x = min(kResident * multiprocessors, boxes * tiles of n * splits); WgmmaTile::kThreads, kSharedBytes; tensor
// maps as in core_call.h's pixels_box and taps_box; operands as in gemm_wgmma.h, where A's column is the channel.
#pragma once
#include "tenon/backend/cuda/device/products/wgmma_tile.h"

namespace tenon::device {

template <class Tile, class A, class B, class Epilogue, class Params>
struct ConvProblem {
  using Norm = NoNorm;
  static constexpr int kColumns = Tile::kRowBytes / sizeof(typename A::T);
  static constexpr bool kConstantB = B::kConstant, kColumnsA = false, kColumnsB = false, kBranches = false;
  using Lanes = LaneColumns<Tile, Epilogue::kLanes>;
  const Params& p;
  int boxes_x, boxes_y, tiles_m;
  int phase_tiles, tiles_n;  ///< along columns: of one phase, in all
  int chunks;                ///< K tiles per tap

  DEV explicit ConvProblem(const Params& params) : p(params) {
    const ConvSizes& c = p.sizes;
    boxes_x = (c.out_width + c.box_width - 1) / c.box_width;
    boxes_y = (c.out_height + c.box_height - 1) / c.box_height;
    tiles_m = wgmma_tiles_m<Tile>(boxes_x * boxes_y * ((c.batch + c.box_images - 1) / c.box_images));
    phase_tiles = (columns() + Lanes::kTile - 1) / Lanes::kTile;
    tiles_n = phase_tiles * c.phases * c.phases;
    chunks = (c.channels + kColumns - 1) / kColumns;
  }

  struct Item : WgmmaItem {
    int x, y, image;       ///< the box's first output pixel
    int phase_x, phase_y;  ///< which of the output pixels of an input pixel
    int column;            ///< within the phase
  };
  DEV int items() const { return wgmma_items<Tile>(tiles_m, tiles_n, 1, p.sizes.split.splits); }
  DEV Item item(int index) const {
    const WgmmaItem at = wgmma_item<Tile>(index, tiles_m, tiles_n, p.sizes.split.splits);
    const int line = at.m / boxes_x, layer = line / boxes_y;
    const int phase = p.sizes.phases > 1 ? at.n / phase_tiles : 0;
    return {at,
            (at.m - line * boxes_x) * p.sizes.box_width,
            (line - layer * boxes_y) * p.sizes.box_height,
            layer * p.sizes.box_images,
            phase % 2,
            phase / 2,
            (at.n - phase * phase_tiles) * Lanes::kTile};
  }
  DEV TileRange k_tiles(const Item& item) const {
    return {p.sizes.kernel_h * p.sizes.kernel_w * chunks, item.parts, item.part};
  }
  DEV int box_pixels() const { return p.sizes.box_width * p.sizes.box_height * p.sizes.box_images; }
  DEV int stage_bytes() const { return (box_pixels() + Tile::kN) * Tile::kRowBytes; }
  DEV int columns() const { return p.sizes.outputs / Epilogue::kLanes; }
  DEV int column(const Item& item) const { return item.column; }
  DEV int row_of(const Item& item, int i) const {
    const ConvSizes& c = p.sizes;
    const int line = i / c.box_width, layer = line / c.box_height;
    const int x = item.x + i - line * c.box_width, y = item.y + line - layer * c.box_height, image = item.image + layer;
    const bool inside = x < c.out_width && y < c.out_height && image < c.batch && layer < c.box_images;
    const int out_y = y * c.phases + item.phase_y, out_x = x * c.phases + item.phase_x;
    return inside ? (image * (c.out_height * c.phases) + out_y) * (c.out_width * c.phases) + out_x : -1;
  }
  DEV BoxSamples samples(const Item& item) const {
    const ConvSizes& c = p.sizes;
    const int boxes = boxes_x * boxes_y, phase = item.phase_y * c.phases + item.phase_x;
    return {c.box_width * c.box_height, c.box_images, item.image, c.batch, item.m % boxes + phase * boxes,
            boxes * c.phases * c.phases};
  }
  DEV void load_a(const Item& item, int k_tile, uint32_t a, uint32_t full) const {
    const ConvSizes& c = p.sizes;
    const int tap = k_tile / chunks, channel = (k_tile - tap * chunks) * kColumns, tap_y = tap / c.kernel_w;
    const int up = tap_y - c.pad_top + item.phase_y, left = tap - tap_y * c.kernel_w - c.pad_left + item.phase_x;
    const TmaSource from = A::source(p, channel);
    if (c.stride == 1)
      tma_load(a, from.map, full, from.column, item.x + left, item.y + up, item.image);
    else
      tma_load(a, from.map, full, from.column + (left & 1) * c.channels, item.x + (left >> 1), up & 1,
               item.y + (up >> 1), item.image);
  }
  DEV void load_b(const Item& item, int k_tile, uint32_t b, uint32_t full) const {
    const int tap = k_tile / chunks, first = (item.phase_y * 2 + item.phase_x) * p.sizes.outputs + item.column;
    const TmaSource from = B::source(p, (k_tile - tap * chunks) * kColumns);
    load_rows_of_b<Tile, Epilogue::kLanes, B::kPermuted>(b, first, columns(), [&](uint32_t dst, int row) {
      load_box_of_b<Tile, B::kPermuted>(dst, from.map, full, row, from.column, tap);
    });
  }
};

template <class Tile, class A, class B, class Epilogue, class Params>
DEV void conv_wgmma(const Params& p) {
  wgmma_run<Tile, typename A::T, Epilogue>(p, ConvProblem<Tile, A, B, Epilogue, Params>(p));
}

}  // namespace tenon::device
