// A device's work queues as values: whoever starts work names the stream that it goes to.
#pragma once
#include <memory>

namespace tenon {

/// A point in a stream's work. An event of a recording is only valid on streams of that recording.
class Event {
 public:
  virtual ~Event() = default;
};

/// Work on one stream runs in order; work on different streams runs in any order. This base class is the stream of a
/// device whose calls return when the work is done. Calls come from one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Waits until all enqueued work is done.
  virtual void synchronize() {}
  /// The point after everything enqueued so far.
  virtual std::shared_ptr<const Event> mark() { return std::make_shared<Event>(); }
  /// Makes later work on this stream wait for `event`, from this stream or from another of the same kind of backend.
  virtual void wait(const Event& event) { static_cast<void>(event); }
  /// A side stream owned by this one, for concurrent copies. While this stream records, work on the side stream is
  /// recorded too. The two are ordered by events only, and side work that this stream does not wait for in the end
  /// cannot be recorded.
  virtual Stream& beside() { return *this; }
};

}  // namespace tenon
