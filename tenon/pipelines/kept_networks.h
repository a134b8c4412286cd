// Networks of a pipeline that are ready to run: each for some sizes, over weights that all sizes of a component share.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "tenon/pipelines/image_generator.h"
#include "tenon/runtime/executable.h"

namespace tenon {

class KeptNetworks {
 public:
  /// The weights of a component, read once and kept while a network over them is.
  using Weights = std::function<std::unique_ptr<WeightSource>(const std::string& component)>;
  /// `options` says whether more than one network is kept, and for how many sizes each.
  KeptNetworks(std::shared_ptr<Backend> backend, Weights weights, const PipelineOptions& options);

  /// How often a network runs in a picture. Where weights are offloaded and several networks are kept, those of one
  /// that runs once are.
  enum class Runs : uint8_t { Once, EveryStep };

  /// The network `name` for the sizes that `key` stands for, over a component's weights: the one that is kept, or one
  /// that is planned and made ready now. It stays valid until the next call, its results until another one runs.
  /// Error(Memory) if it does not fit with everything else freed; asks check_stop().
  Executable& get(const std::string& name, const std::string& component, const std::string& key,
                  const std::function<Plan()>& plan, Runs runs = Runs::Once);

  /// What a network may take alone, if weights are offloaded.
  const std::optional<Offload>& offload() const { return offload_; }
  /// Bytes that networks may take on the device.
  int64_t available() const;

  /// Tensors of the components' weights have other values now: what was made of them is made again, in place.
  void reread(const std::map<std::string, std::set<std::string>>& tensors);

  /// Frees all networks and weights.
  void release() { free_all(); }

  struct Counters {
    int networks = 0;               ///< ready now, one for each size
    int prepared = 0;               ///< so far
    WeightStore::Counters weights;  ///< what their weights take together
  };
  Counters counters() const;

 private:
  struct Ready {
    std::string key;
    std::unique_ptr<Executable> executable;
  };
  std::unique_ptr<Executable> prepare(Plan plan, const std::string& component, Runs runs);
  void free_all();

  std::shared_ptr<Backend> backend_;
  Weights weights_;
  std::optional<Offload> offload_;
  std::shared_ptr<Arena> arena_;  // of all networks, which run in turn
  bool keep_;
  int keep_sizes_, prepared_ = 0;
  std::map<std::string, std::shared_ptr<WeightStore>> stores_;  // by component
  std::map<std::string, std::list<Ready>> networks_;            // by name; the one used last is first
};

}  // namespace tenon
