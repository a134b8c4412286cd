// The run-time numbers of the skeletons without an anchor. Filled by the host, read by kernels: plain layouts only.
#pragma once
#include "tenon/device/index.h"

namespace tenon::device {

struct MapSizes {
  int32_t rows;
  int32_t lines;          ///< rows that all threads hold at once
  Divisor row_fragments;  ///< of a row
  /// Nobody who may still run when the predecessor has begun writes what the map (its lets) loads.
  int32_t settled, settled_lets;
};

struct RowsSizes {
  int32_t rows, cols;
};

/// A value seen as [samples, inner, channels], summed over inner.
struct GroupsSizes {
  int32_t samples, inner, channels;
  int32_t in_cluster;  ///< the blocks along inner are one cluster
  float* partials;     ///< [kinds, samples, blocks along inner, channels], of more than one that are no cluster
  uint32_t* arrived;   ///< [samples * column blocks], zero before and after
};

}  // namespace tenon::device
