// Operations of a GPU's tensor cores and copy engine, for a whole warp, warpgroup or box at once, in f32.
#pragma once
#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/device/vocabulary_host.h"

namespace tenon::cuda::test {

/// device::host::Together of LdmatrixArguments and MmaArguments, with the register layouts of the PTX manual.
void ldmatrix_together(void** arguments, int lanes);
void mma_together(void** arguments, int lanes);

/// The products that a warpgroup has started and not waited for. They complete at the wait; until all products for the
/// same sums are complete, the sums' registers hold NaNs.
class WarpgroupProducts {
 public:
  void start(const device::host::WgmmaArguments (&lanes)[128]);
  void commit();
  /// `shared`: address 0 of shared memory.
  void finish(int groups_left, const unsigned char* shared);
  /// An error in a product's operands, or null: held words that changed before its wait.
  const char* fault() const { return fault_; }

 private:
  struct Sums {
    float* registers[128];
    int n = 0, pending = 0;
    std::vector<float> values;  ///< [64][n]
  };
  struct Product {
    device::host::WgmmaArguments what;
    std::shared_ptr<Sums> sums;
    const uint32_t* lanes_held[128];  ///< where the lanes hold a, and its contents at the start
    std::array<uint32_t, 4> held[128];
  };
  void multiply(const Product& product, const unsigned char* shared);
  void held_row(const Product& product, int r, float* to);
  const char* fault_ = nullptr;
  std::vector<std::shared_ptr<Sums>> in_flight_;
  std::vector<Product> open_;
  std::deque<std::vector<Product>> groups_;
};

/// The address in the descriptor of a wgmma operand; an error in the rest of a product's descriptors, or null; the
/// bytes that the product reads from b's address on.
uint32_t wgmma_address(uint64_t operand);
const char* wgmma_fault(const device::host::WgmmaArguments& product);
int wgmma_bytes_of_b(const device::host::WgmmaArguments& product);

/// Copies the box at coordinates `at` to address `dst` of shared memory, swizzled, zero outside the tensor.
void copy_box(const TensorBox& box, const int (&at)[5], unsigned char* shared, uint32_t dst);
/// The reverse: from shared memory to the tensor, only what lies inside it.
void store_box(const TensorBox& box, const int (&at)[5], const unsigned char* shared, uint32_t src, bool adds);
int box_bytes(const TensorBox& box);

/// sums[n] += a[depth] b[depth][n], as in one instruction. For e4m3 a GPU keeps about 14 bits: all addends, including
/// the sum so far, are truncated below 2^-13 of the largest one's power of two.
void add_products(device::host::Element type, const float* a, const float* b, int depth, int n, float* sums);

/// n elements of a type as floats.
void widen(device::host::Element type, const void* from, int n, float* to);

}  // namespace tenon::cuda::test
