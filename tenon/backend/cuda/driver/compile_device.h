// A device that only compiles: fills the cache for an architecture on a machine without a GPU, and says of every kernel
// what its machine code takes and what is wrong with it. Nothing runs; memory is address space.
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
  bool cudnn = false;  ///< also see whether cuDNN has plans for what launches could ask of it
};

/// What became of one kernel.
struct KernelReport {
  std::string name, key;
  std::string error;  ///< of the compiler; then there is nothing below
  CubinKernel kernel;
  std::string log;
  int launches = 0;                     ///< how often it was to be launched
  int shared_bytes = 0;                 ///< static, and the most dynamic that a launch asked for
  std::vector<std::string> violations;  ///< of what is expected of it (check_kernel) and of the shapes of its launches
};

/// What to expect of a kernel's machine code; the largest block it was launched with is filled in.
using ExpectKernel = std::function<KernelExpectations(const KernelSource&)>;

class CompileDevice : public Device {
 public:
  /// "sm_89" has the facts of an L4, "sm_90a" of an H200. Error(Usage) for another; Error(Device) if there is no NVRTC,
  /// or no cuDNN where it is asked for.
  explicit CompileDevice(const std::string& arch, const CompileOptions& options = {});
  ~CompileDevice() override;
  static std::vector<std::string> architectures();

  const DeviceFacts& facts() const override { return facts_; }
  int64_t memory_available() const override { return facts_.memory_bytes - *allocated_; }
  std::shared_ptr<Function> load(const KernelSource& source) override;
  /// Address space that cannot be accessed, of a device as large as the one named.
  std::shared_ptr<void> allocate(int64_t bytes) override;
  std::shared_ptr<void> allocate_pinned(int64_t bytes) override;
  void fetch(Stream&, void*, const void*, int64_t) override {}
  std::shared_ptr<Stream> make_stream() override { return std::make_shared<Stream>(); }
  std::shared_ptr<Stream> borrow_stream(void*) override { return make_stream(); }
  void copy_in(Stream&, void*, const void*, int64_t) override {}
  /// Gives zeros.
  void copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) override;
  void copy(Stream&, void*, const void*, int64_t) override {}
  void fill_zero(Stream&, void*, int64_t) override {}
  std::unique_ptr<Recording> record(const std::function<void(Stream& recording)>& runs) override;
  TensorMap encode(const TensorBox&) const override { return {}; }
  void call(Stream&, const std::string&, const std::function<void(void*)>&) override {}

  /// Waits for every kernel loaded so far; in the order of loading.
  std::vector<KernelReport> finish(const ExpectKernel& expect = {});
  void announce(const DnnProblem& problem) override {
    const std::lock_guard lock(mutex_);
    if (cudnn_) cudnn_->plan(problem);
  }

  const KernelCompiler& compiler() const { return compiler_; }
  /// Null unless asked for.
  const CudnnCheck* cudnn() const { return cudnn_.get(); }

 private:
  class Kernel;
  DeviceFacts facts_;
  KernelCompiler compiler_;
  std::unique_ptr<CudnnCheck> cudnn_;
  std::shared_ptr<std::atomic<int64_t>> allocated_ = std::make_shared<std::atomic<int64_t>>(0);
  std::mutex mutex_;  ///< of all below, and of cudnn_
  std::map<std::string, std::shared_ptr<Kernel>> by_key_;
  std::vector<std::shared_ptr<Kernel>> kernels_;
};

}  // namespace tenon::cuda
