// Time for memory: values of a forward pass are computed a second time, shortly before its gradients need them, rather
// than kept.
#pragma once
#include "tenon/plan/plan.h"

namespace tenon {

/// The same results, planned into an arena of at most `bytes` (Plan::arena_bytes with these options). `forward`: where
/// the forward pass ends, such as the hidden states that the gradients were taken of: what lies below it may be
/// computed again, from values that are kept. Those readers that are not below it, the gradients, then read the second
/// copy, behind barriers (nodes::Barrier). What is given up first lives only where the forward pass holds much, and
/// costs the least time a byte; the ends of blocks are given up last. Where the results fit as they are, they are
/// returned as they are. Deterministic. Throws Error(Memory) that names the smallest arena found.
std::vector<Result> rematerialise(std::span<const Result> results, std::span<const Expr> forward, int64_t bytes,
                                  const PlanOptions& options = {});

}  // namespace tenon
