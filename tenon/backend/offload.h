// Weights that stay in the host's memory: which ones, and how they visit the device's just before a launch reads them.
// They are copied to fixed places by a stream of copies, while the launches in front run: recordings stay valid.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tenon/backend/backend.h"

namespace tenon {

/// What a network may take of a device's memory.
struct Offload {
  int64_t bytes = 0;  ///< at most, with its weights
  bool all = false;   ///< as little as it can, whatever there is
};

/// Error(Usage) for a backend whose weights are in the host's memory anyway.
void check_offloads(const Backend& backend);

/// Smaller weights stay on the device.
inline constexpr int64_t kLeastOffloaded = 256 << 10;

/// A launch reads a weight. Launches have numbers, in the order in which they run.
struct WeightRead {
  size_t launch = 0, part = 0;       ///< `part`: a number for the weight, among all
  size_t first = 0;                  ///< launch of the same phase
  bool once = false;                 ///< the phase runs once in many runs of another
  std::string key;                   ///< WeightRequest::Part::key
  int64_t bytes = 0;                 ///< of the weight
  std::optional<bool> on_host = {};  ///< where it is; nothing if it is nowhere yet
};

/// Which weights wait in the host's memory, and where each launch finds them.
struct StagingPlan {
  struct Copy {
    size_t launch, part;  ///< what reads it, and what
    int64_t at, bytes;    ///< among the places
  };
  std::set<std::string> offloaded;  ///< keys
  /// What is copied once a launch is on its stream, or before the first of a phase: its place is free then.
  std::map<size_t, std::vector<Copy>> behind, before;
  std::map<std::pair<size_t, size_t>, int64_t> places;  ///< by launch and part
  int64_t bytes = 0;                                    ///< of all places
  int64_t least = 0;                                    ///< what Offload::bytes must be at least
};

/// Keeps as many weights on the device as fit. `reads`: by launch; `all`: bytes that are taken if every weight is
/// there. What leaves first is what runs once; then weights from all over the network, so that copies have time.
/// Largest weights stay: places are for the largest that does not.
StagingPlan plan_staging(std::span<const WeightRead> reads, const Offload& offload, int64_t all);

/// The places of a network, and the copies into them.
class Staging {
 public:
  Staging() = default;
  /// Allocates the places. `weights`: by part, where they wait.
  Staging(StagingPlan plan, std::shared_ptr<Backend> backend, std::vector<std::shared_ptr<void>> weights);
  /// Where a launch finds a weight, or null: where it always is.
  void* place(size_t launch, size_t part) const;
  /// Puts a launch on the stream, by `put`, behind the copies that it needs, and copies for later ones beside it.
  void run(Stream& on, size_t launch, const std::function<void()>& put);

 private:
  void copy(Stream& on, const std::map<size_t, std::vector<StagingPlan::Copy>>& copies, size_t launch);

  StagingPlan plan_;
  std::shared_ptr<Backend> backend_;
  std::vector<std::shared_ptr<void>> weights_;
  std::shared_ptr<void> memory_;
  std::map<size_t, std::shared_ptr<const Event>> arrived_;  // by the launch that reads what has
};

}  // namespace tenon
