// Streams of a GPU: of our own, or a caller's; and those that record.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "tenon/backend/cuda/driver/driver_context.h"
#include "tenon/backend/stream.h"

namespace tenon::cuda {

class DriverStream : public Stream {
 public:
  /// A stream of its own.
  explicit DriverStream(std::shared_ptr<DriverContext> context);
  /// The caller's.
  DriverStream(std::shared_ptr<DriverContext> context, StreamHandle borrowed);
  ~DriverStream() override;
  DriverStream(const DriverStream&) = delete;
  DriverStream& operator=(const DriverStream&) = delete;

  /// `stream` as one of this GPU's. Throws Error(Internal) for another.
  static DriverStream& of(Stream& stream, const DriverContext& context);

  StreamHandle handle() const { return handle_; }
  void synchronize() override;
  std::shared_ptr<const Event> mark() override;
  void wait(const Event& event) override;
  DriverStream& beside() override;

  /// Between begin and end what is put on it is recorded, and what is put beside it from the first event of the
  /// recording on that is waited for there. abandon throws away what was recorded.
  void begin_capture();
  GraphExecHandle end_capture();
  void abandon_capture() noexcept;
  /// Ends the recording, of which only the number of kernels, fills and copies is wanted.
  int count_captured();
  /// Throws Error(Internal) while it records: what `action` does would be recorded too.
  void not_capturing(const char* action) const;
  /// Launches of the recording that is under way, or was the last.
  int captured() const { return captured_; }
  /// Remembers a launch until the next wait; while launches are recorded, counts it.
  void launched(const std::string& kernel);
  /// True once after every wait for an event.
  bool takes_wait() { return std::exchange(waited_, false); }
  /// True if the launch in front let this one start before its own wait had ended; `this_does`: whether this one will.
  bool starts_behind(bool this_does) { return std::exchange(next_starts_, this_does); }

 private:
  /// The stream whose recording this one is part of, or null.
  const DriverStream* recording() const {
    const DriverStream* const main = main_ ? main_ : this;
    return main->capturing_ ? main : nullptr;
  }

  std::shared_ptr<DriverContext> context_;
  StreamHandle handle_ = nullptr;
  bool own_ = false, capturing_ = false, next_starts_ = false, waited_ = false;
  int captured_ = 0;
  std::unique_ptr<DriverStream> beside_;
  DriverStream* main_ = nullptr;  ///< that it is beside
};

}  // namespace tenon::cuda
