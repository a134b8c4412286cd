// A backend that generates kernels for an H200 and runs none.
#pragma once
#include "tenon/backend/cuda/cuda_backend.h"
#include "tenon/core/error.h"

namespace tenon::target {

// The properties of an H200, without the device.
class H200 : public cuda::Device {
 public:
  /// chosen_samples: as in DeviceFacts; 0: kernels are chosen for the batch that there is.
  explicit H200(int64_t chosen_samples = 0) { facts_.chosen_samples = chosen_samples; }
  const cuda::DeviceFacts& facts() const override { return facts_; }
  int64_t memory_available() const override { return facts_.memory_bytes; }
  std::shared_ptr<cuda::Function> load(const cuda::KernelSource&) override { absent(); }
  std::shared_ptr<Stream> make_stream() override { absent(); }
  bool takes(const Stream&) const override { absent(); }
  std::shared_ptr<Stream> borrow_stream(void*) override { absent(); }
  std::shared_ptr<void> allocate(int64_t) override { absent(); }
  std::shared_ptr<void> allocate_pinned(int64_t) override { absent(); }
  void fetch(Stream&, void*, const void*, int64_t) override { absent(); }
  void copy_in(Stream&, void*, const void*, int64_t) override { absent(); }
  void copy_out(Stream&, void*, const void*, int64_t) override { absent(); }
  void copy(Stream&, void*, const void*, int64_t) override { absent(); }
  void fill_zero(Stream&, void*, int64_t) override { absent(); }
  std::unique_ptr<Replay> record(const std::function<void(Stream&)>&) override { absent(); }
  cuda::TensorMap encode(const cuda::TensorBox&) const override { absent(); }
  void call(Stream&, const std::string&, const std::function<void(void*)>&) override { absent(); }

 private:
  [[noreturn]] static void absent() { throw Error(ErrorKind::Device, "H200", "is not here"); }
  cuda::DeviceFacts facts_{.name = "NVIDIA H200",
                           .arch = "sm_90a",
                           .multiprocessors = 132,
                           .shared_bytes = 232448,
                           .memory_bytes = int64_t{1} << 37,
                           .argument_bytes = cuda::kMaxArgumentBytes};
};

inline std::shared_ptr<Backend> h200() {
  static const std::shared_ptr<Backend> backend = cuda::make_cuda_backend(std::make_shared<H200>());
  return backend;
}

}  // namespace tenon::target
