// The weights of one model component on one backend. An entry is memory with either a constant expression over
// parameters, in some layout and element type (backend/weights.h), or a value that a plan computes from weights alone.
// Executables over one store share equal entries, whatever their sizes.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/backend/offload.h"
#include "tenon/backend/weight_source.h"
#include "tenon/expr/expr.h"

namespace tenon {

struct ParamView;
struct WeightRequest;

/// Thread-safe: calls wait for one another. Entries stay until they are released.
class WeightStore {
 public:
  WeightStore(std::shared_ptr<Backend> backend, std::shared_ptr<const WeightSource> source);
  ~WeightStore();

  const std::shared_ptr<Backend>& backend() const { return backend_; }

  /// Limits the device memory of executables prepared from now on, including this store's weights: what does not fit is
  /// offloaded to the host. Nothing: no limit, but entries stay where they are. Only one thread at a time may prepare
  /// executables then. Throws Error(Usage) for a backend without memory of its own.
  void set_offload(std::optional<Offload> offload);
  const std::optional<Offload>& offload() const { return offload_; }
  /// Whether the entry with this key is offloaded; nothing if there is none.
  std::optional<bool> on_host(const std::string& key) const;

  /// Bytes of all parts of the requests, each key once: `all` on the device, `missing` of these not made yet, `host`
  /// offloaded or about to be (`offloaded`); and `others`, device memory of other entries.
  struct Bytes {
    int64_t all = 0, missing = 0, host = 0, others = 0;
  };
  using Keys = std::set<std::string>;
  Bytes bytes_of(std::span<const WeightRequest> requests, const Keys& offloaded = {}) const;

  /// Memory of all parts of the requests, in order; in host memory for new parts in `offloaded`. Missing parts are
  /// made, in order: a request must come after those it needs. Calls WeightSource::done for a parameter once everything
  /// that needs it now has been made. The memory returned lives as long as its pointers. Throws Error(Model) for
  /// parameters that are missing or of another shape, and Error(Memory).
  std::vector<std::shared_ptr<void>> get(std::span<const WeightRequest> requests, const Keys& offloaded = {});

  /// Sets parameter `name` to a copy of `value`; everything made from it is remade in place, so that executables and
  /// their recordings remain valid. Waits until done. Nothing may run meanwhile. Throws Error(Model) for an unknown
  /// name, another shape, or another kind of type than the source's; after an error, what was made from the parameter
  /// is unusable.
  void update(const std::string& name, const HostView& value);
  /// The same for several tensors in device memory; what depends on more than one of them is remade once. The tensors
  /// are held, not copied, until replaced by another value, and read whenever something is made from them.
  struct DeviceTensor {
    std::string name;
    DType dtype = DType::F32;
    Shape shape;
    std::shared_ptr<const void> memory;
    bool operator==(const DeviceTensor&) const = default;
  };
  void update(std::span<const DeviceTensor> tensors);

  /// The source's tensors of these names have new values of the same shapes: what was made from them is remade, as by
  /// an update. Values set by earlier updates are dropped. Throws Error(Model) for an unknown name.
  void reread(const std::set<std::string>& names);

  /// Frees entries that nothing holds.
  void release_unused();

  struct Counters {
    int64_t entries = 0, bytes = 0;    ///< that exist now
    int64_t on_host = 0;               ///< of these bytes
    int64_t made = 0, made_bytes = 0;  ///< so far, for the first time
    int64_t remade = 0;                ///< so far, by updates
  };
  Counters counters() const;

 private:
  struct Entry;
  struct Maker;
  struct Override;
  using Entries = std::map<std::string, std::shared_ptr<Entry>>;
  class Preparation;

  Stream& stream();
  bool run(const Maker& maker, Stream& on);  // whether it can be recorded
  using Held = std::vector<std::shared_ptr<void>>;
  ParamView find(const std::string& name, Held& held);
  ParamView compute(const Expr& value, Held& held);
  void check(const std::string& name, DType dtype, const Shape& shape, const void* data) const;
  struct Repeated;
  std::unique_ptr<Repeated> remake(const std::set<std::string>& names);
  bool replay();  // the last update again, if it can be recorded

  mutable std::mutex mutex_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const WeightSource> source_;
  std::shared_ptr<Stream> stream_;  // for making weights; created with the first one
  Entries entries_;
  std::vector<std::weak_ptr<Maker>> makers_;  // in the order they ran, so that each comes after what it needs
  std::map<std::string, Override> overrides_;
  Counters counters_;
  std::unique_ptr<Repeated> repeated_;
  std::optional<Offload> offload_;
};

}  // namespace tenon
