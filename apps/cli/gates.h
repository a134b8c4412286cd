// The checks of `tenon verify`: every launch of a plan against the fp64 oracle, and every network against recorded
// results of the public implementations.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/plan/plan.h"
#include "tenon/runtime/weight_store.h"

namespace tenon::cli {

enum class Verdict { Passed, Failed, Skipped };

struct GateCase {
  std::string name;
  Verdict verdict = Verdict::Failed;
  double error = 0, tolerance = 0;  ///< those of the largest error / tolerance; error is relative to the tensor's rms
  std::string note;                 ///< why it was skipped, or how it differs
  std::string quantized;            ///< for rows that the launch quantised to e4m3: results of the three gates

  /// Appends a difference to the note.
  void fail(const std::string& difference) {
    verdict = Verdict::Failed;
    note += (note.empty() ? "" : "; ") + difference;
  }
};
using OnCase = std::function<void(const GateCase&)>;

/// Runs `plan` once with made-up inputs and separate memory for every buffer. Then recomputes every launch in fp64 from
/// the values that it read, and compares what it wrote; e4m3 rows must also pass the gates of QuantizedRowsComparison.
/// `done` is called after each launch that `only` selects (asks_for; empty: all). Returns their number. `weights`: the
/// source behind `store`.
int oracle_gates(const std::string& part, const Plan& plan, const std::shared_ptr<WeightStore>& store,
                 const WeightSource& weights, const std::string& only, const OnCase& done);

/// Runs the cases of parity.json in `folder` that are single networks, in f32. Without the files, one skipped case.
void parity_gates(const std::filesystem::path& folder, const std::shared_ptr<Backend>& backend, const OnCase& done);

}  // namespace tenon::cli
