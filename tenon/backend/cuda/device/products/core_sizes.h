// Run-time sizes of the tensor-core kernels. Included by both host code and kernel source.
#pragma once

namespace tenon::device {

/// Split-K: how a product's K is divided among blocks, and where partial sums go. Every block of a tile stores its part
/// in `workspace`; the last block to arrive sums the parts in the order of K, so that results do not depend on which
/// block is last.
struct SplitK {
  int splits = 1;                ///< blocks per tile; at most the number of K tiles
  float* workspace = nullptr;    ///< splits * tile_m * tile_n floats per tile; unused with one split
  unsigned* counters = nullptr;  ///< one per tile, zero before and after; unused with one split
};

/// Where tiles store the moments, over a sample's rows, of their results (mma_counts.h), to be combined by
/// device/products/count_sums.h. Unused if nothing is counted, or if a sample has one tile.
struct CountSizes {
  int inner = 0;              ///< rows per sample
  int slots = 0;              ///< most tiles per sample
  float* partials = nullptr;  ///< [samples][2][slots][columns]: means, m2
  float* rows = nullptr;      ///< [samples][slots]: rows in each partial
};

/// Combines the partial moments of CountSizes.
struct CountSumsSizes {
  int columns, slots;
  int inner, tile_rows;  ///< rows per sample and per tile if tiles straddle samples; else tile_rows is 0
  float* partials;
  float* rows;
};

/// Most ranges of K (GemmSizes).
inline constexpr int kSumRanges = 16;

/// y[b, m, n] = sum over k of A[b, m, k] B[b, n, k]. Row b * m + i of A, b * n + j of B.
struct GemmSizes {
  int m = 0, n = 0, k = 0, batch = 1;
  /// Columns of K per range, whose products are summed separately and in order. Sums of two ranges kSumRanges / 2 apart
  /// are added, and these pairs in order. For gemm_skinny, and for gemm_wgmma where it must match it. In f32, for all
  /// products: sums of ranges are added in order.
  int range = 0;
  SplitK split = {};
  CountSizes count = {};
};

/// A convolution of [batch, height, width, channels] pixels with [outputs][kernel_h][kernel_w][channels] weights, zero
/// outside the image: output pixel (y, x) reads rows y * stride - pad_top + i, i < kernel_h, and columns likewise.
struct ConvSizes {
  int batch = 1, height = 0, width = 0, channels = 0;
  int out_height = 0, out_width = 0, outputs = 0;
  int kernel_h = 1, kernel_w = 1, stride = 1, pad_top = 0, pad_left = 0;
  int box_width = 0, box_height = 0, box_images = 0;  ///< output pixels per tile; for conv_wgmma
  /// 2: the input is upsampled to twice its size and convolved by 3 x 3 with padding 1. For conv_wgmma, which computes
  /// the four output pixels of each input pixel as four 2 x 2 convolutions: out_height x out_width and the tiles' boxes
  /// count input pixels, weights are [4][outputs][2][2][channels].
  int phases = 1;
  int x_bits = 16;  ///< for conv_mma: how many of 32 bits hold the x of a window's first pixel, with its sign
  SplitK split = {};
  CountSizes count = {};
};

/// softmax(scale q k^T) v for each head; row (b * heads + h) * queries + i of q, (b * kv_heads + h / (heads /
/// kv_heads)) * keys + j of k and v.
struct AttentionSizes {
  int batch = 1, heads = 1, kv_heads = 1, queries = 0, keys = 0, depth = 0;
  float scale = 1;
  int causal = 0;     ///< query i sees keys j <= i + keys - queries
  SplitK split = {};  ///< of the keys (split-KV); for attention_deep
  int capacity = 0;   ///< rows between heads of k and v, if more than `keys`; 0: keys
};

}  // namespace tenon::device
