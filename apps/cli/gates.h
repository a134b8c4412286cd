// The checks that `tenon verify` runs: every launch of a plan against the fp64 oracle, every network against recorded
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
  double error = 0, tolerance = 0;  ///< largest of error / tolerance decides; error is relative to the tensor's rms
  std::string note;                 ///< why it was skipped, or what differs
  std::string quantized;            ///< of rows that the launch quantised to e4m3: what the three gates found

  /// Adds what differs to the note.
  void fail(const std::string& difference) {
    verdict = Verdict::Failed;
    note += (note.empty() ? "" : "; ") + difference;
  }
};
using OnCase = std::function<void(const GateCase&)>;

/// Runs `plan` once with made-up inputs, every buffer in memory of its own, then computes every launch anew in fp64
/// from the values that the launch read, and compares what it wrote; rows of e4m3 pass the gates of
/// QuantizedRowsComparison too. `done` is called after each launch that `only` asks for (asks_for; empty: all).
/// Returns how many these were.
/// `weights`: what `store` is over.
int oracle_gates(const std::string& part, const Plan& plan, const std::shared_ptr<WeightStore>& store,
                 const WeightSource& weights, const std::string& only, const OnCase& done);

/// The recorded cases of parity.json in `folder` that are one network each, in f32. Without the files one skipped case.
void parity_gates(const std::filesystem::path& folder, const std::shared_ptr<Backend>& backend, const OnCase& done);

}  // namespace tenon::cli
