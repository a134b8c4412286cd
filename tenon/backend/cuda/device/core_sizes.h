// What the tensor-core kernels are told at run time. Both the host's code and kernels' text include this file.
#pragma once

namespace tenon::device {

/// How a product's K is cut among blocks, and where the pieces meet. Every block of a tile adds its part to
/// `workspace`; the last to come sums them in the order of K, so that results do not depend on who was last.
struct SplitK {
  int splits = 1;                ///< blocks a tile; no more than there are steps of K
  float* workspace = nullptr;    ///< splits * tile_m * tile_n floats a tile; unused with one split
  unsigned* counters = nullptr;  ///< one a tile, zero before and after; unused with one split
};

/// Where tiles leave the moments over a sample's rows of what they store (mma_counts.h), for device/count_sums.h to
/// join. Unused where nothing is counted, or a sample has one tile.
struct CountSizes {
  int inner = 0;              ///< rows of a sample
  int slots = 0;              ///< tiles of a sample, at most
  float* partials = nullptr;  ///< [samples][2][slots][columns]: means, m2
  float* rows = nullptr;      ///< [samples][slots]: how many they are of
};

/// Joins the partial moments of CountSizes.
struct CountSumsSizes {
  int columns, slots;
  int inner, tile_rows;  ///< rows of a sample and of a tile where tiles straddle samples, else tile_rows is 0
  float* partials;
  float* rows;
};

/// Most ranges of K (GemmSizes).
inline constexpr int kSumRanges = 16;

/// y[b, m, n] = sum over k of A[b, m, k] B[b, n, k]. Row b * m + i of A, b * n + j of B.
struct GemmSizes {
  int m = 0, n = 0, k = 0, batch = 1;
  /// Columns of K whose products are added up by themselves, in their order; sums of two ranges kSumRanges / 2 apart
  /// are added, and these in their order. For gemm_skinny, and gemm_wgmma where it adds as that does.
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
  int box_width = 0, box_height = 0, box_images = 0;  ///< output pixels of a tile; for conv_wgmma
  /// 2: the input is seen at twice its size and convolved by 3 x 3, padded by 1. For conv_wgmma, which computes the
  /// four pixels that each input pixel becomes as four convolutions by 2 x 2: out_height x out_width and the tiles'
  /// boxes are of input pixels, weights are [4][outputs][2][2][channels].
  int phases = 1;
  SplitK split = {};
  CountSizes count = {};
};

/// softmax(scale q k^T) v for each head; row (b * heads + h) * queries + i of q, (b * kv_heads + h / (heads /
/// kv_heads))
/// * keys + j of k and v.
struct AttentionSizes {
  int batch = 1, heads = 1, kv_heads = 1, queries = 0, keys = 0, depth = 0;
  float scale = 1;
  int causal = 0;     ///< query i sees keys j <= i + keys - queries
  SplitK split = {};  ///< of the keys; for attention_deep
  int capacity = 0;   ///< rows from a head of k and v to the next, where `keys` is what there is of them; 0: keys
};

}  // namespace tenon::device
