// A GPU through the driver: its primary context, and its errors. Everything made in the context (memory, streams,
// kernels, recordings) holds a reference to this object.
#pragma once
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/backend/cuda/driver/driver_api.h"

namespace tenon::cuda {

/// The machine's first GPU and whether a context could be opened on it, found without opening one. Does not throw.
Availability look_at_gpu(const SearchSettings& settings);

class DriverContext {
 public:
  /// Throws Error(Device) if there is no such GPU, or none of our kernels run on its architecture.
  DriverContext(const SearchSettings& settings, int ordinal);
  ~DriverContext();
  DriverContext(const DriverContext&) = delete;
  DriverContext& operator=(const DriverContext&) = delete;

  const DriverApi& api() const { return api_; }
  const DeviceFacts& facts() const { return facts_; }
  ContextHandle handle() const { return context_; }
  /// Makes this GPU's context current for the calling thread, as every driver call needs. Rethrows the error of `check`
  /// if an earlier fault made the GPU unusable.
  void use() const;
  /// Throws Error(Device) or Error(Memory) that names the failed call. Kernel faults surface late, in whatever call
  /// comes next: then the message lists the kernel calls since the last wait, and the context stays unusable.
  void check(DriverResult result, const std::string& action) const;
  /// Remembers a kernel call until its stream has been waited for.
  void enqueued(StreamHandle stream, const std::string& kernel);
  void waited(StreamHandle stream);
  /// Fills memory with zeros, and waits for that only.
  void clear(DeviceAddress memory, size_t bytes);

 private:
  void read_facts(int ordinal);

  DriverApi api_;
  DeviceFacts facts_;
  int device_ = 0;
  ContextHandle context_ = nullptr;
  StreamHandle stream_ = nullptr;  ///< for zero-filling memory
  mutable std::mutex mutex_;
  std::vector<std::pair<StreamHandle, std::string>> recent_;  ///< the last few kernel calls not waited for yet; guarded
  mutable std::string broken_;                                ///< the fault that made the context unusable; guarded too
};

/// Makes a GPU's context current during its lifetime, then restores the caller's. A thread that the caller uses with
/// another GPU is left as it was.
class KeptContext {
 public:
  /// Throws what DriverContext::use throws.
  explicit KeptContext(const DriverContext& context) : context_(context), before_(current(context)) { context.use(); }
  /// The same, without throwing.
  KeptContext(const DriverContext& context, std::nothrow_t) : context_(context), before_(current(context)) {
    context_.api().set_context(context_.handle());
  }
  ~KeptContext() {
    if (before_ && before_ != context_.handle()) context_.api().set_context(before_);
  }
  KeptContext(const KeptContext&) = delete;
  KeptContext& operator=(const KeptContext&) = delete;

 private:
  static ContextHandle current(const DriverContext& context) {
    ContextHandle handle = nullptr;
    return context.api().get_context(&handle) == kSuccess ? handle : nullptr;
  }

  const DriverContext& context_;
  ContextHandle before_;
};

}  // namespace tenon::cuda
