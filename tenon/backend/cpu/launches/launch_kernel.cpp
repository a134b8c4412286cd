#include "tenon/backend/cpu/launches/launch_kernel.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tenon/backend/cpu/host_memory.h"
#include "tenon/core/dump.h"
#include "tenon/expr/ops.h"

namespace tenon::cpu {
namespace {

// A parameter in the leaf's type.
WeightRequest plain_weight(const Expr& leaf, std::shared_ptr<Engine> engine) {
  const auto graph = std::make_shared<Graph>();
  Memo memo;
  const Expr own = rebuild(*graph, leaf, memo);
  const auto make = [graph, own, engine = std::move(engine)](const WeightMaking& with, std::span<void* const> parts) {
    copy_weight(with.find(own), own.dtype(), parts[0], engine->vec);
  };
  return {{{plain_key(leaf), round_up(leaf.shape().numel() * size_of(leaf.dtype()), 64)}},
          params_of(std::array{leaf}),
          {},
          make};
}

}  // namespace

LaunchKernel::LaunchKernel(std::shared_ptr<Engine> engine, const Launch& launch, Form form)
    : engine_(std::move(engine)), name_(launch.name), form_(std::move(form)) {
  compile_lets();
}

// ---- sizes --------------------------------------------------------------------------------------------------------

int64_t LaunchKernel::reserve_scratch(int64_t bytes) {
  const int64_t at = scratch_bytes_;
  scratch_bytes_ += round_up(bytes, 64);
  return at;
}

size_t LaunchKernel::ask(WeightRequest request) {
  requests_.push_back(std::move(request));
  return requests_.size() - 1;
}

void LaunchKernel::use(const Tape& tape) {
  workspace_bytes_ = std::max(workspace_bytes_, round_up(tape.workspace_bytes(), 64));
  if (dumping()) tapes_ += tape.text() + "\n";
}

void LaunchKernel::place_in_scratch(const Expr& leaf) {
  in_scratch_.emplace_back(leaves_.add(leaf), reserve_scratch(leaf.shape().numel() * size_of(leaf.dtype())));
}

void LaunchKernel::seal() {
  for (const Counted& c : counted_) use(c.statistics.tape());
  workspace_at_ = reserve_scratch(workspace_bytes_ * threads());
  int64_t most = 0;
  for (const Counted& c : counted_) most = std::max(most, c.statistics.scratch_bytes(threads()));
  statistics_at_ = reserve_scratch(most);
  for (int i = 0; i < leaves_.size(); ++i) {
    const Expr& leaf = leaves_.leaf(i);
    if (leaf.is<nodes::Param>()) in_weights_.emplace_back(i, ask(plain_weight(leaf, engine_)));
  }
  dump("tapes/" + name_ + ".txt", tapes_);
}

// ---- lets ---------------------------------------------------------------------------------------------------------

void LaunchKernel::compile_lets() {
  for (const Let& let : form_.lets) {
    const Shape domain = domain_of(let.value);
    place_in_scratch(let.leaf);
    lets_.push_back({Tape(std::array{TapeOutput{let.value, let.leaf, let.leaf.dtype()}}, domain, leaves_, engine_->vec),
                     leaves_.find(let.leaf)});
    use(lets_.back().tape);
  }
}

// ---- results ------------------------------------------------------------------------------------------------------

Statistics* LaunchKernel::statistics_of(const Expr& value) {
  for (Counted& c : counted_)
    if (c.value == value) return &c.statistics;
  return nullptr;
}

void LaunchKernel::compile_statistic(const FormOutput& output, const Expr& source, const Shape& domain) {
  if (!statistics_of(output.value))
    counted_.push_back({output.value, Statistics(source, domain, output.statistic_shape, leaves_, engine_->vec)});
  statistics_of(output.value)->add(output.statistic, leaves_.add(output.place));
}

Expr LaunchKernel::stored_copy(const FormOutput& output, std::vector<TapeOutput>& stored) {
  LeafTable unused;
  for (const FormOutput& o : form_.outputs) {
    if (o.statistic || o.companion || o.value != output.value || o.dtype != o.value.dtype()) continue;
    const Access place(o.place, form_.domain, 0, unused);
    if (place.affine() && place.affine()->offset == 0 && place.affine()->cols.size() == 1 &&
        place.affine()->cols[0].stride == 1)
      return input(*form_.graph, o.buffer, o.dtype, output.statistic_shape);
  }
  const Expr copy = input(*form_.graph, "%copy." + std::to_string(counted_.size()), DType::F32, output.statistic_shape);
  stored.push_back({output.value, reshape(copy, form_.domain), DType::F32});
  place_in_scratch(copy);
  return copy;
}

std::unique_ptr<Tape> LaunchKernel::compile_results(TapeOptions options) {
  std::vector<TapeOutput> stored;
  for (const FormOutput& o : form_.outputs)
    if (!o.statistic && !o.companion) stored.push_back({o.value, o.place, o.dtype});
  for (const FormOutput& o : form_.outputs) {
    if (!o.statistic) continue;
    const Expr source = statistics_of(o.value) ? Expr() : stored_copy(o, stored);
    compile_statistic(o, source, o.statistic_shape);
  }
  auto tape = std::make_unique<Tape>(stored, form_.domain, leaves_, engine_->vec, options);
  use(*tape);
  return tape;
}

void LaunchKernel::compile_statistics() {
  for (const FormOutput& o : form_.outputs) compile_statistic(o, o.value, form_.domain);
}

// ---- memory -------------------------------------------------------------------------------------------------------

void copy_weight(const ParamView& from, DType type, void* dst, const VecOps& ops) {
  const int64_t n = from.shape.numel();
  if (from.dtype == type) {
    std::memcpy(dst, from.data, static_cast<size_t>(n * size_of(type)));
    return;
  }
  std::byte* to = static_cast<std::byte*>(dst);
  const std::byte* data = static_cast<const std::byte*>(from.data);
  alignas(64) float values[1024];
  for (int64_t i = 0; i < n; i += 1024) {
    const int64_t part = std::min<int64_t>(1024, n - i);
    void* source = const_cast<std::byte*>(data + i * size_of(from.dtype));
    ops.load(from.dtype)({source, part, 1, 1, part, values, part, 0});
    ops.store(type)({to + i * size_of(type), part, 1, 1, part, values, part, 0});
  }
}

void LaunchKernel::bind(const BufferTable& buffers, std::span<void* const> weights, void*) {
  weights_.assign(weights.begin(), weights.end());
  bases_.assign(static_cast<size_t>(leaves_.size()), nullptr);
  for (const auto& [leaf, number] : in_weights_) bases_[static_cast<size_t>(leaf)] = weight(number);
  for (int i = 0; i < leaves_.size(); ++i)
    if (leaves_.literal(i)) bases_[static_cast<size_t>(i)] = leaves_.literal(i);
  rebind(buffers);
}

bool LaunchKernel::in_caller_memory(int leaf) const {
  const auto is_leaf = [leaf](const auto& placed) { return placed.first == leaf; };
  return !leaves_.literal(leaf) && !std::any_of(in_scratch_.begin(), in_scratch_.end(), is_leaf) &&
         !std::any_of(in_weights_.begin(), in_weights_.end(), is_leaf);
}

void LaunchKernel::rebind(const BufferTable& buffers) {
  for (int i = 0; i < leaves_.size(); ++i) {
    if (!in_caller_memory(i)) continue;
    const void*& base = bases_[static_cast<size_t>(i)];
    base = buffers(leaves_.leaf(i)->attrs.text);
    TENON_CHECK(Internal, base || leaves_.leaf(i).shape().numel() == 0, name_)
        << "no memory for buffer '" << leaves_.leaf(i)->attrs.text << "'";
  }
}

// ---- run ----------------------------------------------------------------------------------------------------------

void LaunchKernel::run_tape(const Tape& tape, const Block& block, int thread) const {
  TapeCall call;
  call.block = block;
  call.bases = bases();
  call.workspace = workspace(thread);
  tape.run(call);
}

void LaunchKernel::run(Stream&, void* scratch) {
  scratch_ = static_cast<std::byte*>(scratch);
  for (const auto& [leaf, offset] : in_scratch_) bases_[static_cast<size_t>(leaf)] = scratch_ + offset;
  for (const LetTape& let : lets_) run_tape(let.tape, {0, let.tape.rows(), 0, let.tape.cols()}, 0);
  compute(scratch_);
  for (const Counted& c : counted_)
    c.statistics.run(
        engine_->pool, bases(), [&](int thread) { return workspace(thread); }, scratch_ + statistics_at_);
}

}  // namespace tenon::cpu
