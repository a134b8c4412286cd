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
  int ordinal = 0;  ///< among the GPUs that CUDA_VISIBLE_DEVICES exposes
  SearchSettings search = SearchSettings::from_environment();
  std::filesystem::path kernel_folder = KernelCache::default_folder();
  int compile_threads = 0;  ///< 0: all processors
  bool batch_invariant = false;
  bool one_order = false;
};

/// Kernels, memory and recordings may outlive the device; they keep the GPU's context open. Memory used in a recording
/// must not be freed before the recording. After a kernel fault every call throws Error(Device).
class DriverDevice : public Device {
 public:
  /// Throws Error(Device): no driver, driver too old, no GPU, unsupported GPU, or no NVRTC that fits the driver.
  explicit DriverDevice(const DriverOptions& options = {});

  const DeviceFacts& facts() const override { return facts_; }
  int64_t memory_available() const override;
  std::shared_ptr<Function> load(const KernelSource& source) override;
  std::shared_ptr<Stream> make_stream() override;
  bool takes(const Stream& stream) const override;
  std::shared_ptr<Stream> borrow_stream(void* stream) override;
  std::shared_ptr<void> allocate(int64_t bytes) override;
  /// Page-locked memory, usable in every context.
  std::shared_ptr<void> allocate_pinned(int64_t bytes) override;
  void fetch(Stream& stream, void* dst, const void* host, int64_t bytes) override;
  void copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void copy(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void fill_zero(Stream& stream, void* dst, int64_t bytes) override;
  /// Records on a separate stream. A call that fails ends the recording.
  std::unique_ptr<Replay> record(const std::function<void(Stream& recording)>& runs) override;
  TensorMap encode(const TensorBox& box) const override;
  void call(Stream& stream, const std::string& name, const std::function<void(void* native)>& put) override;
  int count(const std::function<void(void* native)>& put) override;
  std::unique_ptr<Trace> trace() override { return trace_kernels(search_); }
  /// cuBLASLt; if there is none, the reason is logged once.
  MatmulLibrary* matmul_library() override;
  /// cuDNN, likewise.
  DnnLibrary* dnn_library() override;

  const KernelCompiler& compiler() const { return compiler_; }

 private:
  std::shared_ptr<DriverContext> context_;
  KernelCompiler compiler_;
  DeviceFacts facts_;
  std::mutex mutex_;                                            ///< guards everything below
  std::map<std::string, std::shared_ptr<Function>> functions_;  ///< by the key of their source
  SearchSettings search_;
  std::optional<std::unique_ptr<MatmulLibrary>> matmul_library_;  ///< set on first use
  std::optional<std::unique_ptr<DnnLibrary>> dnn_library_;
};

}  // namespace tenon::cuda
