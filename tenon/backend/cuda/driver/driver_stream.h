// Streams of a GPU: our own or a caller's, including those that record.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "tenon/backend/cuda/driver/driver_context.h"
#include "tenon/backend/stream.h"

namespace tenon::cuda {

class DriverStream : public Stream {
 public:
  /// Creates a stream.
  explicit DriverStream(std::shared_ptr<DriverContext> context);
  /// Wraps the caller's stream.
  DriverStream(std::shared_ptr<DriverContext> context, StreamHandle borrowed);
  ~DriverStream() override;
  DriverStream(const DriverStream&) = delete;
  DriverStream& operator=(const DriverStream&) = delete;

  static bool is_of(const Stream& stream, const DriverContext& context);
  /// `stream` as a stream of this GPU. Throws Error(Internal) if it is not one.
  static DriverStream& of(Stream& stream, const DriverContext& context);

  StreamHandle handle() const { return handle_; }
  void synchronize() override;
  std::shared_ptr<const Event> mark() override;
  void wait(const Event& event) override;
  DriverStream& beside() override;

  /// Work enqueued between begin and end is captured. Work on the side stream is captured too, once that stream
  /// has waited for an event of the recording. abandon discards what was captured.
  void begin_capture();
  GraphExecHandle end_capture();
  void abandon_capture() noexcept;
  /// Ends the capture, of which only the number of kernels, fills and copies is needed.
  int count_captured();
  /// Throws Error(Internal) while capturing: what `action` does would be captured too.
  void not_capturing(const char* action) const;
  /// Kernel calls in the current or last capture.
  int captured() const { return captured_; }
  /// Remembers a kernel call until the next wait; during a capture, counts it.
  void enqueued(const std::string& kernel);
  /// True once after every wait for an event.
  bool takes_wait() { return std::exchange(waited_, false); }
  /// True if the previous kernel allowed this one to start before its own wait ended. `this_does`: whether this one
  /// allows that.
  bool starts_behind(bool this_does) { return std::exchange(next_starts_, this_does); }

 private:
  /// The stream whose capture this one is part of, or null.
  const DriverStream* recording() const {
    const DriverStream* const main = main_ ? main_ : this;
    return main->capturing_ ? main : nullptr;
  }

  std::shared_ptr<DriverContext> context_;
  StreamHandle handle_ = nullptr;
  bool own_ = false, capturing_ = false, next_starts_ = false, waited_ = false;
  int captured_ = 0;
  std::unique_ptr<DriverStream> beside_;
  DriverStream* main_ = nullptr;  ///< the stream of which this is the side stream
};

}  // namespace tenon::cuda
