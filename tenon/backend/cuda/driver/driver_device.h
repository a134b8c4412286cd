// A GPU through NVIDIA's driver.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/driver/cupti.h"
#include "tenon/backend/cuda/driver/driver_context.h"
#include "tenon/backend/cuda/driver/kernel_compiler.h"
#include "tenon/backend/cuda/libraries/matmul_library.h"

namespace tenon::cuda {

struct DriverOptions {
  int ordinal = 0;  ///< among the GPUs that CUDA_VISIBLE_DEVICES leaves
  SearchSettings search = SearchSettings::from_environment();
  std::filesystem::path kernel_folder = KernelCache::default_folder();
  int compile_threads = 0;  ///< 0: all processors
  bool batch_invariant = false;
  bool one_order = false;
};

/// Kernels, memory and recordings may outlive the device; they keep the GPU's context open. What is recorded must not
/// be freed before its recording. After a fault in a kernel every call throws Error(Device).
class DriverDevice : public Device {
 public:
  /// Error(Device): no driver, one too old, no GPU, one we have no kernels for, no NVRTC that the driver understands.
  explicit DriverDevice(const DriverOptions& options = {});

  const DeviceFacts& facts() const override { return facts_; }
  int64_t memory_available() const override;
  std::shared_ptr<Function> load(const KernelSource& source) override;
  std::shared_ptr<Stream> make_stream() override;
  std::shared_ptr<Stream> borrow_stream(void* stream) override;
  std::shared_ptr<void> allocate(int64_t bytes) override;
  /// Pinned memory, for every context.
  std::shared_ptr<void> allocate_pinned(int64_t bytes) override;
  void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) override;
  /// Pageable memory only: the driver has copied it when this returns.
  void copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void copy(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void fill_zero(Stream& stream, void* dst, int64_t bytes) override;
  /// On a stream of its own. A launch or call that fails ends the recording.
  std::unique_ptr<Recording> record(const std::function<void(Stream& recording)>& runs) override;
  TensorMap encode(const TensorBox& box) const override;
  void call(Stream& stream, const std::string& name, const std::function<void(void* native)>& put) override;
  int count(const std::function<void(void* native)>& put) override;
  std::unique_ptr<Trace> trace() override { return trace_kernels(search_); }
  /// cuBLASLt; why there is none is told in the log, once.
  MatmulLibrary* matmul_library() override;
  /// cuDNN, likewise.
  DnnLibrary* dnn_library() override;

  const KernelCompiler& compiler() const { return compiler_; }

 private:
  std::shared_ptr<DriverContext> context_;
  KernelCompiler compiler_;
  DeviceFacts facts_;
  std::mutex mutex_;                                            ///< of all below
  std::map<std::string, std::shared_ptr<Function>> functions_;  ///< by the key of their source
  SearchSettings search_;
  std::optional<std::unique_ptr<MatmulLibrary>> matmul_library_;  ///< once it was asked for
  std::optional<std::unique_ptr<DnnLibrary>> dnn_library_;
};

}  // namespace tenon::cuda
