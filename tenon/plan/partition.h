// Partitions one phase of a DAG into launches: each anchor becomes a launch that absorbs what it can.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "tenon/kernels/skeleton.h"
#include "tenon/plan/plan.h"
#include "tenon/plan/rewrite.h"

namespace tenon {

/// Emits launches into a plan, phase by phase. Takes nodes of the model's (rewritten) graph; expressions of launches
/// are built in the plan's graph, where a value in memory is an Input leaf named after its buffer.
class Partitioner {
 public:
  Partitioner(Plan& plan, const Users& users, const PlanOptions& options)
      : plan_(plan), users_(users), options_(options), target_(options.target) {}

  /// Plans everything that `roots` need and that is not in memory yet. `names`: buffers of the roots that are results.
  void run(Rate rate, const std::vector<Expr>& roots, const std::unordered_map<const Node*, std::string>& names);

  /// Records, for everything that was kept out of a launch, where it is computed. Call after the last phase.
  void place_neighbours();

  bool in_memory(const Expr& e) const { return is_memory_leaf(e) || buffer_of_.contains(e.get()); }

 private:
  // A tentative launch, in its own graph: the plan's graph contains committed launches only.
  struct Trial {
    std::vector<Expr> values;
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    Launch launch;
    Refusal refusal;
    std::unordered_map<const Node*, Expr> source;  // node of the launch -> node of the model
  };
  using Region = std::unordered_set<const Node*>;

  using TrialPtr = std::shared_ptr<const Trial>;
  TrialPtr attempt(const std::vector<Expr>& values) const;
  TrialPtr trial_of(const std::vector<Expr>& values) const;
  TrialPtr attempt_or_materialize(const std::vector<Expr>& values);
  TrialPtr attempt_with_reductions(const Region& region);
  void emit_node(const Expr& e);
  void emit_anchor(const Expr& anchor);
  Expr main_anchor(const Expr& anchor) const;
  Region with_companions(const Expr& anchor) const;
  void emit_alone(const Expr& anchor);
  void emit_below_views(const Expr& e);
  void emit_plain(const Expr& e);
  void emit_whole(const Expr& e);
  void emit_roots(const std::vector<Expr>& roots);
  void emit_unfused(const Expr& e);
  bool stored_below(const Expr& e);
  static bool is_boundary(const Expr& e);
  void grow(const Expr& anchor, Region& region, std::map<uint32_t, std::string>& refused, bool ask_each);
  bool absorb_users(const Expr& x, Region& region, std::map<uint32_t, std::string>& refused, bool ask_each);
  bool passes_to_maths(const Expr& e, const Region& region) const;
  void leave_to_readers(Region& region);
  void absorb_stored(Region& region);
  std::vector<Expr> maths_behind(const Region& region) const;
  bool add_path(const Expr& v, Region& region) const;
  bool behind_boundary(const Expr& v, const Region& region) const;
  bool stored_anyway(const Expr& v, const Region& region);
  void drop_trailing_views(Region& region, const std::vector<Expr>& order) const;
  Expr as_multiplied(const Expr& value) const;
  Expr leaf_of(Graph& g, const Expr& e) const;
  Expr as_result(Expr statistic) const;
  void add_statistics(std::vector<Expr>& values) const;
  std::vector<Expr> frontier(const Region& region) const;

  // ---- states (states.cpp) ----
  void emit_update(const Expr& update);
  void emit_updates(std::span<const Expr> roots);
  void take_in_updates(Launch& launch);
  std::vector<Expr> waiting_readers(const Expr& update) const;
  bool is_awaited(const Expr& e, const Expr& by_others_than) const;
  bool may_replace(const Expr& update) const;

  // ---- what is stored in front of a launch (store.cpp) ----
  // A decision on which values to store, and the future launches that read them.
  struct Choosing;
  void store_in_front(const Expr& anchor);
  void emit_stored(const Region& region, std::vector<Expr> forced);
  void assume_stored(const std::vector<Expr>& values, bool reductions_only);
  bool assume(Expr e, const std::string& why);
  std::vector<Expr> end_assumptions();
  void assume_unreadable(const Expr& anchor);
  void assume_beside(const Region& region);
  void forget_last_assumption();
  std::vector<Expr> read_by(const Region& region) const;
  void add_cone(Choosing& c, const std::vector<Expr>& roots) const;
  void add_domains(Choosing& c) const;
  void add_sites(Choosing& c, const Region& region) const;
  const Node* awaited_anchor(const Expr& e, const std::unordered_set<const Node*>& ready) const;
  bool counts_as_memory(const Expr& e) const;
  std::vector<int64_t> bytes_with(const Choosing& c, const std::vector<Expr>& stored) const;
  void choose(Choosing& c) const;
  std::string reason(const Choosing& c, const Expr& value) const;
  void emit_together(const Choosing& c);
  bool leaves(const Expr& e, const Region& region) const;
  bool available(const Expr& e, const Region& region) const;
  std::string refusal_of(const Expr& user, const Region& region) const;
  // A reader of a launch's result `value` that is not part of that launch.
  struct Neighbour {
    KeptApart apart;
    Expr reader, value;
    size_t phase = 0, launch = 0;
  };
  void keep_weights_whole(Launch& launch, const Trial& trial) const;
  void commit(const Trial& trial, const std::vector<Expr>& values, std::vector<Neighbour> apart);
  std::vector<Neighbour> kept_apart(const std::vector<Expr>& values, const Region& region,
                                    const std::map<uint32_t, std::string>& refused) const;
  void remember_places(const Launch& launch, const std::vector<Expr>& values);
  std::vector<Place> places_of(const Neighbour& n) const;
  static std::vector<std::string> weights_below(const Expr& value);
  std::string launch_name(const Launch& launch);
  std::string describe(const Expr& e) const;

  Plan& plan_;
  const Users& users_;
  const PlanOptions& options_;
  const Target& target_;
  Phase* phase_ = nullptr;
  std::unordered_map<const Node*, std::string> buffer_of_;
  std::unordered_map<const Node*, Expr> stored_as_;  // value -> the rearranged form of it that its buffer holds
  std::unordered_map<std::string, std::string> launch_of_buffer_;
  std::unordered_map<std::string, std::vector<std::string>> weights_of_buffer_;  // of constant-phase buffers
  std::unordered_map<const Node*, std::string> result_name_;
  std::unordered_set<const Node*> wanted_;  // must be in memory when the phase ends
  std::unordered_set<const Node*> emitted_anchor_;
  std::unordered_set<const Node*> begun_;  // updates whose emission has begun
  std::vector<Expr> updates_;              // of the phase
  std::vector<Expr> assumed_;              // assumed to be in memory while deciding what to store
  std::unordered_map<const Node*, std::string> why_stored_;
  std::vector<Neighbour> neighbours_;
  std::unordered_map<const Node*, std::vector<Place>> places_;  // of every node that a launch computes
  // Launch -> its holes, in the registry of skeletons, whose records are never erased.
  std::unordered_map<std::string, std::span<const std::string_view>> with_anchor_;
  std::map<std::string, int> name_uses_;
  std::unordered_set<std::string> given_;  // names of inputs and results
  int next_buffer_ = 0;
  mutable std::vector<TrialPtr> trials_;  // the most recent ones; cleared whenever in_memory changes
};

}  // namespace tenon
