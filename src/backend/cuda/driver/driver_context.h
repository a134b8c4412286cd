// A GPU as the driver shows it: its primary context, one stream, and what went wrong. Everything that was made in it
// (memory, kernels, recordings) holds it, so that it outlives them.
#pragma once
#include <memory>
#include <string>
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
  /// Where work goes: the stream in use; while launches are recorded, the context's own, which records.
  StreamHandle stream() const { return capturing_ ? stream_ : in_use_; }
  /// The caller's stream, or with null the context's own.
  void use_stream(StreamHandle stream) { in_use_ = stream ? stream : stream_; }

  /// Makes this GPU the calling thread's. Every call into the driver needs it. Throws what `check` threw if a fault
  /// made the GPU unusable before.
  void use() const;
  /// Throws Error(Device), or Error(Memory), that says which call failed. Faults of kernels come late, with whatever
  /// call is next: then the launches since the last wait are named, and the context stays unusable.
  void check(DriverResult result, const std::string& action) const;
  /// Remembers a launch until the next wait; while launches are recorded, counts it.
  void launched(const std::string& kernel);
  /// Waits for the stream.
  void synchronize() const;

  /// Between begin and end launches are recorded. abandon throws away what was recorded.
  void begin_capture();
  GraphExecHandle end_capture();
  void abandon_capture() noexcept;
  /// Throws Error(Internal) if launches are being recorded: what `action` does would be recorded too.
  void not_capturing(const char* action) const;
  /// Launches of the recording that is under way, or was the last.
  int captured() const { return captured_; }

 private:
  void read_facts(int ordinal);

  DriverApi api_;
  DeviceFacts facts_;
  int device_ = 0;
  ContextHandle context_ = nullptr;
  StreamHandle stream_ = nullptr, in_use_ = nullptr;  // the own one, and where work goes
  bool capturing_ = false;
  int captured_ = 0;
  mutable std::vector<std::string> recent_;  ///< launches since the last wait, the last few of them
  mutable std::string broken_;               ///< what the fault was that made the context unusable
};

}  // namespace tenon::cuda
