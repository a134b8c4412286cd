#include "tenon/backend/cuda/launches/launch_kernel.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "tenon/backend/affine.h"
#include "tenon/backend/cuda/codegen/lets_source.h"
#include "tenon/backend/cuda/device/launches/sizes.h"
#include "tenon/backend/forms.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

constexpr int64_t kCluster = 8;  // blocks of a groups kernel call that combine in distributed shared memory

bool has_clusters(const Device& device) { return device.facts().arch == "sm_90a"; }

int64_t round_up(int64_t n) { return (n + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment; }

}  // namespace

LaunchKernel::LaunchKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
    : form_(std::move(form)),
      device_(std::move(device)),
      name_(launch.name),
      settled_(launch.settled.begin(), launch.settled.end()) {
  permute_tables();
  for (const Let& let : form_.lets) {
    place_in_scratch(let.leaf);
    ask_weights(let.value);
  }
  for (const FormOutput& o : form_.outputs) {
    ask_weights(o.value);
    ask_weights(o.place);
  }
}

// Tables of 16-bit elements whose rows the launch looks up are stored permuted, as a product reads its weights: an
// output layer that is tied to one shares its memory.
void LaunchKernel::permute_tables() {
  std::vector<Expr*> values;
  for (Let& let : form_.lets) values.push_back(&let.value);
  for (Expr& hole : form_.holes) values.push_back(&hole);
  for (FormOutput& o : form_.outputs) values.push_back(&o.value);
  for (FormOutput& o : form_.updates) values.push_back(&o.value);
  std::vector<Expr> roots;
  for (const Expr* value : values) roots.push_back(*value);
  Memo memo;
  for (const Expr& e : topological(roots)) {
    const Expr table = e.is<nodes::Gather>() ? e->in[0] : Expr();
    if (!table.is<nodes::Param>() || size_of(table.dtype()) != 2 || table.shape().rank() != 2) continue;
    const auto [at, added] = memo.try_emplace(table.get());
    if (!added) continue;
    const PermutedRows stored =
        stored_permuted(*form_.graph, "table." + std::to_string(memo.size()), table.dtype(), table.shape());
    at->second = stored.place;
    ask_packed(stored.leaf, {{table, stored.place}});
  }
  if (memo.empty()) return;
  for (Expr* value : values) *value = rebuild(*form_.graph, *value, memo);
}

// ---- sizes --------------------------------------------------------------------------------------------------------

int64_t LaunchKernel::reserve_scratch(int64_t bytes) {
  const int64_t at = scratch_bytes_;
  scratch_bytes_ += round_up(bytes);
  return at;
}

int64_t LaunchKernel::reserve_kept(int64_t bytes) {
  const int64_t at = kept_bytes_;
  kept_bytes_ += round_up(bytes);
  return at;
}

void LaunchKernel::place_in_scratch(const Expr& leaf) {
  in_own_[leaf.get()] = {false, reserve_scratch(leaf_bytes(leaf))};
}

void LaunchKernel::place_in_kept(const Expr& leaf) { in_own_[leaf.get()] = {true, reserve_kept(leaf_bytes(leaf))}; }

void LaunchKernel::ask(const Expr& leaf, WeightRequest request) {
  in_weights_[leaf.get()] = requests_.size();
  requests_.push_back(std::move(request));
}

void LaunchKernel::ask_weights(const Expr& value) {
  for (const Expr& leaf : memory_leaves(value))
    if (leaf.is<nodes::Param>() && !in_weights_.contains(leaf.get())) ask(leaf, plain_weight(device_, leaf));
}

void LaunchKernel::ask_packed(const Expr& leaf, const std::vector<PackedWrite>& writes) {
  ask(leaf, packed_weight(device_, leaf, writes));
}

bool LaunchKernel::stays(const Expr& value) const {
  const std::vector<Expr> leaves = memory_leaves(value);
  return std::all_of(leaves.begin(), leaves.end(), [this](const Expr& l) { return in_weights_.contains(l.get()); });
}

std::vector<ProgramOutput> LaunchKernel::results() const {
  std::vector<ProgramOutput> out;
  for (const FormOutput& o : form_.outputs)
    if (!o.statistic && !o.companion) out.push_back({o.value, o.place, o.dtype});
  out.insert(out.end(), copies_.begin(), copies_.end());
  return out;
}

// ---- statistics ---------------------------------------------------------------------------------------------------

void LaunchKernel::reserve_statistics(const std::function<CountTiles(const Shape& seen)>& core) {
  for (const FormOutput& o : form_.outputs) {
    if (!o.statistic) continue;
    auto found = std::find_if(counted_.begin(), counted_.end(), [&](const Counted& c) { return c.value == o.value; });
    if (found == counted_.end()) {
      found = counted_.emplace(found);
      found->value = o.value;
      found->shape = o.statistic_shape;
    }
    found->wanted.push_back({o.statistic, o.place});
  }
  for (Counted& c : counted_) {
    const CountTiles tiles = core && !counted_in_core() && core_can_count(c) ? core(c.shape) : CountTiles{};
    if (tiles.slots)
      reserve_in_core(c, tiles);
    else
      reserve_chunks(c);
  }
}

const LaunchKernel::Counted* LaunchKernel::counted_in_core() const {
  for (const Counted& c : counted_)
    if (c.in_core && counts_in_core_) return &c;
  return nullptr;
}

// True if the epilogue sees the value's elements as rows of all its channels.
bool LaunchKernel::core_can_count(const Counted& c) const {
  return c.shape.numel() > 0 && c.value.shape() == form_.domain && domain_of(c.value) == form_.domain &&
         form_.domain[-1] == c.shape[2];
}

void LaunchKernel::reserve_in_core(Counted& c, const CountTiles& tiles) {
  const int64_t samples = c.shape[0], channels = c.shape[2];
  c.in_core = true;
  c.whole = tiles.whole;
  c.sizes.inner = checked_int(c.shape[1]);
  c.sizes.slots = checked_int(tiles.slots);
  c.tile_rows = checked_int(tiles.tile_rows);
  if (tiles.slots < 2) return;
  c.partials_at = reserve_scratch(samples * 2 * tiles.slots * channels * 4);
  c.rows_at = reserve_scratch(samples * tiles.slots * 4);
}

// Combines the partial moments that the core's tiles stored.
void LaunchKernel::make_sums_call(const Counted& c) {
  if (c.sizes.slots < 2) return;
  // A warp loads four slots at once; the warps' moments are then combined one by one.
  const int lines = c.sizes.slots <= 4 ? 1 : c.sizes.slots <= 256 ? 8 : 32;
  Params params;
  params.set_sizes("CountSumsSizes", device::CountSumsSizes{checked_int(c.shape[2]), c.sizes.slots, c.sizes.inner,
                                                            c.tile_rows, nullptr, nullptr});
  KernelParts source;
  source.name = name_ + " sums";
  source.headers = "#include \"tenon/backend/cuda/device/products/count_sums.h\"\n";
  source.functors = "struct Statistics {\n" + statistics_source("store", c.wanted, params, source.headers) + "};\n";
  source.kernel = "KERNEL(" + std::to_string(32 * lines) + ", 1, Params, p) { count_sums<Statistics, " +
                  std::to_string(lines) + ">(p); }\n";
  CallShape shape;
  shape.threads = 32 * lines;
  shape.grid_x = (c.shape[2] + 31) / 32;
  shape.grid_y = c.shape[0];
  shape.shared_bytes = 3 * lines * 32 * 4;
  add(KernelCall(*device_, source, params, shape), {},
      {{offsetof(device::CountSumsSizes, partials), c.partials_at},
       {offsetof(device::CountSumsSizes, rows), c.rows_at}});
}

void LaunchKernel::reserve_chunks(Counted& c) {
  c.source = form_.anchor || domain_of(c.value) != c.value.shape() ? stored_copy(c) : c.value;
  // Blocks along the inner axis: as many as run at once, unless that leaves a thread too few rows. If there are few
  // rows of few columns, a cluster combines them without global memory; many clusters cost more than they save.
  constexpr int64_t kLines = 32, kBlocksOfMultiprocessor = 4, kBytesOfBlock = 128,  // per row
      kMinRows = 8;                                                                 // per thread
  const int64_t samples = device_->facts().samples_to_choose_for(c.shape[0]),
                ranges = std::max<int64_t>(samples * div_up(c.shape[2] * size_of(c.source.dtype()), kBytesOfBlock), 1),
                most = device_->facts().multiprocessors * kBlocksOfMultiprocessor / ranges,
                wanted = c.shape[1] / (kLines * kMinRows);
  c.in_cluster = has_clusters(*device_) && most >= 2 * kCluster && wanted > 1 && wanted <= 2 * kCluster;
  c.blocks = c.in_cluster ? kCluster : std::max<int64_t>(std::min(most, wanted), 1);
  if (c.in_cluster || c.blocks == 1) return;
  c.partials_at = reserve_scratch(2 * c.shape[0] * c.blocks * c.shape[2] * 4);
  c.counters_at = reserve_kept(c.shape[0] * c.shape[2] * 4);
}

// The leaf that holds the counted value: an output, or a copy in scratch.
Expr LaunchKernel::stored_copy(const Counted& c) {
  for (const FormOutput& other : form_.outputs) {
    if (other.statistic || other.companion || other.value != c.value || other.dtype != c.value.dtype()) continue;
    const auto pieces = affine_pieces(other.place, form_.domain, 0);
    if (!pieces || pieces->size() != 1) continue;
    const AffinePiece& p = pieces->front();
    if (p.leaf && p.offset == 0 && p.cols.size() == 1 && p.cols[0].stride == 1) return reshape(p.leaf, c.shape);
  }
  const Expr copy = input(*form_.graph, "%copy." + std::to_string(copies_.size()), DType::F32, c.shape);
  copies_.push_back({c.value, reshape(copy, form_.domain), DType::F32});
  place_in_scratch(copy);
  return copy;
}

void LaunchKernel::make_groups_call(const Counted& c) {
  const int64_t samples = c.shape[0], inner = c.shape[1], channels = c.shape[2];
  if (c.shape.numel() == 0) return;
  Params params;
  device::GroupsSizes sizes{};
  params.set_sizes("GroupsSizes", sizes);
  const MatrixDomain domain{c.source.shape(), c.source.shape().rank() - 1};
  const ProgramOutput value{c.source, {}, DType::F32};
  ProgramSource program(std::array{value}, domain, params, 8);
  sizes.samples = checked_int(samples);
  sizes.inner = checked_int(inner);
  sizes.channels = checked_int(channels);
  sizes.in_cluster = c.in_cluster;
  params.set_sizes("GroupsSizes", sizes);
  KernelParts source;
  source.name = name_ + " statistics";
  source.functors = program.functor("Value");
  source.headers = "#include \"tenon/backend/cuda/device/launches/groups.h\"\n" + program.includes();
  source.functors += "struct Statistics {\n" + statistics_source("store", c.wanted, params, source.headers) + "};\n";
  const int64_t cluster = has_clusters(*device_) ? kCluster : 1;
  source.kernel =
      "KERNEL(kGroupsThreads, 1, Params, p) { groups<Value, " + std::to_string(cluster) + ", Statistics>(p); }\n";
  CallShape shape;
  const int64_t columns = int64_t{8} * program.width();
  shape.threads = 256;
  shape.grid_x = c.blocks;
  shape.grid_y = (channels + columns - 1) / columns;
  shape.grid_z = samples;
  shape.cluster = c.in_cluster ? kCluster : 1;
  shape.shared_bytes = device::groups_shared_bytes(static_cast<int>(columns), static_cast<int>(cluster));
  add(KernelCall(*device_, source, params, shape), {{offsetof(device::GroupsSizes, arrived), kept(c.counters_at)}},
      {{offsetof(device::GroupsSizes, partials), c.partials_at}});
}

// ---- memory -------------------------------------------------------------------------------------------------------

void LaunchKernel::bind(const BufferTable& buffers, std::span<void* const> weights, void* kept) {
  weights_.assign(weights.begin(), weights.end());
  kept_ = static_cast<std::byte*>(kept);
  const auto find = [&](const Expr& value) {
    for (const Expr& leaf : memory_leaves(value))
      if (!in_own_.contains(leaf.get()) && !in_weights_.contains(leaf.get()) && !leaf.is<nodes::Param>() &&
          acc_lane(leaf) < 0)
        buffers_[leaf.get()] = nullptr;
  };
  for (const Let& let : form_.lets) find(let.value);
  for (const Expr& hole : form_.holes) find(hole);
  for (const FormOutput& o : form_.outputs) {
    if (!o.companion) find(o.value);
    find(o.place);
  }
  for (const FormOutput& o : form_.updates) {
    find(o.value);
    find(o.place);
  }
  rebind(buffers);
  make_lets();
  make_calls();
  for (const Counted& c : counted_) c.in_core ? make_sums_call(c) : make_groups_call(c);
  TENON_CHECK(Internal, std::ssize(calls_) == calls(), name_)
      << "has " << calls_.size() << " kernel calls, expected " << calls();
}

int LaunchKernel::calls() const {
  const std::vector<ProgramOutput> all = lets();
  int n = own_calls();
  if (!all.empty() && !lets_stay_in_maps()) n += lets_fit_block(all) ? 1 : static_cast<int>(all.size());
  for (const Counted& c : counted_) n += c.in_core ? c.sizes.slots > 1 : c.shape.numel() > 0;
  return n;
}

void LaunchKernel::rebind(const BufferTable& buffers) {
  for (auto& [leaf, address] : buffers_) address = buffers(leaf->attrs.text);
  bound_ = false;
}

std::vector<ProgramOutput> LaunchKernel::lets() const {
  std::vector<ProgramOutput> out;
  for (const Let& let : form_.lets) out.push_back({let.value, let.leaf, let.leaf.dtype()});
  return out;
}

// True if a let reads a buffer that the launch overwrites: all blocks would have to read it before any writes.
bool LaunchKernel::lets_read_outputs() const {
  for (const Let& let : form_.lets)
    for (const Expr& leaf : memory_leaves(let.value))
      if (std::any_of(form_.outputs.begin(), form_.outputs.end(),
                      [&](const FormOutput& o) { return o.buffer == leaf->attrs.text; }))
        return true;
  return false;
}

// Lets that only maps read are computed by every block of the map; a one-block kernel before it costs more.
bool LaunchKernel::lets_stay_in_maps() const {
  const std::vector<ProgramOutput> all = lets();
  std::vector<ProgramOutput> others = beside_maps();
  for (const Counted& c : counted_)
    if (!c.in_core) others.push_back({c.source, {}, DType::F32});
  int64_t largest = form_.domain.numel();
  for (const Expr& hole : form_.holes) largest = std::max(largest, hole.shape().numel());
  return !lets_read_outputs() && lets_read_by(others, all).empty() && lets_fit_map(*device_, all, largest);
}

void LaunchKernel::make_lets() {
  const std::vector<ProgramOutput> all = lets();
  if (all.empty()) return;
  lets_in_maps_ = lets_stay_in_maps();
  if (lets_in_maps_) return;
  if (std::optional<KernelCall> call = lets_call(*device_, name_, all)) return add(std::move(*call));
  for (const ProgramOutput& o : all)
    add(plain_call(*device_, name_ + " " + o.place->attrs.text, std::array{o}, domain_of(o.value)));
}

void LaunchKernel::add_values(const std::string& call_name, std::span<const ProgramOutput> outputs,
                              const Shape& domain) {
  const std::vector<ProgramOutput> read = lets_in_maps_ ? lets_read_by(outputs, lets()) : std::vector<ProgramOutput>{};
  const auto settled = [this](const Expr& leaf) {
    return in_weights_.contains(leaf.get()) || (!in_own_.contains(leaf.get()) && settled_.contains(leaf->attrs.text));
  };
  add(plain_call(*device_, call_name, outputs, domain, read, settled));
}

void* LaunchKernel::address(const Expr& leaf) const {
  if (const auto it = in_weights_.find(leaf.get()); it != in_weights_.end()) return weights_[it->second];
  if (const auto it = in_own_.find(leaf.get()); it != in_own_.end())
    return (it->second.kept ? kept_ : scratch_) + it->second.at;
  const auto it = buffers_.find(leaf.get());
  TENON_CHECK(Internal, it != buffers_.end(), name_) << "no memory for '" << leaf->attrs.text << "'";
  TENON_CHECK(Usage, reinterpret_cast<uintptr_t>(it->second) % kLeafAlignment == 0, leaf->attrs.text)
      << "buffers on the device must be " << kLeafAlignment << "-byte aligned";
  return it->second;
}

// ---- run ----------------------------------------------------------------------------------------------------------

void LaunchKernel::add(KernelCall call, const std::vector<SizesPointer>& kept,
                       std::vector<std::pair<size_t, int64_t>> scratch) {
  for (const SizesPointer& p : kept) call.set(p);
  calls_.push_back({std::move(call), std::move(scratch)});
}

void LaunchKernel::run(Stream& stream, void* scratch) {
  if (!bound_ || scratch_ != scratch) {
    bound_ = false;  // until every address is known
    scratch_ = static_cast<std::byte*>(scratch);
    for (PlacedCall& c : calls_) {
      c.call.bind([this](const Expr& leaf) { return address(leaf); });
      for (const auto& [at, offset] : c.scratch_pointers) c.call.set({at, scratch_ + offset});
    }
    bound_ = true;
  }
  for (PlacedCall& c : calls_) c.call.enqueue(stream);
}

std::string LaunchKernel::describe() const {
  std::string out;
  for (const PlacedCall& c : calls_) out += (out.empty() ? "" : "; ") + c.call.name();
  return out;
}

}  // namespace tenon::cuda
