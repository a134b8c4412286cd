// Launches without an anchor.
#include <algorithm>

#include "tenon/kernels/skeleton.h"

namespace tenon {
namespace {

bool stores_statistic(const FormOutput& o) { return o.statistic != nullptr; }

std::string legal_rows(const Form& form) {
  const bool statistics = std::ranges::any_of(form.outputs, stores_statistic);
  return statistics ? "statistics over an image need the groups skeleton" : "";
}

std::string legal_map(const Form& form) {
  const bool reduces = std::ranges::any_of(form.outputs, reduces_rows, &FormOutput::value);
  return reduces ? "a reduction needs its whole row resident" : legal_rows(form);
}

std::string legal_groups(const Form& form) {
  const bool all = std::ranges::all_of(form.outputs, stores_statistic);
  return all ? "" : "supports only statistics over the inner axes";
}

// Elementwise maths and views over any shape: one read of every operand, one write of every result.
const RegisterSkeleton kRegisteredMap({.name = "map", .holes = {"load"}, .serves = anchored_by<>, .legal = legal_map});

// Several reductions in sequence over a resident row, then several outputs: norms, softmax, quantisation.
const RegisterSkeleton kRegisteredRows(
    {.name = "rows", .holes = {"load"}, .serves = anchored_by<>, .legal = legal_rows, .preference = 1});

// Statistics (means, variances, ..) over the inner axes, per sample and channel, if no producer can supply them.
const RegisterSkeleton kRegisteredGroups(
    {.name = "groups", .holes = {"load"}, .serves = anchored_by<>, .legal = legal_groups, .preference = 2});

}  // namespace
}  // namespace tenon
