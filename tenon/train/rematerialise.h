// Trades time for memory: values of a forward pass are recomputed shortly before its gradients need them, rather than
// kept.
#pragma once
#include "tenon/plan/plan.h"

namespace tenon {

/// Asks for the smallest arena that rematerialise() finds, instead of a number of bytes.
inline constexpr int64_t kSmallestArena = 1;

/// The same results, planned into an arena of at most `bytes` (Plan::arena_bytes with these options). `forward` marks
/// the end of the forward pass, such as the hidden states that gradients were taken of: values below it may be
/// recomputed from values that are kept. Readers that are not below it (the gradients) then read the second copy,
/// behind barriers (nodes::Barrier). Values dropped first are those that live only while the forward pass holds much,
/// cheapest per byte first; the ends of blocks are dropped last. Results that already fit are returned unchanged.
/// Deterministic. Throws Error(Memory) that names the smallest arena found.
std::vector<Result> rematerialise(std::span<const Result> results, std::span<const Expr> forward, int64_t bytes,
                                  const PlanOptions& options = {});

}  // namespace tenon
