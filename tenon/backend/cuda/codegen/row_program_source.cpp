// The part of a program that reduces rows: when a row's operands are loaded, and what stages keep for later ones.
#include <algorithm>
#include <array>

#include "tenon/backend/cuda/codegen/program_source.h"
#include "tenon/core/text.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {

// Loads that more than one stage needs stay in registers; those that only later stages need are issued with them, so
// that memory latency is paid once.
void ProgramSource::find_arrays() {
  std::map<const Node*, std::set<int>> needed;
  std::vector<Expr> order;
  const auto visit = [&](const Expr& root, int stage) {
    std::set<const Node*> seen;
    const std::function<void(const Expr&)> walk = [&](const Expr& e) {
      if (uniform(e) || !seen.insert(e.get()).second) return;
      if (origin_of(e) == Origin::Memory) {
        if (!needed.contains(e.get())) order.push_back(e);
        needed[e.get()].insert(stage);
      }
      if (origin_of(e) == Origin::Computed)
        for (const Expr& x : e->in) walk(x);
    };
    walk(root);
  };
  for (const Expr& r : reductions_) visit(r->in[0], level(r) - 1);
  for (const ProgramOutput& o : outputs_) visit(o.value, stages_ - 1);
  for (const Expr& e : order) {
    const std::set<int>& stages = needed.at(e.get());
    if (in_shared(e) || *stages.rbegin() == 0) continue;
    const auto same = std::find_if(arrays_.begin(), arrays_.end(), [&](const Held& h) {
      return h.halves && access(e).stored_halves(width_) && access(h.view).same_stored(access(e), width_);
    });
    if (same != arrays_.end())
      arrays_.push_back({e, same->name, true, true, false, false});
    else
      arrays_.push_back({e, fresh(), access(e).stored_halves(width_), false, false, false});
  }
  constexpr int kMaxHeld = 16;
  hold_at_most(kMaxHeld);
}

// f32 operands that the previous row also read are in a nearby cache: if registers are scarce, they are reread from
// there.
void ProgramSource::hold_at_most(int most) {
  if (held() <= most) return;
  for (Held& h : arrays_) {
    h.late = !h.halves && access(h.view).repeats();
    h.column = h.late && access(h.view).same_in_rows();
  }
}

// The stage that stores an output: as soon as it is known, but after the first reduction, when everything is loaded.
int ProgramSource::stored_in(const ProgramOutput& o) {
  return o.value.shape() == domain_.shape ? std::max(level(o.value), 1) : stages_ - 1;
}

// A value rounded to 16 bits takes half the registers of a float, no more than its own operands: it is kept from the
// first stage that computes it, if it depends on more than weights. Of the values that a stage reads, the last such
// ones are kept.
void ProgramSource::find_kept() {
  std::map<const Node*, int> first;
  const auto roots = [this](int stage) {
    std::vector<Expr> out;
    for (const Expr& r : reductions_)
      if (level(r) == stage + 1) out.push_back(r->in[0]);
    for (const ProgramOutput& o : outputs_)
      if (stored_in(o) == stage) out.push_back(o.value);
    return out;
  };
  const auto loads = [this](const Expr& e) {
    const std::vector<Expr> below = topological(std::array{e});
    return level(e) > 0 || std::any_of(arrays_.begin(), arrays_.end(), [&](const Held& h) {
             return std::find(below.begin(), below.end(), h.view) != below.end();
           });
  };
  for (int stage = 0; stage < stages_; ++stage) {
    std::set<const Node*> seen;
    const std::function<void(const Expr&, bool)> walk = [&](const Expr& e, bool naive) {
      if (uniform(e) || origin_of(e) != Origin::Computed || !seen.insert(e.get()).second) return;
      if (naive) {
        first.emplace(e.get(), stage);
      } else if (e->type->round && size_of(*e->attrs.dtype) == 2 && first.at(e.get()) < stage && loads(e)) {
        kept_.emplace(e.get(), fresh());
        return;
      }
      for (const Expr& x : e->in) walk(x, naive);
    };
    for (const bool naive : {true, false}) {
      seen.clear();
      for (const Expr& r : roots(stage)) walk(r, naive);
    }
  }
}

// ---- the functor --------------------------------------------------------------------------------------------------

namespace {

std::string over_row(const std::string& statements) {
  return "    UNROLL for (int f = 0; f < R; ++f) {\n"
         "      const int col = (f * Team::kThreads + team.rank()) * kWidth;\n"
         "      if (col < cols) {\n" +
         statements + "      }\n    }\n";
}

}  // namespace

int ProgramSource::reductions_at_once() {
  std::vector<int> of_stage(static_cast<size_t>(stages_));
  for (const Expr& r : reductions_) ++of_stage[static_cast<size_t>(level(r) - 1)];
  return *std::ranges::max_element(of_stage);
}

int ProgramSource::held() const {
  int registers = 0, late = 0;  // of late-loaded operands, one at a time
  for (const Held& h : arrays_) {
    if (h.late) late = width_;
    if (!h.again && !h.late) registers += h.halves ? width_ / 2 : width_;
  }
  return registers + late;
}

bool ProgramSource::loads_late() const {
  return std::any_of(arrays_.begin(), arrays_.end(), [](const Held& h) { return h.late; });
}

int ProgramSource::columns() const {
  return static_cast<int>(std::count_if(arrays_.begin(), arrays_.end(), [](const Held& h) { return h.column; }));
}

std::string ProgramSource::columns_code() {
  std::string puts;
  int number = 0;
  for (const Held& h : arrays_)
    if (h.column)
      puts += "        { Frag<float, kWidth> x; " + access(h.view).load("x", width_) + " put_column<Team, R>(" +
              columns_at_ + ", " + std::to_string(number++) + ", f, x); }\n";
  return "  template <int R, class Team>\n  DEV static void columns(const Params& p, int cols, const Team& team) {\n"
         "    const Row r = row(p, 0);\n" +
         over_row(puts) + "  }\n";
}

int ProgramSource::tensors_ahead() const {
  int tensors = 0;
  for (const Held& h : arrays_) {
    if (h.late || h.again) continue;
    if (!h.halves || width_ * size_of(h.view.dtype()) != 16) return 0;
    ++tensors;
  }
  return tensors;
}

void ProgramSource::keep_rows(const std::string& at, int threads) {
  rows_at_ = at;
  threads_ = threads;
  for (const Held& h : arrays_)
    if (!h.late) access(h.view).load_later();
}

std::string ProgramSource::first_loads() {
  std::string arrays, loads;
  int number = 0;
  if (!rows_at_.empty()) arrays = "    int first;\n";
  for (const Held& h : arrays_) {
    if (h.again || h.late) continue;
    const std::string at = "l." + h.name + "[f]", type = h.halves ? type_source(h.view.dtype()) : "float";
    arrays += rows_at_.empty() ? "    Frag<" + type + ", kWidth> " + h.name + "[R];\n"
                               : "    Waiting<" + type + ", kWidth, " + std::to_string(threads_) + ", " +
                                     std::to_string(number++) + " * R> " + h.name + "{first};\n";
    loads += "        " + (h.halves ? access(h.view).load_stored(at, width_) : access(h.view).load(at, width_)) + "\n";
  }
  const std::string at =
      rows_at_.empty() ? "" : "  DEV static int rows(const Params& p) { return " + rows_at_ + "; }\n";
  return at + "  template <int R>\n  struct Loads {\n" + arrays +
         "  };\n  template <int R, class Team>\n  DEV static void loads(const Params& p, int row_number, int cols, "
         "const "
         "Team& team, Loads<R>& l) {\n    const Row r = row(p, row_number);\n" +
         (loads.empty() ? "" : over_row(loads)) + "  }\n";
}

// Declarations for a row's stages: values kept for later stages, and values that exist once per row.
std::string ProgramSource::row_values() {
  std::string arrays;
  before_.clear();
  for (const Expr& e : topological(values())) {
    if (kept_.contains(e.get()))
      arrays += "    Frag<" + type_source(*e->attrs.dtype) + ", kWidth> " + kept_.at(e.get()) + "[R];\n";
    for (const Expr& x : e->in)
      if (origin_of(e) == Origin::Computed && origin_of(x) == Origin::Memory && uniform(x) && !in_shared(x)) value(x);
  }
  return arrays + before_;
}

// One loop over the row: operands of this stage's reductions, or the stores.
std::string ProgramSource::stage(int number) {
  inner_.clear();
  before_.clear();
  loop_.clear();
  const std::string sums = "sums" + std::to_string(number);  // of this stage's reductions
  std::string after, loop_end, once;
  std::vector<std::string> nodes, starts;
  for (const Expr& r : reductions_) {
    if (level(r) != number + 1) continue;
    const Value x = value(r->in[0]);
    const std::string type = struct_name(r), sum = sums + "[" + std::to_string(nodes.size()) + "]", out = fresh();
    nodes.push_back(type);
    starts.push_back("static_cast<float>(" + type + "::init)");
    loop_end += "        UNROLL for (int k = 0; k < kWidth; ++k) " + sum + " = step<" + type + ">(" + sum + ", " +
                (x.uniform ? x.name : x.name + ".v[k]") + ");\n";
    after += "    const float " + out + " = " + type + "::finish<float>(" + sum + ", static_cast<float>(cols));\n";
    outer_[r.get()] = {out, true, DType::F32};
  }
  if (!nodes.empty()) {
    before_ += "    float " + sums + "[] = {" + joined(starts) + "};\n";
    after = "    team.template reduce<" + joined(nodes) + ">(" + sums + ");\n" + after;
  }
  for (const ProgramOutput& o : outputs_) {
    if (stored_in(o) != number) continue;
    const bool per_row = o.value.shape() != domain_.shape;
    const std::string source = stored(o) + "\n";
    (per_row ? once : loop_end) += "        " + source;
  }
  std::string out = "    // stage " + std::to_string(number) + "\n" + before_;
  if (!loop_.empty() || !loop_end.empty()) out += over_row(loop_ + loop_end);
  if (!once.empty()) out += "    if (team.stores()) {\n" + once + "    }\n";
  for (const auto& [node, name] : kept_)
    if (inner_.contains(node)) known_.insert(node);
  return out + after;
}

std::string ProgramSource::reducing_code() {
  std::string source =
      "  static constexpr int kAtOnce = " + std::to_string(reductions_at_once()) + ";\n" + first_loads() +
      (columns_at_.empty() ? "" : columns_code()) +
      "  template <int R, class Team>\n  DEV static void run(const Params& p, int row_number, int cols, "
      "const Team& team, const Loads<R>& l) {\n"
      "    const Row r = row(p, row_number);\n" +
      row_values();
  for (int s = 0; s < stages_; ++s) source += stage(s);
  return source + "  }\n";
}

}  // namespace tenon::cuda
