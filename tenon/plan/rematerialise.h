// Time for memory: values of a forward pass are computed a second time, shortly before its gradients need them, rather
// than kept.
#pragma once
#include "tenon/plan/plan.h"

namespace tenon {

/// The same results, planned into an arena of at most `bytes` (Plan::arena_bytes with these options). `forward`: where
/// the forward pass ends, such as the hidden states that the gradients were taken of: what lies below it may be
/// computed again, from values that are kept. Those readers that are not below it, the gradients, then read the second
/// copy, which stands behind barriers (nodes::Barrier): layer after layer, the last one first. What is given up first
/// frees most bytes for the time that computing it again takes; where the results fit as they are, they are returned as
/// they are. Deterministic. Throws Error(Memory) that names the smallest arena found.
std::vector<Result> rematerialise(std::span<const Result> results, std::span<const Expr> forward, int64_t bytes,
                                  const PlanOptions& options = {});

}  // namespace tenon
