// Values of a state: the leaf, i.e. its contents when a run begins, then one update after another. Within a launch, an
// update that is already in memory becomes a leaf again, marked with the number of updates that precede it.
#pragma once
#include "tenon/expr/expr.h"

namespace tenon {

/// True for a sink, which writes into part of a state.
bool is_update(const Expr& e);
/// The leaf of the state that `e` is a value of; empty if `e` is no state's value.
Expr state_of(Expr e);
/// How many updates of its run a value of a state includes.
int64_t version_of(Expr e);
/// The leaf in graph `g` that stands for this value of a state.
Expr state_leaf(Graph& g, const Expr& value);
/// What a launch computes for an output: the new rows for an update, else the value itself.
const Expr& written_by(const Expr& value);
/// All nodes needed to compute `values`, once each; not the state that an update replaces.
std::vector<Expr> below(std::span<const Expr> values);
/// What a value needs: for an update, all operands but the state; else the value itself.
std::vector<Expr> needed_for(const Expr& value);

}  // namespace tenon
