// What gemm and branched_gemm share: a product of matrices. Tensor cores for f16, bf16 and e4m3, CUDA cores for f32.
#pragma once
#include "tenon/backend/cuda/products/product_kernel.h"

namespace tenon::cuda {

class GemmKernel : public ProductKernel {
 public:
  GemmKernel(std::shared_ptr<Device> device, const Launch& launch, Form form);

 private:
  ProductSizes plain_sizes(int) const override { return sizes_; }

  device::GemmSizes sizes_;
};

}  // namespace tenon::cuda
