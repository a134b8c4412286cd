#include "tenon/backend/cuda/cuda_backend.h"

#include "tenon/backend/cuda/launch_kernel.h"

namespace tenon::cuda {
namespace {

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::string_view name() const override { return "cuda"; }
  std::string describe() const override {
    const DeviceFacts& f = device_->facts();
    return "cuda, " + f.name + ", " + f.arch + ", " + std::to_string(f.multiprocessors) + " multiprocessors";
  }
  int64_t memory_available() const override { return device_->memory_available(); }
  bool prefers_bf16() const override { return true; }
  LaunchMemory memory_of(const Launch& launch) const override { return make_kernel(device_, launch)->memory(); }
  std::shared_ptr<void> allocate(int64_t bytes) override { return device_->allocate(bytes); }
  std::unique_ptr<Kernel> prepare(const Launch& launch, const BufferTable& buffers,
                                  const WeightSource& weights) override {
    std::unique_ptr<LaunchKernel> kernel = make_kernel(device_, launch);
    kernel->bind(buffers, weights);
    return kernel;
  }
  void copy_in(void* dst, const void* src, int64_t bytes) override { device_->copy_in(dst, src, bytes); }
  void copy_out(void* dst, const void* src, int64_t bytes) override { device_->copy_out(dst, src, bytes); }
  void synchronize() override { device_->synchronize(); }

 private:
  std::shared_ptr<Device> device_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<Device> device) {
  return std::make_unique<CudaBackend>(std::move(device));
}

}  // namespace tenon::cuda
