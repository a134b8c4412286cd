// What the tensor cores of a GPU do, for a whole warp at once, in f32.
#pragma once
#include "tenon/backend/cuda/device/vocabulary_host.h"

namespace tenon::cuda::test {

/// device::host::Together of LdmatrixArguments and MmaArguments, with the register layouts of the PTX manual.
void ldmatrix_together(void** arguments, int lanes);
void mma_together(void** arguments, int lanes);

/// n elements of a type as floats.
void widen(device::host::Element type, const void* from, int n, float* to);

}  // namespace tenon::cuda::test
