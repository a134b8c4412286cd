// Norms of operand A's rows, applied to the sums of products with wgmma. The weights hold the rest of the norm, so that
// the products need not wait for it: while a stage is multiplied, the warps whose results it gives reduce their rows of
// it. Lanes 4r + q read columns 16q .. 16q + 15 of every 64 in rows r and r + 8, those of their results.
#pragma once
#include "tenon/backend/cuda/device/products/wgmma_tile.h"

namespace tenon::device {

/// A layer norm before weights whose sums are zero but for rounding, which hides the rows' means. Factor::compute(p,
/// .., variance of a row) gives the row's factor, Centred::compute(p, row, col, {sums, mean}) the sums without that
/// rounding, and Elements::eval(p, row, col) operand A. For elements of 16 bits, in whole stages of K.
template <class Factor, class Centred, class Elements>
struct CentredRows {
  static constexpr bool kApplies = true;
  /// From this many standard deviations on, the rounding of weights is larger than that of normed rows, and a
  /// difference of squares loses digits.
  static constexpr float kFar = 3;

  template <class Tile, class T>
  struct Rows {
    static constexpr int kParts = Tile::kParts;
    float factors[kParts][2], means[kParts][2];
    bool far = false;  ///< the warp has a row that is far from zero
    int m = -1;        ///< the position of the tile whose rows are known

    /// Multiplies an item and applies the norm. Rows that are known already are not reduced again.
    template <int kLanes, class Params, class Problem>
    DEV void multiply(const Params& p, MmaSums<Tile>& sums, StageRing<Tile>& ring, const Problem& problem,
                      const WgmmaItem& item) {
      const int k_tiles = problem.k_tiles(item).count;
      if (item.m == m) {
        wgmma_loop<Tile, T, false, Problem::kColumnsB>(sums, ring, k_tiles, [] {});
      } else {
        Reduced reduced;
        wgmma_loop<Tile, T, false, Problem::kColumnsB>(sums, ring, k_tiles, [&] { reduced.add(ring); });
        m = item.m;
        know(p, reduced, problem, item);
      }
      if (far) centre<kLanes>(p, sums, problem.column(item), problem.columns());
      UNROLL for (int part = 0; part < kParts; ++part) UNROLL for (auto& column : sums.v[part])
          UNROLL for (int e = 0; e < 4; ++e) column[e] *= factors[part][e / 2];
    }

   private:
    /// This lane's part of its rows.
    struct Reduced {
      float sums[kParts][2][2] = {}, squares[kParts][2][2] = {};
      DEV void add(const StageRing<Tile>& ring) {
        const int r = lane() / 4, q = lane() % 4, first = first_row() + r;
        const unsigned char* stage = shared_memory() + ring.stage * Tile::kStageBytes + first * Tile::kRowBytes;
        UNROLL for (int part = 0; part < kParts; ++part) {
          Frag<T, 8> x[2][2];  // loads in flight together
          UNROLL for (int half = 0; half < 2; ++half) UNROLL for (int c = 0; c < 2; ++c) x[half][c] = load<T, 8>(
              reinterpret_cast<const T*>(stage + (part * 64 + half * 8) * Tile::kRowBytes + ((2 * q + c) ^ r) * 16));
          UNROLL for (int e = 0; e < 8; ++e) UNROLL for (int half = 0; half < 2; ++half)
              UNROLL for (int c = 0; c < 2; ++c) {
            const float v = to_float(x[half][c].v[e]);
            sums[part][half][c] += v;
            squares[part][half][c] = fused_multiply_add(v, v, squares[part][half][c]);
          }
        }
        sync_warp();  // before one lane says that the warp has read the stage
      }
    };
    template <class Params, class Problem>
    DEV void know(const Params& p, const Reduced& reduced, const Problem& problem, const WgmmaItem& item) {
      const float each = divide(1.0f, static_cast<float>(p.sizes.k));
      float variances[kParts][2];
      far = false;
      UNROLL for (int part = 0; part < kParts; ++part) UNROLL for (int half = 0; half < 2; ++half) {
        const float mean = each * over_row(reduced.sums[part][half]);
        means[part][half] = mean;
        variances[part][half] = each * over_row(reduced.squares[part][half]) - mean * mean;
        far = far || mean * mean > kFar * kFar * variances[part][half];
      }
      far = ballot(far) != 0;
      UNROLL for (int part = 0; part < kParts; ++part) UNROLL for (int half = 0; half < 2; ++half) {
        if (far) {
          const int row = problem.row_of(item, first_row() + part * 64 + half * 8 + lane() / 4);
          read_again(p, row < 0 ? problem.row_of(item, 0) : row, each, means[part][half], variances[part][half]);
        }
        const float variance = variances[part][half];
        const Frag<float, 1> given[1] = {{{variance < 0 ? 0.0f : variance}}};
        factors[part][half] = Factor::compute(p, 0, 0, given).counted.v[0];
      }
    }
    /// The warp's first row of the tile.
    DEV static int first_row() { return (warp() - 4) / 4 * (64 * kParts) + warp() % 4 * 16; }
    /// Corrects a row's mean and variance by its elements' distances from that mean.
    template <class Params>
    DEV static void read_again(const Params& p, int row, float each, float& mean, float& variance) {
      float sums[2] = {}, squares[2] = {};
      NO_UNROLL for (int col = lane() % 4 * Elements::kWidth; col < p.sizes.k; col += 4 * Elements::kWidth) {
        const auto x = Elements::eval(p, row, col);
        UNROLL for (int e = 0; e < Elements::kWidth; ++e) {
          const float apart = x.v[e] - mean;
          sums[0] += apart;
          squares[0] = fused_multiply_add(apart, apart, squares[0]);
        }
      }
      const float shift = each * over_row(sums);
      mean += shift;
      variance = each * over_row(squares) - shift * shift;
    }
    /// `columns`: per lane, of which the tile's first is `first`.
    template <int kLanes, class Params>
    DEV void centre(const Params& p, MmaSums<Tile>& sums, int first, int columns) const {
      constexpr int kWidth = Centred::kWidth, kVectors = 8 / kWidth, kFragments = Tile::kWarpN / kLanes / 8;
      UNROLL for (int l = 0; l < kLanes; ++l) UNROLL for (int j = 0; j < kFragments; j += 4)
          UNROLL for (int vector = 0; vector < kVectors; ++vector) {
        const int col = first + j * 8 + lane() % 4 * 8 + vector * kWidth;
        const int at = l * columns + (col < columns ? col : first);

        UNROLL for (int part = 0; part < kParts; ++part) UNROLL for (int half = 0; half < 2; ++half) {
          const auto value = [&](int e) -> float& {
            const int of_eight = vector * kWidth + e;
            return sums.v[part][l * kFragments + j + of_eight / 2][2 * half + of_eight % 2];
          };
          Frag<float, kWidth> given[2] = {{}, splat<kWidth>(means[part][half])};
          UNROLL for (int e = 0; e < kWidth; ++e) given[0].v[e] = value(e);
          const auto done = Centred::compute(p, 0, at, given).counted;
          UNROLL for (int e = 0; e < kWidth; ++e) value(e) = done.v[e];
        }
      }
    }
    DEV static float over_row(const float (&x)[2]) {
      float all = x[0] + x[1];
      all += shuffle_xor(all, 1);
      return all + shuffle_xor(all, 2);
    }
  };
};

}  // namespace tenon::device
