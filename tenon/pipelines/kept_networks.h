// A pipeline's networks ready to run, each for certain sizes; all sizes of a component share its weights.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tenon/pipelines/image_generator.h"
#include "tenon/runtime/executable.h"

namespace tenon {

class KeptNetworks {
 public:
  /// Opens a component's weights. They are read once and kept while a network uses them.
  using Weights = std::function<std::unique_ptr<WeightSource>(const std::string& component)>;
  /// `options` says whether to keep more than one network, and for how many sizes each.
  KeptNetworks(std::shared_ptr<Backend> backend, Weights weights, const PipelineOptions& options);

  /// How often a network runs per picture. If weights are offloaded and several networks are kept, a network that runs
  /// once offloads as many of its weights as it can (Offload::all).
  enum class Runs : uint8_t { Once, EveryStep };

  /// The network `name` for the sizes that `key` stands for, over a component's weights: one that was kept, or one that
  /// is planned and prepared now. It is valid until the next call, its results until another network runs.
  /// Error(Memory) if it does not fit with everything else freed; asks check_stop().
  Executable& get(const std::string& name, const std::string& component, const std::string& key,
                  const std::function<Plan()>& plan, Runs runs = Runs::Once);

  /// Memory limit of a network on its own, if weights are offloaded.
  const std::optional<Offload>& offload() const { return offload_; }
  /// Bytes that networks may take on the device.
  int64_t available() const;

  /// The values of these tensors, by component, have changed: recomputes the weights made from them, in place.
  void reread(const std::map<std::string, std::set<std::string>>& tensors);

  /// Frees all networks and weights.
  void release() { free_all(); }

  /// The most bytes that one of the networks got since the last call takes, as planned.
  int64_t take_peak() { return std::exchange(peak_, 0); }

  struct Counters {
    int networks = 0;               ///< ready now, one per size
    int prepared = 0;               ///< prepared so far
    WeightStore::Counters weights;  ///< memory of all their weights
  };
  Counters counters() const;

 private:
  struct Ready {
    std::string key;
    std::unique_ptr<Executable> executable;
  };
  Executable& used(Executable& network);
  std::unique_ptr<Executable> prepare(Plan plan, const std::string& component, Runs runs);
  void free_all();

  std::shared_ptr<Backend> backend_;
  Weights weights_;
  std::optional<Offload> offload_;
  std::shared_ptr<Arena> arena_;  // shared by all networks, which run in turn
  bool keep_;
  int keep_sizes_, prepared_ = 0;
  int64_t peak_ = 0;
  std::map<std::string, std::shared_ptr<WeightStore>> stores_;  // by component
  std::map<std::string, std::list<Ready>> networks_;            // by name; most recently used first
};

}  // namespace tenon
