// A device that only compiles: fills the cache for an architecture on a machine without a GPU, and reports for every
// kernel the resources that its machine code uses and what is wrong with it. Nothing runs; its memory is reserved
// address space.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/driver/cubin.h"
#include "tenon/backend/cuda/driver/kernel_compiler.h"
#include "tenon/backend/cuda/libraries/cudnn_check.h"

namespace tenon::cuda {

struct CompileOptions {
  SearchSettings search = SearchSettings::from_environment();
  std::filesystem::path kernel_folder = KernelCache::default_folder();
  int threads = 0;  ///< 0: all processors
  bool batch_invariant = false;
  bool one_order = false;
  bool cudnn = false;  ///< also check whether cuDNN has plans for the launches' problems
};

/// The outcome for one kernel.
struct KernelReport {
  std::string name, key;
  std::string error;  ///< from the compiler; if set, the fields below are empty
  CubinKernel kernel;
  std::string log;
  int calls = 0;                        ///< how often it would have been called
  int shared_bytes = 0;                 ///< static, plus the most dynamic that a call requested
  std::vector<std::string> violations;  ///< of expectations (check_kernel) and of its calls' shapes
};

/// What to expect of a kernel's machine code; the largest block size called is filled in.
using ExpectKernel = std::function<KernelExpectations(const KernelSource&)>;

class CompileDevice : public Device {
 public:
  /// "sm_89" has the facts of an L4, "sm_90a" those of an H200. Throws Error(Usage) for any other; Error(Device)
  /// without NVRTC, or without cuDNN if that is requested.
  explicit CompileDevice(const std::string& arch, const CompileOptions& options = {});
  ~CompileDevice() override;
  static std::vector<std::string> architectures();

  const DeviceFacts& facts() const override { return facts_; }
  int64_t memory_available() const override { return facts_.memory_bytes - *allocated_; }
  std::shared_ptr<Function> load(const KernelSource& source) override;
  /// Inaccessible address space, of a device with the named GPU's memory size.
  std::shared_ptr<void> allocate(int64_t bytes) override;
  std::shared_ptr<void> allocate_pinned(int64_t bytes) override;
  void fetch(Stream&, void*, const void*, int64_t) override {}
  std::shared_ptr<Stream> make_stream() override { return std::make_shared<Stream>(); }
  bool takes(const Stream&) const override { return true; }
  std::shared_ptr<Stream> borrow_stream(void*) override { return make_stream(); }
  void copy_in(Stream&, void*, const void*, int64_t) override {}
  /// Returns zeros.
  void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void copy(Stream&, void*, const void*, int64_t) override {}
  void fill_zero(Stream&, void*, int64_t) override {}
  std::unique_ptr<Replay> record(const std::function<void(Stream& recording)>& runs) override;
  TensorMap encode(const TensorBox&) const override { return {}; }
  void call(Stream&, const std::string&, const std::function<void(void*)>&) override {}

  /// Waits for every kernel loaded so far; reports are in the order of loading.
  std::vector<KernelReport> finish(const ExpectKernel& expect = {});
  void announce(const DnnProblem& problem) override {
    const std::lock_guard lock(mutex_);
    if (cudnn_) cudnn_->plan(problem);
  }

  const KernelCompiler& compiler() const { return compiler_; }
  /// Null unless requested.
  const CudnnCheck* cudnn() const { return cudnn_.get(); }

 private:
  class Kernel;
  DeviceFacts facts_;
  KernelCompiler compiler_;
  std::unique_ptr<CudnnCheck> cudnn_;
  std::shared_ptr<std::atomic<int64_t>> allocated_ = std::make_shared<std::atomic<int64_t>>(0);
  std::mutex mutex_;  ///< guards everything below, and cudnn_
  std::map<std::string, std::shared_ptr<Kernel>> by_key_;
  std::vector<std::shared_ptr<Kernel>> kernels_;
};

}  // namespace tenon::cuda
