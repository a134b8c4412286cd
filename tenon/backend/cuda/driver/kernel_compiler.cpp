#include "tenon/backend/cuda/driver/kernel_compiler.h"

#include <algorithm>
#include <chrono>

#include "tenon/core/clock.h"
#include "tenon/core/dump.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/stop.h"

namespace tenon::cuda {

const KernelBinary& finished(const PendingKernel& pending) {
  constexpr std::chrono::milliseconds kPatience(20);
  while (pending.wait_for(kPatience) == std::future_status::timeout) check_stop("kernels");
  return pending.get();
}

KernelCompiler::KernelCompiler(std::string arch, std::filesystem::path kernel_folder, const SearchSettings& settings,
                               int newest_major, int threads)
    : arch_(std::move(arch)),
      cache_(std::move(kernel_folder)),
      nvrtc_(settings, newest_major),
      max_threads_(threads > 0 ? static_cast<size_t>(threads) : std::max(1U, std::thread::hardware_concurrency())) {}

KernelCompiler::~KernelCompiler() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (Job& job : queue_)
      job.result.set_exception(std::make_exception_ptr(
          Error(ErrorKind::Internal, "kernel " + job.source.name, "its device was destroyed before it was compiled")));
    queue_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

PendingKernel KernelCompiler::start(const KernelSource& source) {
  const std::string name = key(source);
  const std::lock_guard lock(mutex_);
  if (const auto it = started_.find(name); it != started_.end()) return it->second;
  dump("kernels/" + arch_ + "/" + source.name + "-" + name.substr(0, 8) + ".cu", source.code);
  Job job{source, name, {}};
  PendingKernel pending = job.result.get_future().share();
  queue_.push_back(std::move(job));
  if (threads_.size() < max_threads_) add_thread();
  wake_.notify_one();
  started_.emplace(name, pending);
  return pending;
}

// One thread is enough; without any, nothing would ever be compiled.
void KernelCompiler::add_thread() {
  try {
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& e) {
    TENON_CHECK(Internal, !threads_.empty(), "threads") << "cannot start a thread to compile kernels: " << e.what();
    max_threads_ = threads_.size();
  }
}

void KernelCompiler::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (ending_) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      job.result.set_value(obtain(job));
    } catch (...) {
      job.result.set_exception(std::current_exception());
    }
  }
}

KernelBinary KernelCompiler::obtain(const Job& job) {
  if (std::optional<KernelBinary> kept = cache_.find(job.key)) {
    ++found_;
    return *std::move(kept);
  }
  const auto begin = Clock::now();
  KernelBinary kernel = nvrtc_.compile(job.source, arch_);
  spdlog::debug("compiled for {} in {:.2f} s: {}", arch_, seconds_since(begin), job.source.name);
  cache_.store(job.key, kernel);
  ++compiled_;
  return kernel;
}

}  // namespace tenon::cuda
