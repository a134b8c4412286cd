#include "tenon/backend/cuda/products/tile_tuning.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <random>

#include "tenon/backend/cuda/libraries/dnn_choice.h"
#include "tenon/backend/cuda/products/core_names.h"
#include "tenon/backend/cuda/products/tile_table.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/options.h"

namespace tenon::cuda {
namespace {

constexpr size_t kMaxChoices = 40;
constexpr int kLaunches = 24, kReplays = 5;
constexpr double kNever = 1e30, kLongMicroseconds = 200, kNearlyAsFast = 1.15;
constexpr double kWarmMicroseconds = 1e5, kOnEndMicroseconds = 1e5;
// Library kernels overlap with neither neighbour: in a UNet step with 42 such calls, 38 us gained in single
// measurements were 10 us in the step.
constexpr double kCallMicroseconds = 1;
constexpr int64_t kCopiesBytes = 200 << 20;  // several times the L2 cache

// Memory for every leaf of the product, filled with small random numbers if elements have 16 or 8 bits.
class TuningMemory {
 public:
  TuningMemory(Device& device, std::vector<Expr> constants)
      : device_(device), stream_(device.make_stream()), constants_(std::move(constants)) {
    std::mt19937 random(1);
    std::uniform_int_distribution<int> mantissa(0, 0x7ff);
    for (uint16_t& x : noise_) x = static_cast<uint16_t>(0x2c00 | (random() & 1) << 15 | mantissa(random));
    for (uint16_t& x : small_noise_) x = static_cast<uint16_t>(0x2020 | (random() & 0x9f9f));
  }
  /// The stream on which the memory is filled; users of the memory go there too.
  Stream& stream() { return *stream_; }
  void* of(const Expr& leaf, int launch) {
    std::vector<std::shared_ptr<void>>& copies = memory_[leaf.get()];
    const int64_t bytes = std::max<int64_t>(leaf_bytes(leaf), 1);
    const bool constant = std::find(constants_.begin(), constants_.end(), leaf) != constants_.end();
    const int64_t count = constant ? std::clamp<int64_t>(kCopiesBytes / bytes, 1, kLaunches) : 1;
    while (static_cast<int64_t>(copies.size()) < count) {
      copies.push_back(device_.allocate(bytes));
      const std::vector<uint16_t>& noise = leaf.dtype() == DType::E4M3 ? small_noise_ : noise_;
      const int64_t chunk = static_cast<int64_t>(noise.size() * sizeof(noise[0]));
      if (size_of(leaf.dtype()) == 2 || leaf.dtype() == DType::E4M3)
        for (int64_t at = 0; at < bytes; at += chunk)
          device_.copy_in(*stream_, static_cast<std::byte*>(copies.back().get()) + at, noise.data(),
                          std::min(chunk, bytes - at));
    }
    return copies[static_cast<size_t>(launch) % copies.size()].get();
  }

 private:
  Device& device_;
  std::shared_ptr<Stream> stream_;
  std::vector<Expr> constants_;
  std::vector<uint16_t> noise_ = std::vector<uint16_t>(1 << 21);
  std::vector<uint16_t> small_noise_ = std::vector<uint16_t>(1 << 21);  ///< two e4m3 values each, magnitude 2^-3 to 2
  std::map<const Node*, std::vector<std::shared_ptr<void>>> memory_;
};

// A recording of several launches with everything they need, to be replayed.
class Replays {
 public:
  Replays(Device& device, TuningMemory& memory, TunedCall& tuned)
      : stream_(memory.stream()),
        workspace_(device.allocate(tuned.needs.workspace_bytes + 16)),
        counters_(device.allocate(tuned.needs.counters * 4 + 16)) {
    if (tuned.call.calls_library()) {
      tuned.call.set({kLibraryWorkspace, workspace_.get()});
    } else {
      tuned.call.set({tuned.split_at + offsetof(device::SplitK, workspace), workspace_.get()});
      tuned.call.set({tuned.split_at + offsetof(device::SplitK, counters), counters_.get()});
    }
    const auto run = [&](Stream& stream, KernelCall& call, int number) {
      call.bind([&](const Expr& leaf) { return memory.of(leaf, number); });
      call.enqueue(stream);
    };
    const auto launch = [&](Stream& stream) {
      for (int i = 0; i < kLaunches; ++i) {
        for (KernelCall& call : tuned.before) run(stream, call, i);
        run(stream, tuned.call, i);
        for (KernelCall& call : tuned.after) run(stream, call, i);
      }
    };
    launch(stream_);  // allocates the memory before the recording
    recording_ = device.record(launch);
  }

  /// Microseconds per launch among others, the minimum over some replays.
  double least() {
    double out = kNever;
    for (int replay = 0; replay < kReplays; ++replay) out = std::min(out, once());
    return out;
  }
  /// The same, but for long launches their sustained time.
  double typical() {
    const double out = least();
    return out < kLongMicroseconds ? out : on_end();
  }
  /// Microseconds per launch when run back to back, at the clock that the power limit then allows.
  double on_end() {
    double spent = 0, sum = 0;
    while (spent < kWarmMicroseconds) spent += once() * kLaunches;
    int count = 0;
    for (spent = 0; spent < kOnEndMicroseconds; ++count) {
      const double each = once();
      spent += each * kLaunches;
      sum += each;
    }
    return sum / count;
  }

 private:
  double once() {
    stream_.synchronize();
    const auto start = std::chrono::steady_clock::now();
    recording_->run(stream_);
    stream_.synchronize();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return took.count() / kLaunches;
  }

  Stream& stream_;
  std::shared_ptr<void> workspace_, counters_;
  std::unique_ptr<Replay> recording_;
};

struct Fastest {
  TileChoice choice;
  std::string name;  ///< of its kernel call, for people
  double time = kNever;
};

// The fastest of `choices`. Long launches, of which a network has many in a row, hit the power limit, where the fastest
// single launch may not be the fastest: all choices nearly as fast are timed back to back. A choice that a library
// rejects when called is dropped.
Fastest fastest(Device& device, const ProductShape& product, const std::vector<TileChoice>& choices,
                TuningMemory& memory, const MakeTunedCall& make) {
  std::vector<TunedCall> calls;
  for (const TileChoice& c : choices) calls.push_back(make(c));  // so that they compile concurrently
  std::vector<double> times(choices.size(), kNever);
  std::string all;
  for (size_t i = 0; i < calls.size(); ++i) {
    try {
      times[i] = Replays(device, memory, calls[i]).least();
    } catch (const Error& e) {
      if (!calls[i].call.calls_library() || e.kind() != ErrorKind::Device) throw;
      spdlog::debug("{}: {}", calls[i].call.name(), e.what());
    }
    ((((all += "\n    ") += choices[i].text()) += ": ") += std::to_string(times[i])) += " us";
  }
  Fastest best;
  const double least = choices.empty() ? kNever : *std::min_element(times.begin(), times.end());
  for (size_t i = 0; i < calls.size(); ++i) {
    if (times[i] > least * kNearlyAsFast) continue;
    const bool runs_on_end = least >= kLongMicroseconds && least < kNever;
    const double time = runs_on_end ? Replays(device, memory, calls[i]).on_end() : times[i];
    if (runs_on_end) (((all += "\n    on end ") += choices[i].text()) += ": ") += std::to_string(time) + " us";
    if (time < best.time) best = {choices[i], calls[i].call.name(), time};
  }
  spdlog::debug("{}: {}{}", product.key, best.choice.text(), all);
  return best;
}

// This machine's measurement under `key`, if it can still run: its tile may be gone, or the library's version.
std::optional<TileChoice> known_here(const std::string& key, const ProductShape& product, const DeviceFacts& facts,
                                     const std::vector<TileChoice>& own) {
  const TileTable& table = TileTable::of(facts);
  return table.measured_here(key) ? possible_choice(table.find(key), product, own) : std::nullopt;
}

bool one_core_asked() {
  const std::string asked = asked_core();
  return !asked.empty() && asked != "own" && !library_asked(asked);
}

}  // namespace

bool asked_to_tune() { return is_on(Option::CudaTune); }

bool tuning(const Device& device) {
  return asked_to_tune() && device.facts().multiprocessors > 1 && !device.facts().batch_invariant() &&
         !one_core_asked();
}

void tune_tiles(Device& device, const ProductShape& product, const std::vector<Expr>& constants,
                const MakeTunedCall& make) {
  TileTable& table = TileTable::of(device.facts());
  std::vector<TileChoice> ours = tile_choices(product, device.facts());
  const auto known = [&](const std::string& key) { return known_here(key, product, device.facts(), ours); };
  const std::optional<TileChoice> mine = known(product.key);
  const std::vector<TileChoice> theirs = product.epilogue.empty() || known(product.epilogue_key())
                                             ? std::vector<TileChoice>()
                                             : library_choices(product, device.facts());
  if (mine && theirs.empty()) return;
  if (mine) ours = {*mine};
  ours.resize(std::min(ours.size(), kMaxChoices));
  TuningMemory memory(device, constants);
  const Fastest own = fastest(device, product, ours, memory, make);
  if (!mine) table.add(product.key, own.choice.text(), own.time);
  if (theirs.empty()) return;
  const Fastest library = fastest(device, product, theirs, memory, make);
  if (library.time + kCallMicroseconds < own.time)
    table.add(product.epilogue_key(), library.choice.text(), library.time, library.name);
  else
    table.add(product.epilogue_key(), own.choice.text(), own.time);
}

void tune_dnn(Device& device, const std::string& key, const DnnProblem& problem, const std::vector<Expr>& constants,
              const std::function<TunedCall()>& own, const std::function<TunedCall(const DnnPlan& plan)>& make) {
  constexpr size_t kPlans = 8;
  constexpr double kCompiledGain = 13.0 / 14;
  TileTable& table = TileTable::of(device.facts());
  const std::optional<std::string> line = table.measured_here(key) ? table.find(key) : std::nullopt;
  DnnLibrary* const library = line == kOwnKernel ? nullptr : device.dnn_library();
  if (!library || (line && measured_plan(*library, *line, problem))) return;
  const std::vector<DnnPlan> plans = library->likeliest(problem, kPlans);
  if (plans.empty()) return;
  TuningMemory memory(device, constants);
  TunedCall ours = own();
  const double own_time = Replays(device, memory, ours).typical();
  std::string best = kOwnKernel, all;
  double least = own_time;
  for (const DnnPlan& plan : plans) {
    const std::string text = library->name() + " " + plan.engine;
    try {
      TunedCall theirs = make(plan);
      const double time = Replays(device, memory, theirs).typical();
      ((((all += "\n    ") += text) += ": ") += std::to_string(time)) += " us";
      const bool gains = time + kCallMicroseconds < own_time && (!plan.compiles || time < own_time * kCompiledGain);
      if (time < least && gains) best = text, least = time;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;
      spdlog::debug("{}: {}", text, e.what());
    }
  }
  spdlog::debug("{}: {}, own {} us{}", key, best, own_time, all);
  table.add(key, best, least, best == kOwnKernel ? "" : "own " + std::to_string(own_time));
}

}  // namespace tenon::cuda
