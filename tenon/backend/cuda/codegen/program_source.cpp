#include "tenon/backend/cuda/codegen/program_source.h"

#include <algorithm>
#include <array>
#include <map>

#include "tenon/backend/forms.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cuda {
namespace {

bool is_rounding(const Expr& e) { return e->type->round != nullptr; }

}  // namespace

const NodeStruct& node_struct(const NodeType* type) {
  static const std::map<const NodeType*, NodeStruct> all = {
#define NODE_BODY(T, header) {&node_type<nodes::T>(), {#T, header}},
#include "tenon/expr_generated/node_bodies.inc"
#undef NODE_BODY
  };
  return all.at(type);
}

MatrixDomain matrix_domain(const Shape& shape, bool joins) {
  const int last = std::max(shape.rank() - 1, 0);
  return {shape, joins ? split_of_long_rows(shape, last) : last};
}

ProgramSource::ProgramSource(std::span<const ProgramOutput> outputs, const MatrixDomain& domain, Params& params,
                             int most)
    : domain_(domain), params_(params) {
  for (const ProgramOutput& o : outputs)
    outputs_.push_back({o.place ? without_rounding(o.value, o.dtype) : o.value, o.place, o.dtype});
  const std::vector<Expr> roots = values();
  for (const Expr& e : roots) ++readers_[e.get()];
  for (const Expr& e : topological(roots)) {
    for (const Expr& x : e->in) ++readers_[x.get()];
    if (e->family() != Family::Reduce) continue;
    TENON_CHECK(Internal, e->attrs.ints[0] == static_cast<int64_t>(ReduceOver::Last), "cuda")
        << e->name() << " is not a row reduction";
    reductions_.push_back(e);
    reduces_ = true;
    stages_ = std::max(stages_, level(e) + 1);
  }
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (outputs_[i].place) places_.emplace_back("out" + std::to_string(i), outputs_[i].place, domain_, true, params_);
  std::set<const Node*> seen;
  for (const Expr& e : roots) collect(e, seen);
  choose_width(outputs_, most);
  if (!reduces_) return;
  find_arrays();
  find_kept();
}

// Number of dependent reductions that must be finished before `e`.
int ProgramSource::level(const Expr& e) {
  if (const auto it = levels_.find(e.get()); it != levels_.end()) return it->second;
  int most = 0;
  if (origin_of(e) == Origin::Computed) {
    for (const Expr& x : e->in) most = std::max(most, level(x));
    most += e->family() == Family::Reduce;
  }
  return levels_[e.get()] = most;
}

bool ProgramSource::uniform(const Expr& e) {
  return uniforms_.contains(e, [this](const Expr& view) { return access(view).uniform(); });
}

AccessSource& ProgramSource::access(const Expr& view) {
  for (auto& [node, a] : accesses_)
    if (node == view.get()) return a;
  return accesses_
      .emplace_back(view.get(), AccessSource("a" + std::to_string(accesses_.size()), view, domain_, false, params_))
      .second;
}

void ProgramSource::collect(const Expr& e, std::set<const Node*>& seen) {
  if (!seen.insert(e.get()).second) return;
  if (origin_of(e) == Origin::Memory) access(e);
  if (origin_of(e) != Origin::Computed) return;
  for (const Expr& x : e->in) collect(x, seen);
}

void ProgramSource::choose_width(std::span<const ProgramOutput> outputs, int most) {
  int64_t narrowest = 4;
  for (const auto& [node, a] : accesses_)
    if (!a.uniform()) narrowest = std::min(narrowest, size_of(a.dtype()));
  for (const ProgramOutput& o : outputs) narrowest = std::min(narrowest, size_of(o.dtype));
  const auto allowed = [this](int width) {
    const auto ok = [width](const AccessSource& a) { return a.allows(width); };
    return domain_.cols() % width == 0 && std::all_of(places_.begin(), places_.end(), ok) &&
           std::all_of(accesses_.begin(), accesses_.end(), [&](const auto& a) { return ok(a.second); });
  };
  for (width_ = static_cast<int>(std::min<int64_t>(most, 16 / std::max<int64_t>(narrowest, 2))); width_ > 1;
       width_ /= 2)
    if (allowed(width_)) break;
}

std::vector<Expr> ProgramSource::values() const {
  std::vector<Expr> out;
  for (const ProgramOutput& o : outputs_) out.push_back(o.value);
  return out;
}

// ---- values -------------------------------------------------------------------------------------------------------

std::string ProgramSource::struct_name(const Expr& e) {
  const NodeStruct& b = node_struct(e->type);
  headers_.insert(b.header);
  return std::string("nodes::") + b.name;
}

ProgramSource::Value ProgramSource::value(const Expr& e) {
  const bool is_uniform = uniform(e);
  auto& known = is_uniform ? outer_ : inner_;
  if (const auto it = known.find(e.get()); it != known.end()) return it->second;
  Value v = known_.contains(e.get()) ? kept(e) : compute(e);
  (is_uniform ? outer_ : inner_)[e.get()] = v;
  return v;
}

ProgramSource::Value ProgramSource::compute(const Expr& e) {
  switch (origin_of(e)) {
    case Origin::Accumulator:
      return {"acc[" + std::to_string(acc_lane(e)) + "]", false, DType::F32};
    case Origin::Literal: {
      // Equal literals share one name, so that the compiler sees common subexpressions.
      std::string& name = literals_[literal_of(e)->attrs.nums[0]];
      if (name.empty()) {
        name = fresh();
        before_ += "    const float " + name + " = " + params_.number("constant", literal_of(e)->attrs.nums[0]) + ";\n";
      }
      return {name, true, DType::F32};
    }
    case Origin::Memory:
      return load(e);
    case Origin::Computed:
      break;
  }
  ++lines_;
  if (e->family() == Family::View) {
    TENON_CHECK(Internal, e.is<nodes::Broadcast>() && uniform(e->in[0]), "cuda")
        << e->name() << " of a computed value is not in form";
    return value(e->in[0]);
  }
  TENON_CHECK(Internal, e->family() == Family::Pointwise, "cuda") << e->name() << " is not supported in this stage";
  return is_rounding(e) ? rounding(e) : pointwise(e);
}

ProgramSource::Value ProgramSource::load(const Expr& e) {
  const bool is_uniform = uniform(e);
  for (const Held& h : arrays_) {
    if (h.view != e) continue;
    if (h.column && !columns_at_.empty()) {
      const auto number =
          std::count_if<const Held*>(arrays_.data(), &h, [](const Held& other) { return other.column; });
      Value v{fresh(), false, e.dtype()};
      loop_ += "        const Frag<float, kWidth> " + v.name + " = column<Team, R, kWidth>(" + columns_at_ + ", " +
               std::to_string(number) + ", f);\n";
      return v;
    }
    if (h.late) break;
    if (!h.halves) return {"l." + h.name + "[f]", false, e.dtype()};
    Value v{fresh(), false, e.dtype()};
    loop_ += "        const Frag<float, kWidth> " + v.name + " = " + access(e).in_order("l." + h.name + "[f]", width_) +
             ";\n";
    return v;
  }
  Value v{fresh(), is_uniform, e.dtype()};
  const std::string type = is_uniform ? "float " : "Frag<float, kWidth> ";
  if (loads_apart_ && !is_uniform && !in_shared(e)) {
    AccessSource& from = access(e);
    burden_ += from.pieces() * (from.halves(width_) ? 1 : 2);
    joined_ = joined_ || from.pieces() > 1;
    if (early_) early_ = from.load_past_l1(width_);
    const std::string member = "l." + v.name;
    if (from.halves(width_)) {
      members_ += "    Frag<" + type_source(e.dtype()) + ", kWidth> " + v.name + ";\n";
      loads_ += "    " + from.load_halves(member, width_) + "\n";
      loop_ += "        const " + type + v.name + " = to_floats(" + member + ");\n";
      return v;
    }
    members_ += "    " + type + v.name + ";\n";
    loads_ += "    " + from.load(member, width_) + "\n";
    return {member, false, v.holds};
  }
  if (!is_uniform) ++beside_;
  (is_uniform ? before_ : loop_) +=
      (is_uniform ? "    " : "        ") + type + v.name + "; " + access(e).load(v.name, width_) + "\n";
  return v;
}

int ProgramSource::pieces() const {
  int all = 0;
  for (const auto& [node, from] : accesses_)
    if (!from.uniform()) all += from.pieces();
  return all;
}

bool ProgramSource::in_shared(const Expr& view) const {
  const std::vector<Expr> below = topological(std::array{view});
  return std::any_of(below.begin(), below.end(), [this](const Expr& e) { return params_.in_shared(e); });
}

// Applies a node's `eval` to named operands: `call` becomes nodes::Lerp::eval<float>(a, b, c), element by element.
void ProgramSource::apply_node(const Expr& e, std::string& call,
                               const std::function<std::string(const Value&)>& element) {
  // A product is one number for all its readers: the compiler must not merge it with the sum of one of them.
  const std::string eval = struct_name(e) + "::eval<float>(";
  call = e.is<nodes::Mul>() && readers_.at(e.get()) > 1 ? "rounded_product(" : eval;
  bool first = true;
  for (const Expr& x : e->in) {
    call += (first ? "" : ", ") + element(value(x));
    first = false;
  }
  for (double p : e->attrs.nums) call += ", " + params_.number("number", p);
  call += ")";
}

ProgramSource::Value ProgramSource::pointwise(const Expr& e) {
  std::string call;
  if (uniform(e)) {
    apply_node(e, call, [](const Value& v) { return v.name; });
    Value out{fresh(), true, DType::F32};
    before_ += "    const float " + out.name + " = " + call + ";\n";
    return out;
  }
  if (e.is<nodes::Div>() && width_ > 2 && uniform(e->in[1])) return {quotient(e), false, DType::F32};
  apply_node(e, call, [](const Value& v) { return v.uniform ? v.name : v.name + ".v[k]"; });
  Value out{fresh(), false, DType::F32};
  loop_ += "        Frag<float, kWidth> " + out.name + "; UNROLL for (int k = 0; k < kWidth; ++k) " + out.name +
           ".v[k] = " + call + ";\n";
  return out;
}

// A value that this or an earlier stage left in registers.
ProgramSource::Value ProgramSource::kept(const Expr& e) {
  Value out{fresh(), false, *e->attrs.dtype};
  loop_ += "        const Frag<float, kWidth> " + out.name + " = to_floats(" + kept_.at(e.get()) + "[f]);\n";
  return out;
}

// True if `divisor` is at least a literal fraction of the largest magnitude in `x`'s row, possibly of several values'
// rows, as in quantization.
static bool by_largest(const Expr& x, const Expr& divisor) {
  const auto exact = [](Expr e, bool spread) {
    while ((is_rounding(e) && e->attrs.dtype == DType::F32) ||
           (spread && (e.is<nodes::Broadcast>() || e.is<nodes::Reshape>())))
      e = e->in[0];
    return e;
  };
  const Expr d = exact(divisor, true);
  const Node* part = d.is<nodes::Div>() ? literal_of(d->in[1]) : nullptr;
  if (!part || part->attrs.nums[0] < 1 || part->attrs.nums[0] >= 1e6) return false;
  const std::function<bool(const Expr&)> largest = [&](const Expr& of) {
    const Expr m = exact(of, true);
    if (m.is<nodes::Max>()) return std::any_of(m->in.begin(), m->in.end(), largest);
    return m.is<nodes::AbsMax>() && exact(m->in[0], false) == exact(x, false);
  };
  return exact(d->in[0], true).is<nodes::Max>() && largest(d->in[0]);
}

// True if only outputs in e4m3 read `e`. An error of an ulp of f32, which one quotient in millions has after a single
// step, would have to meet one of the few values where e4m3 rounds to another number.
bool ProgramSource::only_quantized(const Expr& e) const {
  for (const ProgramOutput& o : outputs_)
    if (o.value == e && o.dtype != DType::E4M3) return false;
  const std::vector<Expr> all = topological(values());
  return std::none_of(all.begin(), all.end(), [&](const Expr& user) {
    return std::find(user->in.begin(), user->in.end(), e) != user->in.end();
  });
}

// The name of a fragment of quotients that share a divisor.
std::string ProgramSource::quotient(const Expr& e) {
  const Value dividend = value(e->in[0]), divisor = value(e->in[1]);
  std::string& by = quotients_[e->in[1].get()];
  if (by.empty()) {
    by = fresh();
    before_ += "    const Quotients " + by + "(" + divisor.name + ");\n";
  }
  std::string out = fresh();
  loop_ += "        const Frag<float, kWidth> " + out + " = " + by + ".of<" +
           (size_of(dividend.holds) <= 2 || only_quantized(e) ? "1, " : "2, ") +
           (by_largest(e->in[0], e->in[1]) ? "true" : "false") + ">(" + dividend.name + ");\n";
  return out;
}

ProgramSource::Value ProgramSource::rounding(const Expr& e) {
  Value x = value(e->in[0]);
  const DType type = *e->attrs.dtype;
  if (const auto keeps = kept_.find(e.get()); keeps != kept_.end()) {
    loop_ += "        " + keeps->second + "[f] = from_floats<" + type_source(type) + ">(" +
             (x.uniform ? "splat<kWidth>(" + x.name + ")" : x.name) + ");\n";
    return kept(e);
  }
  if (type == x.holds || type == DType::F32 || type == DType::F64) return x;
  Value out{fresh(), x.uniform, type};
  const std::string round = "round_to<" + type_source(type) + ">(";
  if (x.uniform)
    before_ += "    const float " + out.name + " = " + round + x.name + ");\n";
  else
    loop_ += "        const Frag<float, kWidth> " + out.name + " = " + round + x.name + ");\n";
  return out;
}

// ---- the functor --------------------------------------------------------------------------------------------------

std::string ProgramSource::includes() const {
  std::string out;
  for (const std::string& h : headers_) out += "#include \"" + h + "\"\n";
  return out;
}

// The place of output `o`.
AccessSource& ProgramSource::place_of(const ProgramOutput& o) {
  size_t number = 0;
  for (const ProgramOutput& other : outputs_) {
    if (&other == &o) break;
    number += static_cast<bool>(other.place);
  }
  return places_[number];
}

// What output `o` stores, already emitted: a float if its place has one element per row, else a fragment.
std::string ProgramSource::result(const ProgramOutput& o) {
  const Value v = value(o.value);
  if (place_of(o).uniform()) return v.uniform ? v.name : v.name + ".v[0]";
  return v.uniform ? "splat<kWidth>(" + v.name + ")" : v.name;
}

// Statements that store output `o`, whose value has already been emitted.
std::string ProgramSource::stored(const ProgramOutput& o) { return place_of(o).store(result(o), width_); }

// The end of a functor that returns its value.
std::string ProgramSource::returned(const ProgramOutput& o) {
  const Value v = value(o.value);
  return v.uniform ? "splat<kWidth>(" + v.name + ")" : v.name;
}

// Computing and storing as separate functions. An output without a place is what statistics count.
std::string ProgramSource::in_two(const std::string& at, const std::string& accumulators, const std::string& row) {
  std::string members, fill, stores;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const ProgramOutput& o = outputs_[i];
    const std::string name = o.place ? "out" + std::to_string(i) : "counted";
    const bool one = o.place && place_of(o).uniform();
    members += std::string("    ") + (one ? "float " : "Frag<float, kWidth> ") + name + ";\n";
    fill += "    computed." + name + " = " + (o.place ? result(o) : returned(o)) + ";\n";
    if (o.place) stores += "        " + place_of(o).store("computed." + name, width_) + "\n";
  }
  const std::string loads = loads_apart_ ? "  struct Loads {\n" + members_ + "  };\n  DEV static Loads loads(" + at +
                                               ") {\n" + row + "    Loads l;\n" + loads_ + "    return l;\n  }\n"
                                         : "";
  return loads + "  struct Computed {\n" + members + "  };\n  DEV static Computed compute(" + at + accumulators +
         (loads_apart_ ? ", const Loads& l" : "") + ") {\n" + row + before_ + loop_ + "    Computed computed;\n" +
         fill + "    return computed;\n  }\n  DEV static void store(" + at + ", const Computed& computed) {\n" + row +
         stores + "  }\n";
}

std::string ProgramSource::plain_code(int lanes) {
  const bool returns = !outputs_[0].place && lanes == 0;
  const std::string at = "const Params& p, int row_number, int col", row = "    const Row r = row(p, row_number);\n";
  if (lanes) return in_two(at, ", const Frag<float, kWidth> (&acc)[" + std::to_string(lanes) + "]", row);
  loads_apart_ = !returns;
  std::string end;
  for (const ProgramOutput& o : outputs_) {
    const std::string done = o.place ? stored(o) : "return " + returned(o) + ";";
    end += "        " + done + "\n";
  }
  const std::string results = row + before_ + loop_ + end + "  }\n";
  if (!loads_apart_) return "  DEV static Frag<float, kWidth> eval(" + at + ") {\n" + results;
  // As many rows at once as leave registers for the maths.
  const bool full = burden_ > 2 || (joined_ && beside_ > 1);
  at_once_ = full ? 1 : burden_ > 1 ? 2 : 4;
  return "  static constexpr int kAtOnce = " + std::to_string(at_once_) + ";\n  struct Loads {\n" + members_ +
         "  };\n  DEV static Loads loads(" + at + ") {\n" + row + "    Loads l;\n" + loads_ +
         "    return l;\n  }\n  DEV static void results(" + at + ", const Loads& l) {\n" + results +
         "  DEV static void eval(" + at + ") { results(p, row_number, col, loads(p, row_number, col)); }\n";
}

std::string ProgramSource::functor(const std::string& name, int lanes) {
  const std::string members = reduces_ ? reducing_code() : plain_code(lanes);
  std::string row = "  struct Row {\n    int row;\n", code;
  const auto add = [&](const AccessSource& a) {
    row += a.row_members();
    code += a.row_code();
  };
  for (const auto& [node, a] : accesses_) add(a);
  for (const AccessSource& a : places_) add(a);
  return "struct " + name + " {\n  static constexpr int kWidth = " + std::to_string(width_) + ";\n" + row +
         "  };\n  DEV static Row row(const Params& p, int row) {\n    Row r;\n    r.row = row;\n" + code +
         "    return r;\n  }\n" + members + "};\n";
}

std::string statistics_source(const std::string& name, std::span<const Statistic> wanted, Params& params,
                              std::string& headers) {
  std::string stores;
  std::set<std::string> needed;
  for (const Statistic& s : wanted) {
    const NodeStruct& node = node_struct(s.kind);
    needed.insert(node.header);
    stores += "    " + params.pointer(s.place, true) + "[at] = nodes::" + node.name +
              "::of_moments<float>(m.count, m.mean, m.m2);\n";
  }
  for (const std::string& header : needed) headers += "#include \"" + header + "\"\n";
  return "  DEV static void " + name + "(const Params& p, int64_t at, const Moments& m) {\n" + stores + "  }\n";
}

}  // namespace tenon::cuda
