// A GPU as the driver shows it: its primary context, and what went wrong. Everything that was made in it (memory,
// streams, kernels, recordings) holds it, so that it outlives them.
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

/// The machine's first GPU and whether a context can be opened on it, found without opening one. Throws nothing.
Availability look_at_gpu(const SearchSettings& settings);

class DriverContext {
 public:
  /// Error(Device) if there is no such GPU or it is of an architecture that we have no kernels for.
  DriverContext(const SearchSettings& settings, int ordinal);
  ~DriverContext();
  DriverContext(const DriverContext&) = delete;
  DriverContext& operator=(const DriverContext&) = delete;

  const DriverApi& api() const { return api_; }
  const DeviceFacts& facts() const { return facts_; }
  ContextHandle handle() const { return context_; }
  /// Makes this GPU the calling thread's. Every call into the driver needs it. Throws what `check` threw if a fault
  /// made the GPU unusable before.
  void use() const;
  /// Throws Error(Device), or Error(Memory), that says which call failed. Faults of kernels come late, with whatever
  /// call is next: then the launches since the last wait are named, and the context stays unusable.
  void check(DriverResult result, const std::string& action) const;
  /// Remembers a launch until its stream was waited for.
  void launched(StreamHandle stream, const std::string& kernel);
  void waited(StreamHandle stream);
  /// Fills memory with zeros, and waits for that alone.
  void clear(DeviceAddress memory, size_t bytes);

 private:
  void read_facts(int ordinal);

  DriverApi api_;
  DeviceFacts facts_;
  int device_ = 0;
  ContextHandle context_ = nullptr;
  StreamHandle stream_ = nullptr;  ///< for filling memory
  mutable std::mutex mutex_;
  std::vector<std::pair<StreamHandle, std::string>>
      recent_;                  ///< launches not waited for, the last few of them; guarded
  mutable std::string broken_;  ///< what the fault was that made the context unusable; guarded too
};

/// A GPU's context, current for as long as this lives; then the caller's again. Threads that launch for a caller on
/// another GPU are left as they were.
class KeptContext {
 public:
  /// Throws what DriverContext::use throws.
  explicit KeptContext(const DriverContext& context) : context_(context), before_(current(context)) { context.use(); }
  /// The same where nothing may be thrown.
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
