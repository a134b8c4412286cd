#include "tenon/backend/cuda/launch_kernel.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "tenon/core/error.h"
#include "tenon/device/sizes.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/affine.h"

namespace tenon::cuda {
namespace {

constexpr int64_t kAlignment = 256;

int64_t round_up(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

std::vector<Expr> memory_leaves(const Expr& value) {
  std::vector<Expr> out;
  for (const Expr& e : topological(std::array{value}))
    if (is_memory_leaf(e)) out.push_back(e);
  return out;
}

}  // namespace

LaunchKernel::LaunchKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
    : form_(std::move(form)), device_(std::move(device)), name_(launch.name) {
  for (const Let& let : form_.lets) {
    place_in_scratch(let.leaf);
    keep_weights(let.value);
  }
  for (const FormOutput& o : form_.outputs) keep_weights(o.value);
}

// ---- sizes --------------------------------------------------------------------------------------------------------

int64_t LaunchKernel::reserve_scratch(int64_t bytes) {
  const int64_t at = scratch_bytes_;
  scratch_bytes_ += round_up(bytes);
  return at;
}

int64_t LaunchKernel::reserve_weights(int64_t bytes) {
  const int64_t at = weight_bytes_;
  weight_bytes_ += round_up(bytes);
  return at;
}

void LaunchKernel::place_in_scratch(const Expr& leaf) { in_scratch_[leaf.get()] = reserve_scratch(leaf_bytes(leaf)); }

void LaunchKernel::keep_weights(const Expr& value) {
  for (const Expr& leaf : memory_leaves(value)) {
    if (!leaf.is<nodes::Param>() || in_weights_.contains(leaf.get())) continue;
    in_weights_[leaf.get()] = reserve_weights(leaf_bytes(leaf));
    plain_weights_.push_back(leaf);
  }
}

void LaunchKernel::keep_computed(const Expr& leaf, const Expr& value, const Expr& place) {
  in_weights_[leaf.get()] = reserve_weights(leaf_bytes(leaf));
  computed_.push_back({leaf, value, place});
}

std::vector<ProgramOutput> LaunchKernel::results() const {
  std::vector<ProgramOutput> out;
  for (const FormOutput& o : form_.outputs)
    if (!o.statistic) out.push_back({o.value, o.place, o.dtype});
  out.insert(out.end(), copies_.begin(), copies_.end());
  return out;
}

// ---- statistics ---------------------------------------------------------------------------------------------------

void LaunchKernel::reserve_statistics() {
  for (const FormOutput& o : form_.outputs)
    if (o.statistic) count(o);
}

void LaunchKernel::count(const FormOutput& o) {
  auto found = std::find_if(counted_.begin(), counted_.end(), [&](const Counted& c) { return c.value == o.value; });
  if (found == counted_.end()) {
    Counted c;
    c.value = o.value;
    c.shape = o.statistic_shape;
    c.source = form_.anchor || domain_of(o.value) != o.value.shape() ? stored_copy(o) : o.value;
    // Blocks along the inner axis: a few rows for each line of threads, and enough blocks for the machine.
    constexpr int64_t kLines = 32, kMostChunks = 64;
    c.chunk = std::max(kLines, (c.shape[1] + kMostChunks - 1) / kMostChunks);
    c.chunks = std::max<int64_t>((c.shape[1] + c.chunk - 1) / c.chunk, 1);
    c.partials_at = reserve_scratch(2 * c.shape[0] * c.chunks * c.shape[2] * 4);
    c.arrived_at = reserve_weights(c.shape[0] * c.shape[2] * 4);
    counted_.push_back(c);
    found = counted_.end() - 1;
  }
  (o.statistic == &node_type<nodes::Sum>() ? found->sums : found->squares) = o.place;
}

// The leaf that holds what output `o` counts: another output, or a copy in the scratch.
Expr LaunchKernel::stored_copy(const FormOutput& o) {
  for (const FormOutput& other : form_.outputs) {
    if (other.statistic || other.value != o.value || other.dtype != o.value.dtype()) continue;
    const auto pieces = affine_pieces(other.place, form_.domain, 0);
    if (!pieces || pieces->size() != 1) continue;
    const AffinePiece& p = pieces->front();
    if (p.leaf && p.offset == 0 && p.cols.size() == 1 && p.cols[0].step == 1) return reshape(p.leaf, o.statistic_shape);
  }
  const Expr copy = input(*form_.graph, "copy." + std::to_string(counted_.size()), DType::F32, o.statistic_shape);
  copies_.push_back({o.value, reshape(copy, form_.domain), DType::F32});
  place_in_scratch(copy);
  return copy;
}

void LaunchKernel::make_groups_step(const Counted& c) {
  const int64_t samples = c.shape[0], inner = c.shape[1], channels = c.shape[2];
  if (c.shape.numel() == 0) return;
  Params params;
  device::GroupsSizes sizes{};
  params.set_sizes("GroupsSizes", sizes);
  const MatrixDomain domain{c.source.shape(), c.source.shape().rank() - 1};
  const ProgramOutput value{c.source, {}, DType::F32};
  ProgramText program(std::array{value}, domain, params, 8);
  const std::string sums = c.sums ? params.pointer(c.sums, true) : "nullptr",
                    squares = c.squares ? params.pointer(c.squares, true) : "nullptr";
  sizes.samples = checked_int(samples);
  sizes.inner = checked_int(inner);
  sizes.channels = checked_int(channels);
  sizes.chunk = checked_int(c.chunk);
  sizes.chunks = checked_int(c.chunks);
  params.set_sizes("GroupsSizes", sizes);
  KernelText text;
  text.name = name_ + " statistics";
  text.functors = program.functor("Value");
  text.headers = "#include \"tenon/device/groups.h\"\n" + program.includes();
  text.kernel = "KERNEL(kGroupsThreads, 1, Params, p) { groups<Value>(p, " + sums + ", " + squares + "); }\n";
  LaunchShape shape;
  const int64_t width = int64_t{8} * program.run();
  shape.threads = 256;
  shape.grid_x = static_cast<unsigned>((channels + width - 1) / width);
  shape.grid_y = static_cast<unsigned>(c.chunks);
  shape.grid_z = static_cast<unsigned>(samples);
  shape.shared_bytes = static_cast<unsigned>(2 * 32 * width * 4 + 16);
  add(Step(*device_, text, params, shape), {{offsetof(device::GroupsSizes, arrived), kept(c.arrived_at)}},
      {{offsetof(device::GroupsSizes, partials), c.partials_at}});
}

// ---- memory -------------------------------------------------------------------------------------------------------

void LaunchKernel::upload(const WeightSource& weights, const Expr& leaf, void* dst) {
  const HostView view = weights.find(leaf->attrs.text);
  TENON_CHECK(Model, view.shape == leaf.shape(), leaf->attrs.text)
      << "weight has shape " << view.shape.str() << ", expected " << leaf.shape().str();
  const int64_t bytes = view.shape.numel() * size_of(view.dtype);
  if (view.dtype == leaf.dtype()) {
    device_->copy_in(dst, view.data, bytes);
  } else if (bytes) {
    const std::shared_ptr<void> raw = device_->allocate(bytes);
    device_->copy_in(raw.get(), view.data, bytes);
    Graph g;
    const Expr from = input(g, "from", view.dtype, view.shape), to = input(g, "to", leaf.dtype(), view.shape);
    const ProgramOutput cast_to{from, to, leaf.dtype()};
    Step step = plain_step(*device_, "convert weights", std::array{cast_to}, view.shape);
    step.bind([&](const Expr& l) { return l == from ? raw.get() : dst; });
    step.launch();
    device_->synchronize();
  }
  weights.done(leaf->attrs.text);
}

void LaunchKernel::compute_kept(const WeightSource& weights, const Computed& c) {
  if (c.value.shape().numel() == 0) return;
  std::map<const Node*, std::shared_ptr<void>> memory;
  for (const Expr& leaf : memory_leaves(c.value)) {
    memory[leaf.get()] = device_->allocate(leaf_bytes(leaf));
    upload(weights, leaf, memory[leaf.get()].get());
  }
  const ProgramOutput output{c.value, c.place, c.leaf.dtype()};
  Step step = plain_step(*device_, "pack weights", std::array{output}, domain_of(c.value));
  step.bind([&](const Expr& l) { return l == c.leaf ? kept(in_weights_.at(l.get())) : memory.at(l.get()).get(); });
  step.launch();
  device_->synchronize();
}

void LaunchKernel::bind(const BufferTable& buffers, const WeightSource& weights) {
  weight_memory_ = weight_bytes_ ? device_->allocate(weight_bytes_) : nullptr;
  weights_ = static_cast<std::byte*>(weight_memory_.get());
  for (const Expr& leaf : plain_weights_) upload(weights, leaf, kept(in_weights_.at(leaf.get())));
  for (const Computed& c : computed_) compute_kept(weights, c);
  const auto find = [&](const Expr& value) {
    for (const Expr& leaf : memory_leaves(value))
      if (!in_scratch_.contains(leaf.get()) && !in_weights_.contains(leaf.get()) && !leaf.is<nodes::Param>() &&
          acc_lane(leaf) < 0)
        buffers_[leaf.get()] = nullptr;
  };
  for (const Let& let : form_.lets) find(let.value);
  for (const Expr& hole : form_.holes) find(hole);
  for (const FormOutput& o : form_.outputs) {
    find(o.value);
    find(o.place);
  }
  rebind(buffers);
  make_lets();
  make_steps();
  for (const Counted& c : counted_) make_groups_step(c);
}

void LaunchKernel::rebind(const BufferTable& buffers) {
  for (auto& [leaf, address] : buffers_) address = buffers(leaf->attrs.text);
  bound_ = false;
}

void LaunchKernel::make_lets() {
  std::vector<ProgramOutput> lets;
  for (const Let& let : form_.lets) lets.push_back({let.value, let.leaf, let.leaf.dtype()});
  if (lets.empty()) return;
  if (std::optional<Step> step = lets_step(*device_, name_, lets)) return add(std::move(*step));
  for (const ProgramOutput& o : lets)
    add(plain_step(*device_, name_ + " " + o.place->attrs.text, std::array{o}, domain_of(o.value)));
}

void* LaunchKernel::address(const Expr& leaf) const {
  if (const auto it = in_weights_.find(leaf.get()); it != in_weights_.end()) return weights_ + it->second;
  if (const auto it = in_scratch_.find(leaf.get()); it != in_scratch_.end()) return scratch_ + it->second;
  const auto it = buffers_.find(leaf.get());
  TENON_CHECK(Internal, it != buffers_.end(), name_) << "no memory for '" << leaf->attrs.text << "'";
  TENON_CHECK(Usage, reinterpret_cast<uintptr_t>(it->second) % kLeafAlignment == 0, leaf->attrs.text)
      << "buffers on the device must be " << kLeafAlignment << "-byte aligned";
  return it->second;
}

// ---- run ----------------------------------------------------------------------------------------------------------

void LaunchKernel::add(Step step, const std::vector<SizesPointer>& kept,
                       std::vector<std::pair<size_t, int64_t>> scratch) {
  for (const SizesPointer& p : kept) step.set(p);
  if (!steps_.empty() && steps_.back().zero) step.wait_whole();
  steps_.push_back({std::move(step), {}, std::move(scratch)});
}

void LaunchKernel::add_zero(const Expr& leaf) { steps_.push_back({std::nullopt, leaf, {}}); }

void LaunchKernel::run(void* scratch) {
  if (!bound_ || scratch_ != scratch) {
    bound_ = true;
    scratch_ = static_cast<std::byte*>(scratch);
    for (Action& a : steps_) {
      if (!a.step) continue;
      a.step->bind([this](const Expr& leaf) { return address(leaf); });
      for (const auto& [at, offset] : a.scratch_pointers) a.step->set({at, scratch_ + offset});
    }
  }
  for (Action& a : steps_) {
    if (a.step)
      a.step->launch();
    else
      device_->fill_zero(address(a.zero), leaf_bytes(a.zero));
  }
}

std::string LaunchKernel::describe() const {
  std::string out;
  for (const Action& a : steps_)
    if (a.step) out += (out.empty() ? "" : "; ") + a.step->name();
  return out;
}

}  // namespace tenon::cuda
