// Weights that stay in host memory: which ones, and how they are copied to the device just before a launch reads them.
// A copy stream brings them to fixed places while earlier launches run, so recordings stay valid.
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
#include "tenon/backend/offload.h"

namespace tenon {

/// Smaller weights stay on the device.
inline constexpr int64_t kMinOffloaded = 256 << 10;

/// One read of a weight by a launch. Launches are numbered in the order in which they run.
struct WeightRead {
  size_t launch = 0, part = 0;       ///< `part` numbers the weights
  size_t first = 0;                  ///< first launch of the same phase
  bool once = false;                 ///< the phase runs once per many runs of another
  std::string key;                   ///< WeightRequest::Part::key
  int64_t bytes = 0;                 ///< of the weight
  std::optional<bool> on_host = {};  ///< where it is; empty if it is nowhere yet
};

/// Which weights stay in host memory, and where each launch finds them.
struct StagingPlan {
  struct Copy {
    size_t launch, part;  ///< the launch that reads it, and which weight
    int64_t at, bytes;    ///< offset within the places
  };
  std::set<std::string> offloaded;  ///< keys
  /// Copies to start once a launch is enqueued, or before a phase's first launch: the place is free by then.
  std::map<size_t, std::vector<Copy>> behind, before;
  std::map<std::pair<size_t, size_t>, int64_t> places;  ///< by launch and part
  int64_t bytes = 0;                                    ///< of all places
  int64_t least = 0;                                    ///< smallest Offload::bytes that works
};

/// Keeps as many weights on the device as fit. `reads`: by launch; `all`: bytes used if every weight is on the device.
/// Weights of phases that run once are offloaded first, then weights spread over the whole network so that copies have
/// time. The largest weights stay on the device, because places are sized for the largest offloaded weight.
StagingPlan plan_staging(std::span<const WeightRead> reads, const Offload& offload, int64_t all);

/// A network's places, and the copies into them.
class Staging {
 public:
  Staging() = default;
  /// Allocates the places. `weights`: their host memory, by part.
  Staging(StagingPlan plan, std::shared_ptr<Backend> backend, std::vector<std::shared_ptr<void>> weights);
  /// Where a launch finds a weight, or null if the weight is always on the device.
  void* place(size_t launch, size_t part) const;
  /// Enqueues a launch, by calling `put`, after the copies that it needs, and starts the copies for later launches
  /// beside it.
  void run(Stream& on, size_t launch, const std::function<void()>& put);

 private:
  void copy(Stream& on, const std::map<size_t, std::vector<StagingPlan::Copy>>& copies, size_t launch);

  StagingPlan plan_;
  std::shared_ptr<Backend> backend_;
  std::vector<std::shared_ptr<void>> weights_;
  std::shared_ptr<void> memory_;
  std::map<size_t, std::shared_ptr<const Event>> arrived_;  // by the launch that reads the copied weights
};

}  // namespace tenon
