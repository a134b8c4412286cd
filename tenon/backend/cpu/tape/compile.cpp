// Compiles expressions in form to a tape: kinds of values, instructions, slots by liveness.
#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "tenon/backend/cpu/tape/tape.h"
#include "tenon/backend/forms.h"
#include "tenon/backend/uniform.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cpu {
namespace {

// Elements per slot: a handful of slots and the operands' cache lines fit the L1 cache.
constexpr int64_t kTapeBlock = 2048;
constexpr int64_t kMaxBlockRows = 256;
// For blocks along vectors: slots take a small part of the L1 cache, through which the vectors stream.
constexpr int64_t kStreamElements = 256;

int node_number(const NodeType* type) {
  const auto all = node_types();
  return static_cast<int>(std::find(all.begin(), all.end(), type) - all.begin());
}

bool is_rounding(const Expr& e) { return e->type->round != nullptr; }

}  // namespace

class TapeCompiler {
 public:
  TapeCompiler(Tape& tape, std::span<const TapeOutput> outputs, const Shape& domain, LeafTable& leaves,
               TapeOptions options)
      : t_(tape), outputs_(outputs), domain_(domain), leaves_(leaves), options_(options) {}

  void compile() {
    choose_shape();
    for (const TapeOutput& o : outputs_)
      if (o.place) written_.push_back(leaf_name(o.place));
    if (options_.elementwise) join_products();
    for (const TapeOutput& o : outputs_) output(o);
    if (options_.elementwise) find_direct();
    if (!options_.elementwise) find_turned();
    assign_slots();
  }

 private:
  static std::string leaf_name(Expr e) {
    while (e->family() == Family::View) e = e->in[0];
    return e->attrs.text;
  }

  void choose_shape() {
    std::vector<Expr> roots;
    bool joins = options_.collapse;
    for (const TapeOutput& o : outputs_) {
      roots.push_back(o.value);
      joins = joins && o.value.shape() == domain_;
    }
    for (const Expr& e : topological(roots)) t_.reduces_rows_ = t_.reduces_rows_ || e->family() == Family::Reduce;
    split_ = options_.split >= 0 ? options_.split : std::max(domain_.rank() - 1, 0);
    if (joins && !t_.reduces_rows_) split_ = split_of_long_rows(domain_, split_);
    int64_t cols = 1;
    for (int a = split_; a < domain_.rank(); ++a) cols *= domain_[a];
    t_.cols_ = cols;
    t_.rows_ = cols ? domain_.numel() / cols : 0;
    const int64_t most = options_.max_cols ? std::min(options_.max_cols, cols) : cols;
    t_.block_cols_ = t_.reduces_rows_ ? most : std::min(most, kTapeBlock);
    t_.block_cols_ = std::max<int64_t>(options_.elementwise ? kStreamElements : t_.block_cols_, 1);
    t_.block_rows_ = std::clamp<int64_t>(kTapeBlock / round_up(t_.block_cols_, 16), 1, kMaxBlockRows);
    if (cols == 1) t_.block_rows_ = kTapeBlock;
  }

  // If rows of an operand or result are adjacent in memory, a block has sixteen of them: a cache line holds one element
  // of each.
  void find_turned() {
    constexpr int64_t kSideBySide = 16, kLongestRow = 1024;  // whose slots of sixteen rows stay in nearby caches
    const auto turned = [&](int access) {
      return std::ranges::any_of(t_.accesses_[static_cast<size_t>(access)].pieces(), [](const Piece& p) {
        return p.number >= 0 && p.rows.back().stride == 1 && p.cols.back().stride > 1;
      });
    };
    bool stores = false;
    for (const Tape::Instruction& in : t_.code_)
      if (in.op == Tape::Op::Load && !uniform(in.dst) && turned(in.index)) t_.rows_at_once_ = kSideBySide;
    for (const Tape::Store& s : t_.stores_) stores = stores || (!uniform(s.value) && turned(s.place));
    if (stores) t_.rows_at_once_ = kSideBySide;
    if (t_.rows_at_once_ == 1) return;
    if (!t_.reduces_rows_) t_.block_cols_ = std::min(t_.block_cols_, kTapeBlock / kSideBySide);
    if (!t_.reduces_rows_ || (stores && t_.block_cols_ <= kLongestRow))
      t_.block_rows_ = std::max(t_.block_rows_, kSideBySide);
  }

  // ---- values ----

  int new_value(bool uniform, DType holds) {
    Tape::Value v;
    v.uniform = uniform;
    t_.values_.push_back(v);
    holds_.push_back(holds);
    return static_cast<int>(t_.values_.size()) - 1;
  }
  bool uniform(int value) const { return t_.values_[static_cast<size_t>(value)].uniform; }

  int emit(Tape::Instruction in, std::string label, bool is_uniform, DType holds) {
    in.dst = new_value(is_uniform, holds);
    t_.code_.push_back(in);
    t_.labels_.push_back(std::move(label));
    return in.dst;
  }

  int value_of(const Expr& root) {
    if (const auto it = known_.find(root.get()); it != known_.end()) return it->second;
    // Leaves are loaded through the views above them; leaves without views are loaded when a user needs them.
    for (const Expr& e : topological(std::array{root})) {
      if (known_.contains(e.get()) || origin_of(e) != Origin::Computed || joined_.contains(e.get())) continue;
      known_.emplace(e.get(), compute(e));
    }
    const auto it = known_.find(root.get());
    return it != known_.end() ? it->second : known_.emplace(root.get(), compute(root)).first->second;
  }

  // Known before `e` has a value itself; loads have theirs by then.
  bool uniform(const Expr& e) {
    return uniforms_.contains(e, [this](const Expr& view) { return uniform(value_of(view)); });
  }

  int compute(const Expr& e) {
    switch (origin_of(e)) {
      case Origin::Accumulator:
        return accumulator(e);
      case Origin::Literal:
        return constant(e);
      case Origin::Memory:
        return load(e);
      case Origin::Computed:
        break;
    }
    switch (e->family()) {
      case Family::View: {
        const int operand = value_of(e->in[0]);
        TENON_CHECK(Internal, e.is<nodes::Broadcast>() && uniform(operand), "tape")
            << e->name() << " of a computed value is not in form";
        return operand;
      }
      case Family::Pointwise:
        return is_rounding(e) ? rounding(e) : pointwise(e);
      case Family::Reduce:
        return reduction(e);
      default:
        throw Error(ErrorKind::Internal, "tape", std::string(e->name()) + " is not in form");
    }
  }

  // A chain of views and its leaves as text: "permute(slice(t3))". Cut short: it repeats views that others share.
  static std::string chain_text(const Expr& e) {
    constexpr size_t kLongest = 200;
    std::string out;
    const std::function<void(const Expr&)> add = [&](const Expr& x) {
      if (out.size() > kLongest) return;
      const bool leaf = x->family() == Family::Leaf;
      out += leaf && !x->attrs.text.empty() ? x->attrs.text : x->name();
      for (size_t i = 0; i < x->in.size(); ++i) out += i ? ", " : "(", add(x->in[i]);
      if (!leaf) out += ")";
    };
    add(e);
    return out.size() > kLongest ? out.substr(0, kLongest) + ".." : out;
  }

  int accumulator(const Expr& e) {
    Tape::Instruction in;
    in.op = Tape::Op::Accumulator;
    in.index = acc_lane(e);
    return emit(in, "accumulator, lane " + std::to_string(in.index), uniform(e), DType::F32);
  }

  int constant(const Expr& e) {
    const double number = literal_of(e)->attrs.nums[0];
    Tape::Instruction in;
    in.op = Tape::Op::Constant;
    in.index = static_cast<int>(t_.params_.size());
    t_.params_.insert(t_.params_.end(), 16, static_cast<float>(number));
    return emit(in, std::to_string(number), uniform(e), DType::F32);
  }

  int load(const Expr& e) {
    Tape::Instruction in;
    in.op = Tape::Op::Load;
    in.index = static_cast<int>(t_.accesses_.size());
    Access access(e, domain_, split_, leaves_);
    in.move = t_.ops_->load(access.dtype());
    in.in_place = access.dtype() == DType::F32;
    for (int leaf : access.leaves())
      in.in_place = in.in_place &&
                    (options_.elementwise ||
                     std::find(written_.begin(), written_.end(), leaves_.leaf(leaf)->attrs.text) == written_.end());
    const bool is_uniform = access.uniform() || t_.cols_ == 1;
    t_.accesses_.push_back(std::move(access));
    return emit(in, "load " + chain_text(e), is_uniform, e.dtype());
  }

  int pointwise(const Expr& e) {
    Tape::Instruction in;
    in.op = Tape::Op::Pointwise;
    std::vector<Expr> operands = e->in;
    if (std::any_of(operands.begin(), operands.end(), [this](const Expr& x) { return joined_.contains(x.get()); }))
      in.functions = products(e, operands);
    else
      in.functions = t_.ops_->pointwise(node_number(e->type));
    for (const Expr& x : operands) in.src[in.operands++] = value_of(x);
    in.index = static_cast<int>(t_.params_.size());
    for (double p : e->attrs.nums) t_.params_.push_back(static_cast<float>(p));
    return emit(in, std::string(e->name()), uniform(e), DType::F32);
  }

  // Finds products that a sum or difference computes in its own pass: those without other readers.
  void join_products() {
    std::vector<Expr> roots;
    for (const TapeOutput& o : outputs_) roots.push_back(o.value);
    std::unordered_map<const Node*, int> readers;
    for (const Expr& e : roots) ++readers[e.get()];
    const std::vector<Expr> all = topological(roots);
    for (const Expr& e : all)
      for (const Expr& x : e->in) ++readers[x.get()];
    for (const Expr& e : all) {
      if (!e.is<nodes::Add>() && !e.is<nodes::Sub>()) continue;
      for (const Expr& x : e->in)
        if (x.is<nodes::Mul>() && readers[x.get()] == 1) joined_.insert(x.get());
    }
    // Also sums that only one simple node reads.
    for (const Expr& e : all)
      if (e->family() == Family::Pointwise && e->in.size() == 1 && readers[e->in[0].get()] == 1 &&
          joins_products(e->in[0]) && t_.ops_->products({.after = node_number(e->type)}))
        joined_.insert(e->in[0].get());
  }
  bool joins_products(const Expr& e) const {
    return (e.is<nodes::Add>() || e.is<nodes::Sub>()) &&
           std::any_of(e->in.begin(), e->in.end(), [this](const Expr& x) { return joined_.contains(x.get()); });
  }

  // The function of a sum or difference of products, or of a node fused with one; replaces `operands` by those of the
  // products.
  const PointwiseFn* products(const Expr& top, std::vector<Expr>& operands) {
    const Expr e = joins_products(top) ? top : top->in[0];
    const bool left = joined_.contains(e->in[0].get()), right = joined_.contains(e->in[1].get());
    operands.clear();
    for (const Expr& x : e->in) {
      if (joined_.contains(x.get()))
        operands.insert(operands.end(), x->in.begin(), x->in.end());
      else
        operands.push_back(x);
    }
    return t_.ops_->products({.subtracts = e.is<nodes::Sub>(),
                              .left_product = left,
                              .right_product = right,
                              .after = e == top ? -1 : node_number(top->type)});
  }

  // Finds results that may be written directly to memory: f32, if nothing reads the values they replace later.
  void find_direct() {
    const auto name = [this](int access) {
      return leaves_.leaf(t_.accesses_[static_cast<size_t>(access)].affine()->number)->attrs.text;
    };
    for (Tape::Store& s : t_.stores_) {
      const auto maker =
          std::find_if(t_.code_.begin(), t_.code_.end(), [&](const auto& in) { return in.dst == s.value; });
      if (maker->op != Tape::Op::Pointwise || maker->direct || uniform(s.value) || s.move != t_.ops_->store(DType::F32))
        continue;
      std::set<int> replaced;  // loads of the same vector
      for (const Tape::Instruction& in : t_.code_)
        if (in.op == Tape::Op::Load && !uniform(in.dst) && name(in.index) == name(s.place)) replaced.insert(in.dst);
      s.direct = maker->direct = std::none_of(maker + 1, t_.code_.end(), [&](const Tape::Instruction& in) {
        return replaced.contains(in.dst) ||
               std::any_of(in.src.begin(), in.src.begin() + in.operands, [&](int x) { return replaced.contains(x); });
      });
    }
  }

  int rounding(const Expr& e) {
    const int x = value_of(e->in[0]);
    const DType type = *e->attrs.dtype, held = holds_[static_cast<size_t>(x)];
    if (type == held || type == DType::F32 || type == DType::F64) return x;
    Tape::Instruction in;
    in.op = Tape::Op::Round;
    in.round = t_.ops_->round(type);
    in.operands = 1;
    in.src[0] = x;
    return emit(in, "round to " + std::string(name_of(type)) + ",", uniform(e), type);
  }

  int reduction(const Expr& e) {
    TENON_CHECK(Internal, e->attrs.ints[0] == static_cast<int64_t>(ReduceOver::Last) && e->in[0].shape() == domain_,
                "tape")
        << e->name() << " over " << e->in[0].shape().str() << " is not a row reduction of " << domain_.str();
    Tape::Instruction in;
    in.op = Tape::Op::Reduce;
    in.reduce = t_.ops_->reduce(node_number(e->type));
    in.operands = 1;
    in.src[0] = full(value_of(e->in[0]));
    return emit(in, std::string(e->name()) + " of the row", uniform(e), DType::F32);
  }

  int full(int x) {
    if (!uniform(x)) return x;
    Tape::Instruction in;
    in.op = Tape::Op::Expand;
    in.operands = 1;
    in.src[0] = x;
    return emit(in, "repeat along the row,", false, holds_[static_cast<size_t>(x)]);
  }

  // ---- results ----

  void output(const TapeOutput& o) {
    int x = value_of(o.place ? without_rounding(o.value, o.dtype) : o.value);
    if (!o.place) return to_caller(x);
    Access place(o.place, domain_, split_, leaves_);
    TENON_CHECK(Internal, std::ranges::all_of(place.pieces(), [](const Piece& p) { return p.number >= 0; }), "tape")
        << "the place of " << leaf_name(o.place) << " is not a rearrangement";
    const bool per_row = o.value.shape() != domain_ || t_.cols_ == 1;
    if (!per_row) x = full(x);
    // Do not store from memory in place: another result may have overwritten it by then.
    for (Tape::Instruction& in : t_.code_)
      if (in.dst == x && options_.elementwise) in.in_place = false;
    t_.stores_.push_back({x, static_cast<int>(t_.accesses_.size()), t_.ops_->store(o.dtype)});
    t_.destinations_.push_back(chain_text(o.place) + " as " + std::string(name_of(o.dtype)));
    t_.accesses_.push_back(std::move(place));
  }

  void to_caller(int x) {
    // The last instruction writes directly to the caller's rows, unless its result has no slot of its own.
    const bool own =
        !t_.code_.empty() && t_.code_.back().dst == x && !uniform(x) && t_.code_.back().op != Tape::Op::Accumulator;
    if (!own && !uniform(x)) {
      Tape::Instruction copy;
      copy.op = Tape::Op::Round;
      copy.round = t_.ops_->round(DType::F32);
      copy.operands = 1;
      copy.src[0] = x;
      x = emit(copy, "copy", false, DType::F32);
    }
    if (uniform(x)) x = full(x);
    t_.code_.back().every_row = true;
    t_.values_[static_cast<size_t>(x)].external = true;
  }

  void assign_slots() {
    std::vector<size_t> last(t_.values_.size(), 0);
    for (size_t i = 0; i < t_.code_.size(); ++i)
      for (int k = 0; k < t_.code_[i].operands; ++k)
        last[static_cast<size_t>(t_.code_[i].src[static_cast<size_t>(k)])] = i;
    for (const Tape::Store& s : t_.stores_) last[static_cast<size_t>(s.value)] = t_.code_.size();
    std::vector<int> free[2];
    int made[2] = {0, 0};
    for (size_t i = 0; i < t_.code_.size(); ++i) {
      const Tape::Instruction& in = t_.code_[i];
      Tape::Value& v = t_.values_[static_cast<size_t>(in.dst)];
      const bool needs = in.op != Tape::Op::Constant && in.op != Tape::Op::Accumulator && !v.external;
      if (needs) {
        auto& pool = free[v.uniform];
        v.slot = pool.empty() ? made[v.uniform]++ : pool.back();
        if (!pool.empty()) pool.pop_back();
      }
      for (int k = 0; k < in.operands; ++k) {
        const size_t x = static_cast<size_t>(in.src[static_cast<size_t>(k)]);
        if (last[x] != i) continue;
        last[x] = t_.code_.size() + 1;                                    // only once, even if an operand occurs twice
        const bool keep = options_.elementwise && t_.values_[x].uniform;  // computed once, before all blocks
        if (t_.values_[x].slot >= 0 && !keep) free[t_.values_[x].uniform].push_back(t_.values_[x].slot);
      }
    }
    t_.full_slots_ = made[0];
    t_.uniform_slots_ = made[1];
  }

  Tape& t_;
  std::span<const TapeOutput> outputs_;
  const Shape& domain_;
  LeafTable& leaves_;
  TapeOptions options_;
  int split_ = 0;
  std::vector<std::string> written_;
  std::unordered_map<const Node*, int> known_;
  UniformValues uniforms_;
  std::unordered_set<const Node*> joined_;
  std::vector<DType> holds_;
};

Tape::Tape(std::span<const TapeOutput> outputs, const Shape& domain, LeafTable& leaves, const VecOps& ops,
           TapeOptions options)
    : ops_(&ops) {
  TapeCompiler(*this, outputs, domain, leaves, options).compile();
}

}  // namespace tenon::cpu
