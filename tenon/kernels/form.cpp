#include "tenon/kernels/form.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/row_broadcast.h"
#include "tenon/kernels/view_facts.h"

namespace tenon {
namespace {

// Elements that a let may read if the alternative is a refusal, hence a launch (a reduction seen through a reshape).
constexpr int64_t kLetElements = 65536;
constexpr int kDeepest = 1000;  // push and its readers call themselves; what is deeper is stored

// Throws a Refusal, whose blocker is in the form's graph.
class FormBuilder {
 public:
  FormBuilder(const Launch& launch, Form& form) : form_(form), g_(*form.graph) {
    Memo memo;
    for (const Output& o : launch.outputs) {
      const bool own = o.value->graph == &g_;
      values_.push_back(own ? o.value : rebuild(g_, o.value, memo));
      buffers_.push_back(o.buffer);
    }
    for (const auto& [node, copy] : memo) original_[copy.get()] = Expr(node);
    for (const Expr& e : topological(values_)) {
      original_.emplace(e.get(), e);
      bool above = e->family() == Family::Anchor;
      if (above && !(form_.anchor && is_companion(e, form_.anchor))) form_.anchor = e;
      for (const Expr& x : e->in) above = above || above_anchor_.contains(x.get());
      if (above) above_anchor_.insert(e.get());
    }
  }

  void build() {
    if (form_.anchor)
      build_anchor();
    else
      build_plain();
    check_rows(form_.holes);
    for (const Let& l : form_.lets) check_rows(std::array{l.value});
  }

  /// The node of the launch's own graph with e's value; for a node made by the builder, the first such node below it.
  Expr original(const Expr& e) const {
    if (const auto it = original_.find(e.get()); it != original_.end()) return it->second;
    for (const Expr& x : e->in)
      if (!is_view_chain(x))
        if (const Expr below = original(x)) return below;
    return {};
  }

 private:
  // Output i, with the value that is to be computed for it; that is not in form yet and, unless it is for a statistic,
  // has no place.
  FormOutput output(size_t i) {
    FormOutput out;
    out.buffer = buffers_[i];
    out.dtype = values_[i].dtype();
    out.value = written_by(values_[i]);
    if (const Expr statistic = statistic_below(values_[i])) {
      out.statistic = statistic->type;
      out.value = statistic->in[0];
      const Shape& s = out.value.shape();
      out.statistic_shape = {s[0], s.numel() / std::max<int64_t>(s[0] * s[-1], 1), s[-1]};
      out.place = input(g_, out.buffer, DType::F32, {s[0], s[-1]});
    }
    return out;
  }

  // Adds output i, whose value is `core` below the views `chain`.
  void add(FormOutput out, size_t i, const Expr& core, const std::vector<Expr>& chain) {
    out.value = push(core);
    check_rows(std::array{out.value});
    if (form_.anchor)
      check_reduces_nothing(out.value, " of another tensor needs its whole rows, but a tile has only some columns");
    if (!out.statistic) out.place = unchain(tensor_of(out, values_[i]), chain);
    const Shape domain = domain_of(out.value);
    if (form_.outputs.empty() && !form_.anchor) form_.domain = domain;
    if (domain != form_.domain)
      throw Refusal{"results of shapes " + domain.str() + " and " + form_.domain.str() + " cannot share a launch", {}};
    form_.outputs.push_back(std::move(out));
  }

  // ---- with an anchor ----

  struct Lifted {
    Expr core;                // over the anchor's domain; contains the anchor or slices of it
    std::vector<Expr> chain;  // bijective views above it, innermost first
  };

  // Updates that the anchor reads.
  void build_updates() {
    const std::vector<Expr> read = below(form_.anchor->in);
    for (size_t i = values_.size(); i-- > 0;) {
      if (!is_update(values_[i]) || std::ranges::find(read, values_[i]) == read.end()) continue;
      FormOutput out = output(i);
      out.value = push(out.value);
      out.place = tensor_of(out, values_[i]);
      check_rows(std::array{out.value});
      form_.updates.insert(form_.updates.begin(), std::move(out));
      pushed_.insert_or_assign(values_[i].get(), state_leaf(g_, values_[i]));
      values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(i));
      buffers_.erase(buffers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void build_anchor() {
    build_updates();
    std::vector<FormOutput> outputs;
    std::vector<Lifted> lifted;
    std::vector<Expr> cores;
    for (size_t i = 0; i < values_.size(); ++i) {
      FormOutput& out = outputs.emplace_back(output(i));
      if (!out.statistic && is_companion(out.value, form_.anchor)) out.companion = out.value->type;
      lifted.push_back(out.companion ? Lifted{form_.anchor, {}} : lift(out.value));
      cores.push_back(lifted.back().core);
    }
    for (const Expr& operand : form_.anchor->in)
      form_.holes.push_back(push_over(operand.shape().rank() ? operand : reshape(operand, {1}), operand));
    Memo memo = find_lanes(cores);
    for (size_t i = 0; i < outputs.size(); ++i) {
      FormOutput& out = outputs[i];
      const std::vector<Expr>& chain = lifted[i].chain;
      if (out.companion) {
        out.value = input(g_, "%companion", out.dtype, out.value.shape());
        out.place = tensor_of(out, values_[i]);
        form_.outputs.push_back(std::move(out));
        continue;
      }
      if (out.statistic && !std::ranges::all_of(chain, [](const Expr& v) { return v.is<nodes::Reshape>(); }))
        throw Refusal{"statistics of a permuted result need it in memory", out.value};
      add(std::move(out), i, rebuild(g_, cores[i], memo), chain);
    }
  }

  // An epilogue sees only some columns of a row at a time, of other tensors too. The refusal names the outermost
  // reduction: with that in memory, those below it may not be needed at all.
  static void check_reduces_nothing(const Expr& value, const std::string& why) {
    Expr last;
    for (const Expr& e : topological(std::array{value}))
      if (e->family() == Family::Reduce) last = e;
    if (last) throw Refusal{std::string(last->name()) + why, last};
  }

  // For statistics of a value that reduces rows, either that value is stored, or the reduction is and the rest is
  // recomputed, whichever moves fewer bytes.
  static void check_statistic(const Expr& core) {
    if (!reduces_rows(core)) return;
    const std::string why = " must be in memory for statistics over the inner axes";
    const int64_t read = bytes_read(std::array{core}, [](const Expr& e) { return is_memory_leaf(e); });
    if (2 * bytes_of(core.shape(), core.dtype()) <= read) throw Refusal{std::string(core->name()) + why, core};
    check_reduces_nothing(core, why);
  }

  Lifted lift(const Expr& e) {
    if (e == form_.anchor) return {e, {}};
    if (!above_anchor_.contains(e.get()))
      throw Refusal{"a result that does not depend on the anchor needs its own launch", e};
    switch (e->family()) {
      case Family::Pointwise:
        return lift_pointwise(e);
      case Family::View:
        return lift_view(e);
      case Family::Reduce:
        throw Refusal{std::string(e->name()) + " needs whole rows of the result, but a tile has only some columns",
                      e->in[0]};
      default:
        throw Refusal{"a second anchor cannot share a launch", e};
    }
  }

  Lifted lift_view(const Expr& e) {
    const Expr& x = e->in[0];
    const bool lane = e.is<nodes::Slice>() && e->attrs.ints[0] == e.shape().rank() - 1;
    if (lane && x == form_.anchor) return {e, {}};
    if (lane) {  // slices commute with pointwise maths: move them down to the anchor
      Lifted l = lift(x);
      if (l.chain.empty() && l.core->family() == Family::Pointwise) return lift(above(distribute(e, l.core)));
    }
    if (!e->type->inverse)
      throw Refusal{
          std::string(e->name()) + " of the result is not a rearrangement of it: its reader applies it instead", x};
    Lifted l = lift(x);
    l.chain.push_back(e);
    return l;
  }

  // Applies the view v to each operand of the pointwise node p.
  Expr distribute(const Expr& v, const Expr& p) {
    std::vector<Expr> in;
    for (const Expr& x : p->in) {
      std::vector<Expr> operands = v->in;
      operands[0] = x;
      in.push_back(g_.make(*v->type, operands, v->attrs));
    }
    return g_.make(*p->type, in, p->attrs);
  }

  // Marks newly made nodes as above the anchor.
  Expr above(const Expr& root) {
    for (const Expr& e : topological(std::array{root}))
      for (const Expr& x : e->in)
        if (above_anchor_.contains(x.get())) above_anchor_.insert(e.get());
    return root;
  }

  Lifted lift_pointwise(const Expr& e) {
    std::vector<Lifted> lifted;
    const Lifted* first = nullptr;
    for (const Expr& x : e->in) lifted.push_back(above_anchor_.contains(x.get()) ? lift(x) : Lifted{Expr(), {}});
    for (const Lifted& l : lifted)
      if (l.core && (!first || l.chain.size() > first->chain.size())) first = &l;
    std::vector<Expr> in;
    for (size_t i = 0; i < lifted.size(); ++i) {
      if (!lifted[i].core) {
        in.push_back(unchain(e->in[i], first->chain));
      } else {
        if (lifted[i].chain != first->chain || lifted[i].core.shape() != first->core.shape())
          throw Refusal{std::string(e->name()) + " mixes differently arranged parts of the result", e->in[i]};
        in.push_back(lifted[i].core);
      }
    }
    return {above(g_.make(*e->type, in, e->attrs)), first->chain};
  }

  // Where the elements of an output go, before views above it are undone: its tensor or, for an update, part of a state
  // that nothing else in the launch may read.
  Expr tensor_of(const FormOutput& out, const Expr& value) {
    const Expr leaf = input(g_, out.buffer, out.dtype, value.shape());
    if (!is_update(value)) return leaf;
    for (const Expr& other : values_)
      for (const Expr& x : needed_for(other))
        if (std::ranges::count(below(std::array{x}), value->in[0]))
          throw Refusal{"reads the state '" + out.buffer + "', which it writes", x};
    std::vector<Expr> in{leaf};
    for (size_t i = 1; i + 1 < value->in.size(); ++i) {
      const Expr& x = value->in[i];
      if (above_anchor_.contains(x.get())) throw Refusal{"the place of an update depends on the result itself", x};
      in.push_back(push(x));
      if (!is_view_chain(in.back())) throw Refusal{"the place of an update is computed", x};
    }
    return value->type->place(in);
  }

  static Expr unchain(Expr y, const std::vector<Expr>& chain) {
    for (auto v = chain.rbegin(); v != chain.rend(); ++v) y = (*v)->type->inverse(**v, y);
    return y;
  }

  // Decides how many lanes the anchor's last axis has; maps the anchor or its slices to acc leaves.
  Memo find_lanes(const std::vector<Expr>& cores) {
    Memo memo;
    bool whole = std::ranges::count(cores, form_.anchor) > 0;
    std::vector<Expr> slices;
    for (const Expr& e : topological(cores))
      if (e.is<nodes::Slice>() && e->in[0] == form_.anchor)
        slices.push_back(e);
      else
        whole = whole || std::ranges::count(e->in, form_.anchor) > 0;
    const Shape& full = form_.anchor.shape();
    form_.domain = full;
    if (slices.empty()) {
      memo.emplace(form_.anchor.get(), input(g_, acc_name(0), DType::F32, full));
      return memo;
    }
    const int64_t width = slices[0].shape()[-1];
    form_.lanes = static_cast<int>(width ? full[-1] / width : 0);
    bool good = !whole && width > 0 && full[-1] % width == 0 && form_.lanes <= kMaxFormLanes;
    for (const Expr& s : slices) good = good && s.shape()[-1] == width && s->attrs.ints[1] % width == 0;
    for (size_t i = 0; form_.lanes == 3 && i < cores.size(); ++i) {  // tiles' columns cannot be in three parts
      const std::vector<Expr> under = below(std::array{cores[i]});
      good = good && std::ranges::count_if(slices, [&](const Expr& s) { return std::ranges::count(under, s) > 0; }) < 2;
    }
    if (!good)
      throw Refusal{"parts of the result share a tile only if they are 2 or 4 equal blocks of columns", form_.anchor};
    form_.domain = slices[0].shape();
    for (const Expr& s : slices)
      memo.emplace(s.get(), input(g_, acc_name(static_cast<int>(s->attrs.ints[1] / width)), DType::F32, form_.domain));
    return memo;
  }

  // ---- without an anchor ----

  void build_plain() {
    for (size_t i = 0; i < values_.size(); ++i) {
      FormOutput out = output(i);
      Expr core = out.value;
      std::vector<Expr> chain;
      if (out.statistic)
        check_statistic(core);
      else if (reduces_rows(core))
        for (; core->family() == Family::View && core->type->inverse; core = core->in[0])
          chain.insert(chain.begin(), core);
      add(std::move(out), i, core, chain);
    }
    // Row results and full results are compatible if one is the other with a last axis of 1.
    Shape row = form_.domain;
    if (row.rank()) row[-1] = 1;
    for (const FormOutput& o : form_.outputs)
      if (o.value.shape() != form_.domain && o.value.shape() != row)
        throw Refusal{"a result over " + o.value.shape().str() + " does not fit the rows of " + form_.domain.str(), {}};
  }

  // ---- views down to the leaves ----

  Expr push(const Expr& e) {
    if (const auto it = pushed_.find(e.get()); it != pushed_.end()) return it->second;
    if (e->family() == Family::Leaf) return e;
    Expr out;
    if (++depth_ > kDeepest) throw Refusal{"it is more than 1000 nodes deep", e};
    switch (e->family()) {
      case Family::Pointwise: {
        std::vector<Expr> in;
        for (const Expr& x : e->in) in.push_back(push_over(x, reducing(in)));
        out = g_.make(*e->type, in, e->attrs);
        break;
      }
      case Family::Reduce:
        if (e->attrs.ints[0] == static_cast<int64_t>(ReduceOver::Inner))
          throw Refusal{std::string(e->name()) + " over a whole image is not known while the image is being read", e};
        out = e->type->apart ? push(e->type->apart(e))
                             : g_.make(*e->type, std::array{push_over(e->in[0], e->in[0], true)}, e->attrs);
        break;
      case Family::View:
        out = push_view(e);
        break;
      default:
        throw Refusal{"the result of " + std::string(e->name()) + " must be in memory first", e};
    }
    --depth_;
    pushed_.emplace(e.get(), out);
    if (const Expr rows = out->family() == Family::Reduce ? out->in[0] : reducing(out->in))
      rows_.emplace(out.get(), rows);
    if (const Expr from = original(e)) original_.emplace(out.get(), from);
    return out;
  }

  // The rows that a pushed value reduces, given as the operand of one of its reductions; empty if it reduces none.
  Expr reducing(std::span<const Expr> pushed) const {
    for (const Expr& x : pushed)
      if (const auto it = rows_.find(x.get()); it != rows_.end()) return it->second;
    return {};
  }

  // A launch iterates over rows of one shape, that of `rows`: a value that reduces others must be computed separately
  // or, if it is below a sum, only its reduction must.
  Expr push_over(const Expr& x, const Expr& rows, bool summed = false) {
    const Expr out = push(x);
    const Expr own = reducing(std::array{out});
    if (!own || !rows || own.shape() == rows.shape()) return out;
    if (summed && cone(x) > kLetElements) check_reduces_nothing(x, " is over rows other than " + rows.shape().str());
    return let_or_refuse(x, "a reduction of rows " + own.shape().str() + " among " + rows.shape().str());
  }

  Expr push_view(const Expr& e) {
    const ViewFacts facts = view_facts(e);
    const Expr& x = e->in[0];
    if (e.is<nodes::Broadcast>() && let_pays(e, x)) return g_.make(*e->type, std::array{let(x)}, e->attrs);
    std::vector<Expr> in;
    for (const Expr& operand : e->in) {
      in.push_back(push(operand));
      const bool computed = !is_view_chain(in.back());
      if (computed && facts.joins)
        in.back() = let_or_refuse(operand, "an operand of " + std::string(e->name()) + " that is computed");
      else if (computed && in.size() > 1)
        in.back() = let_or_refuse(operand, "a computed index");
    }
    const Expr base = in[0];
    if (is_view_chain(base)) return e.is<nodes::Slice>() ? slice_of(e, base) : g_.make(*e->type, in, e->attrs);
    if (facts.fills) throw Refusal{"padding of a computed value: zeros must be inserted after it is computed", x};
    if (base->family() == Family::Pointwise) {
      const Expr v = g_.make(*e->type, in, e->attrs);
      return push(distribute(v, base));
    }
    const Expr candidate = g_.make(*e->type, in, e->attrs);
    if (is_row_broadcast(candidate)) return candidate;
    if (const Expr broadcast = row_broadcast_below(base)) {
      if (keeps_rows(candidate, broadcast)) return broadcast;
      if (cone(broadcast->in[0]) > kLetElements) return candidate;  // further views may bring the rows back
    }
    // A reduction, or its broadcast, under another view: its value must be computed separately.
    const Expr reduced = base->family() == Family::Reduce ? base : base->in[0];
    const Expr leaf = let_or_refuse(reduced, "a row reduction below " + std::string(e->name()));
    const Expr under = base->family() == Family::Reduce ? leaf : g_.make(*base->type, std::array{leaf}, base->attrs);
    in[0] = under;
    return push(g_.make(*e->type, in, e->attrs));
  }

  // The slice `e`, but of `base`. Slices of slices are merged, or sorted by axis: differently made slices of a tensor
  // are then one node, or maths on neighbours (a stencil) would have more and more of them.
  Expr slice_of(const Expr& e, const Expr& base) {
    const std::vector<int64_t>&a = e->attrs.ints, &b = base->attrs.ints;
    if (!base.is<nodes::Slice>() || a[0] < b[0]) return g_.make(*e->type, std::array{base}, e->attrs);
    if (a[0] > b[0]) return g_.make(*e->type, std::array{slice_of(e, base->in[0])}, base->attrs);
    return g_.make(*e->type, base->in, {.ints = {a[0], b[1] + a[1], b[1] + a[2]}});
  }

  // Refuses views over row reductions that did not bring the rows back.
  static void check_rows(std::span<const Expr> values) {
    for (const Expr& e : topological(values))
      if (const Expr broadcast = row_broadcast_below(e); broadcast && broadcast != e)
        throw Refusal{
            "a row reduction below " + std::string(e->name()) + " is too large to be computed inside the launch",
            broadcast->in[0]};
  }

  // True if computing the operand of a broadcast once pays: it is computed, and both it and all it reads are small.
  bool let_pays(const Expr& e, const Expr& x) {
    return !is_view_chain(x) && !above_anchor_.contains(x.get()) && cone(x) <= e.shape().numel() / 2 && !is_cheap(x);
  }

  // One sum, difference or product with a constant, such as 1 + scale: recomputing it costs no more than reading it.
  static bool is_cheap(const Expr& x) {
    const bool once = x.is<nodes::Add>() || x.is<nodes::Sub>() || x.is<nodes::Mul>();
    return once && std::all_of(x->in.begin(), x->in.end(), [](const Expr& y) { return is_view_chain(y); }) &&
           std::any_of(x->in.begin(), x->in.end(), [](const Expr& y) { return literal_of(y) != nullptr; });
  }

  // Elements of the largest tensor below x.
  static int64_t cone(const Expr& x) {
    int64_t most = 0;
    for (const Expr& n : topological(std::array{x}))
      if (n->family() != Family::Leaf) most = std::max({most, n.shape().numel(), n->in[0].shape().numel()});
    return most;
  }

  Expr let_or_refuse(const Expr& x, const std::string& what) {
    if (cone(x) > kLetElements) throw Refusal{what + " is too large to be computed inside the launch", x};
    return let(x);
  }

  Expr let(const Expr& x) {
    if (const auto it = lets_.find(x.get()); it != lets_.end()) return it->second;
    const Expr value = push(x);
    const Expr leaf = input(g_, "%let." + std::to_string(form_.lets.size()), x.dtype(), x.shape());
    form_.lets.push_back({leaf, value});
    lets_.emplace(x.get(), leaf);
    return leaf;
  }

  Form& form_;
  Graph& g_;
  std::vector<Expr> values_;
  std::vector<std::string> buffers_;
  std::unordered_map<const Node*, Expr> original_;
  std::unordered_set<const Node*> above_anchor_;
  Memo pushed_, lets_;
  Memo rows_;  // by pushed value: see reducing
  int depth_ = 0;
};

}  // namespace

FormResult make_form(const Launch& launch, std::shared_ptr<Graph> graph) {
  anchor_of(launch);
  auto form = std::make_shared<Form>();
  form->graph = std::move(graph);
  FormBuilder builder(launch, *form);
  try {
    builder.build();
  } catch (const Refusal& r) {
    return {nullptr, {r.why, r.blocker ? builder.original(r.blocker) : Expr()}};
  }
  return {std::move(form), {}};
}

}  // namespace tenon
