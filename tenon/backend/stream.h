// Queues of a device's work, as values: whoever starts work names the stream that it goes to.
#pragma once
#include <memory>

namespace tenon {

/// A point in the work of a stream. One of a recording is for the streams of that recording.
class Event {
 public:
  virtual ~Event() = default;
};

/// Work on one stream is done in order; on several, in any. This class is the stream of a device whose calls return
/// when the work is done. Calls come from one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Waits until everything on it is done.
  virtual void synchronize() {}
  /// The point behind everything that is on it now.
  virtual std::shared_ptr<const Event> mark() { return std::make_shared<Event>(); }
  /// What is put on it from now on waits for `event`, of this stream or of another of the same kind of backend.
  virtual void wait(const Event& event) { static_cast<void>(event); }
  /// A stream of this one's own, for copies at the same time. While this one records, what is put there is recorded
  /// too; nothing else orders the two, and what this one does not wait for in the end cannot be recorded.
  virtual Stream& beside() { return *this; }
};

}  // namespace tenon
