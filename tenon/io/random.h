// Random numbers bit-identical to PyTorch's CPU generator, so that a seed gives the same picture here and there.
//
// PyTorch draws float32 normals in two ways. For 16 elements or more: one 24-bit uniform per element, then Box-Muller
// on blocks of 16 (radius from the first eight, angle from the last eight); if the count is not a multiple of 16, the
// last 16 elements are redrawn. Below 16: one at a time in double, keeping the sine for the next call. The block form
// uses polynomial approximations (Cephes) with fused multiply-adds rather than the maths library; both ways are
// reproduced here exactly. On machines without AVX2 PyTorch itself takes another path, whose values differ in the last
// bits.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace tenon {

/// The stream of `torch.Generator("cpu").manual_seed(seed)`.
class TorchGenerator {
 public:
  /// As in PyTorch, only the low 32 bits of the seed are used.
  explicit TorchGenerator(uint64_t seed);

  /// Standard normals: out is what `torch.randn(out.size(), generator=g)` gives next (float32).
  void randn(std::span<float> out);
  /// Uniforms in [0, 1): what `torch.rand(out.size(), generator=g)` gives next (float32).
  void rand(std::span<float> out);
  /// The next 32 bits of the Mersenne twister.
  uint32_t next();

 private:
  float uniform();
  double uniform_double();
  double normal_double();
  void twist();

  std::array<uint32_t, 624> state_{};
  size_t used_ = 624;            // words of state_ already used
  std::optional<double> spare_;  // second half of a double Box-Muller pair
};

/// A seed when the user asked for none (seed -1): 32 bits from the system's random device.
uint64_t draw_seed();

}  // namespace tenon
