#include "tenon/backend/cuda/tile_tuning.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <random>

#include "tenon/backend/cuda/tile_table.h"
#include "tenon/core/log.h"

namespace tenon::cuda {
namespace {

constexpr size_t kMostChoices = 40;
constexpr int kLaunches = 24, kReplays = 5;
constexpr int64_t kCopiesBytes = 200 << 20;  // several times the second-level cache

// Memory for every leaf of the product, with small random numbers where elements have 16 bits.
class TuningMemory {
 public:
  TuningMemory(Device& device, Expr constant) : device_(device), constant_(constant) {
    std::mt19937 random(1);
    std::uniform_int_distribution<int> mantissa(0, 0x7ff);
    for (uint16_t& x : noise_) x = static_cast<uint16_t>(0x2c00 | (random() & 1) << 15 | mantissa(random));
  }
  void* of(const Expr& leaf, int launch) {
    std::vector<std::shared_ptr<void>>& copies = memory_[leaf.get()];
    const int64_t bytes = std::max<int64_t>(leaf_bytes(leaf), 1);
    const int64_t count = leaf == constant_ ? std::clamp<int64_t>(kCopiesBytes / bytes, 1, kLaunches) : 1;
    while (static_cast<int64_t>(copies.size()) < count) {
      copies.push_back(device_.allocate(bytes));
      const int64_t piece = static_cast<int64_t>(noise_.size() * sizeof(noise_[0]));
      if (size_of(leaf.dtype()) == 2)
        for (int64_t at = 0; at < bytes; at += piece)
          device_.copy_in(static_cast<std::byte*>(copies.back().get()) + at, noise_.data(),
                          std::min(piece, bytes - at));
    }
    return copies[static_cast<size_t>(launch) % copies.size()].get();
  }

 private:
  Device& device_;
  Expr constant_;
  std::vector<uint16_t> noise_ = std::vector<uint16_t>(1 << 21);
  std::map<const Node*, std::vector<std::shared_ptr<void>>> memory_;
};

// Microseconds of one launch among others, the least of some runs.
double time_of(Device& device, TuningMemory& memory, TunedStep& tuned) {
  const std::shared_ptr<void> workspace = device.allocate(tuned.launch.workspace_bytes + 16),
                              counters = device.allocate(tuned.launch.counters * 4 + 16);
  tuned.step.set({tuned.split_at + offsetof(device::SplitK, workspace), workspace.get()});
  tuned.step.set({tuned.split_at + offsetof(device::SplitK, counters), counters.get()});
  const auto launch = [&](int number) {
    tuned.step.bind([&](const Expr& leaf) { return memory.of(leaf, number); });
    tuned.step.launch();
  };
  for (int i = 0; i < kLaunches; ++i) launch(i);  // memory is there before the recording
  device.begin_recording();
  for (int i = 0; i < kLaunches; ++i) launch(i);
  const std::unique_ptr<Recording> recording = device.end_recording();
  double least = 1e30;
  for (int replay = 0; replay < kReplays; ++replay) {
    device.synchronize();
    const auto start = std::chrono::steady_clock::now();
    recording->launch();
    device.synchronize();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count() / kLaunches);
  }
  return least;
}

}  // namespace

void tune_tiles(Device& device, const std::string& key, std::vector<TileChoice> choices, const Expr& constant,
                const MakeTunedStep& make) {
  if (TileTable::of(device.facts()).measured_here(key) || choices.empty()) return;
  choices.resize(std::min(choices.size(), kMostChoices));
  std::vector<TunedStep> steps;
  for (const TileChoice& c : choices) steps.push_back(make(c));  // they compile at the same time
  TuningMemory memory(device, constant);
  size_t best = 0;
  double least = 1e30;
  std::string all;
  for (size_t i = 0; i < steps.size(); ++i) {
    const double time = time_of(device, memory, steps[i]);
    all += "\n    " + choices[i].text() + ": " + std::to_string(time) + " us";
    if (time < least) least = time, best = i;
  }
  spdlog::debug("{}: {}{}", key, choices[best].text(), all);
  TileTable::of(device.facts()).add(key, choices[best].text(), least);
}

}  // namespace tenon::cuda
