// The weights of one model component on one backend. An entry is memory that holds what a constant expression over
// parameters becomes in a layout and an element type (backend/weights.h), or a value that a plan computes of weights
// alone. Executables over one store that want the same hold it once, whatever their sizes.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/offload.h"

namespace tenon {

/// Calls may come from several threads; they wait for one another. Entries stay until they are released.
class WeightStore {
 public:
  WeightStore(std::shared_ptr<Backend> backend, std::shared_ptr<const WeightSource> source);
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;
  ~WeightStore();

  const std::shared_ptr<Backend>& backend() const { return backend_; }

  /// What executables that are prepared from now on may take of the device's memory, this store's weights with them:
  /// what does not fit waits in the host's. Nothing: as much as there is. One thread at a time prepares them.
  /// Error(Usage) for a backend without memory of its own.
  void set_offload(std::optional<Offload> offload);
  const std::optional<Offload>& offload() const { return offload_; }
  /// Whether an entry waits in the host's memory; nothing if there is none of this key.
  std::optional<bool> on_host(const std::string& key) const;

  /// Bytes of all parts of the requests on the device, each key once; of those that are not here; of those in the
  /// host's memory, as those of `offloaded` will be; and what the device has of other entries.
  struct Bytes {
    int64_t all = 0, missing = 0, host = 0, others = 0;
  };
  using Keys = std::set<std::string>;
  Bytes bytes_of(std::span<const WeightRequest> requests, const Keys& offloaded = {}) const;

  /// Memory of all parts of the requests, in order; the host's for those of `offloaded`, unless they are here. What is
  /// not here is made, in order; a request comes behind what it needs. A parameter is done with (WeightSource::done)
  /// when the last that was to be made of it now has been. What is given keeps its memory for as long as it lives.
  /// Throws Error(Model) for parameters that are missing or of another shape, Error(Memory).
  std::vector<std::shared_ptr<void>> get(std::span<const WeightRequest> requests, const Keys& offloaded = {});

  /// From now on parameter `name` is `value`, a copy of which is kept: whatever was made of it is made again, in place,
  /// so that executables and what they recorded stay as they are. Waits for the end. Nobody may run meanwhile.
  /// Error(Model) for an unknown name, another shape or another kind of type than the source's; what was made of it
  /// before an error is of no use.
  void update(const std::string& name, const HostView& value);
  /// The same of several in the device's memory: what was made of more than one of them is made again once. They are
  /// held, not copied, until something else is their value, and read whenever something is made of them.
  struct DeviceTensor {
    std::string name;
    DType dtype = DType::F32;
    Shape shape;
    std::shared_ptr<const void> memory;
  };
  void update(std::span<const DeviceTensor> tensors);

  /// The source's tensors of these names have other values now, of the shapes that they had: what was made of them is
  /// made again, as an update does. Values that updates gave them are forgotten.
  void reread(const std::set<std::string>& names);

  /// Frees what nobody holds.
  void release_unused();

  struct Counters {
    int64_t entries = 0, bytes = 0;    ///< that are here now
    int64_t on_host = 0;               ///< of these bytes
    int64_t made = 0, made_bytes = 0;  ///< so far, for the first time
    int64_t remade = 0;                ///< so far, by updates
    Counters& operator+=(const Counters& o);
  };
  Counters counters() const;

 private:
  struct Entry;
  struct Maker;
  struct Override;
  using Entries = std::map<std::string, std::shared_ptr<Entry>>;
  class Preparation;

  Stream& stream();
  std::shared_ptr<Maker> make(const WeightRequest& request, std::vector<std::shared_ptr<Entry>> parts);
  void run(const Maker& maker);
  using Held = std::vector<std::shared_ptr<void>>;
  ParamView find(const std::string& name, Held& held);
  ParamView compute(const Expr& value, Held& held);
  void check(const std::string& name, DType dtype, const Shape& shape) const;
  void remake(const std::set<std::string>& names);

  mutable std::mutex mutex_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const WeightSource> source_;
  std::shared_ptr<Stream> stream_;  // that weights are made on, once there are any
  Entries entries_;
  std::vector<std::weak_ptr<Maker>> makers_;  // in the order in which they made: what one needs comes before it
  std::map<std::string, Override> overrides_;
  Counters counters_;
  std::optional<Offload> offload_;
};

}  // namespace tenon
