#include "tenon/backend/cuda/cuda_backend.h"

#include "tenon/backend/cuda/launches/launch_kernel.h"
#include "tenon/backend/cuda/launches/operands.h"

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
  std::vector<DType> types() const override { return {DType::BF16, DType::F16, DType::F32}; }
  Target target() const override { return target_of(device_); }
  std::shared_ptr<void> allocate(int64_t bytes) override { return device_->allocate(bytes); }
  bool offloads() const override { return true; }
  std::shared_ptr<void> allocate_pinned(int64_t bytes) override { return device_->allocate_pinned(bytes); }
  void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) override {
    device_->fetch(stream, dst, host, bytes);
  }
  std::unique_ptr<Kernel> make_kernel(const Launch& launch) override { return LaunchBodies::make(device_, launch); }
  std::unique_ptr<ListKernel> prepare_list(const Launch& launch) override { return make_list_kernel(device_, launch); }
  bool records() const override { return true; }
  std::unique_ptr<Trace> trace() override { return device_->trace(); }
  std::unique_ptr<Replay> record(const std::function<void(Stream&)>& runs) override { return device_->record(runs); }
  std::shared_ptr<Stream> make_stream() override { return device_->make_stream(); }
  bool takes(const Stream& stream) const override { return device_->takes(stream); }
  std::shared_ptr<Stream> borrow_stream(void* native) override { return device_->borrow_stream(native); }
  void copy(Stream& stream, void* dst, const void* src, int64_t bytes) override {
    device_->copy(stream, dst, src, bytes);
  }
  void copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) override {
    device_->copy_in(stream, dst, src, bytes);
  }
  void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) override {
    device_->copy_out(stream, dst, src, bytes);
  }

 private:
  std::shared_ptr<Device> device_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<Device> device) {
  return std::make_unique<CudaBackend>(std::move(device));
}

}  // namespace tenon::cuda
