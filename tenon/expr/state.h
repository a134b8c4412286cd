// Values of a state: the leaf, what it holds when a run begins, and behind it one update after the other. Within a
// launch an update that is in memory is a leaf again, with the number of updates before it.
#pragma once
#include "tenon/expr/expr.h"

namespace tenon {

/// True for a sink that writes into a part of a state.
bool is_update(const Expr& e);
/// The leaf of the state that `e` is a value of; empty for what is none.
Expr state_of(Expr e);
/// How many updates of its run a value of a state has behind it.
int64_t version_of(Expr e);
/// The leaf that stands for a value of a state in graph `g`.
Expr state_leaf(Graph& g, const Expr& value);
/// What a launch computes for an output: the rows of an update, else the value itself.
const Expr& written_by(const Expr& value);
/// All that values need to be computed, each once: of updates among it not what they replace.
std::vector<Expr> below(std::span<const Expr> values);
/// What it needs for it: of an update all operands but the state, else the value itself.
std::vector<Expr> needed_for(const Expr& value);

}  // namespace tenon
