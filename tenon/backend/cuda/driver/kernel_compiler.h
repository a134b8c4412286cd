// Compiles kernels in the background: a few threads with the cache in front of them; equal sources compile once.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tenon/backend/cuda/driver/kernel_cache.h"
#include "tenon/backend/cuda/driver/nvrtc.h"

namespace tenon::cuda {

using PendingKernel = std::shared_future<KernelBinary>;
/// Waits for the kernel, polling check_stop(); throws what Nvrtc::compile throws.
const KernelBinary& finished(const PendingKernel& pending);

/// Compiles for one architecture, with a cache in `kernel_folder`. Calls may come from several threads.
class KernelCompiler {
 public:
  /// `threads` 0: all processors. Throws Error(Device) if there is no NVRTC.
  KernelCompiler(std::string arch, std::filesystem::path kernel_folder, const SearchSettings& settings,
                 int newest_major = std::numeric_limits<int>::max(), int threads = 0);
  /// Waits for running compilations; queued ones are dropped, and their futures hold Error(Internal).
  ~KernelCompiler();
  KernelCompiler(const KernelCompiler&) = delete;
  KernelCompiler& operator=(const KernelCompiler&) = delete;

  /// Returns immediately. The future throws what Nvrtc::compile throws.
  PendingKernel start(const KernelSource& source);
  std::string key(const KernelSource& source) const { return kernel_key(source, arch_, nvrtc_.version()); }

  const std::string& arch() const { return arch_; }
  const Nvrtc& nvrtc() const { return nvrtc_; }
  /// Kernels so far: compiled by NVRTC, and found in the cache.
  int compiled() const { return compiled_; }
  int found() const { return found_; }

 private:
  struct Job {
    KernelSource source;
    std::string key;
    std::promise<KernelBinary> result;
  };
  void work();
  void add_thread();
  KernelBinary obtain(const Job& job);

  std::string arch_;
  KernelCache cache_;
  Nvrtc nvrtc_;
  size_t max_threads_;
  std::atomic<int> compiled_{0}, found_{0};
  std::mutex mutex_;  ///< guards everything below
  std::condition_variable wake_;
  std::map<std::string, PendingKernel> started_;
  std::deque<Job> queue_;
  bool ending_ = false;
  std::vector<std::thread> threads_;  ///< started on demand
};

}  // namespace tenon::cuda
