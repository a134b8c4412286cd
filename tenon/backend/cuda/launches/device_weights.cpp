#include "tenon/backend/cuda/launches/device_weights.h"

#include <algorithm>
#include <array>
#include <map>

#include "tenon/backend/cuda/launches/kernel_call.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cuda {
namespace {

WeightRequest request_of(const Expr& leaf, std::string key, std::vector<std::string> params) {
  return {{{std::move(key), div_up(leaf_bytes(leaf), kMemoryAlignment) * kMemoryAlignment}}, std::move(params), {}, {}};
}

// Copies a parameter's elements to device memory, in the leaf's type.
void upload(Device& device, const WeightMaking& with, const ParamView& view, const Expr& leaf, void* dst) {
  Stream& stream = with.stream;
  const int64_t bytes = view.shape.numel() * size_of(view.dtype);
  if (view.dtype == leaf.dtype()) {
    if (view.on_device)
      device.copy(stream, dst, view.data, bytes);
    else
      device.copy_in(stream, dst, view.data, bytes), with.waited = true;
    return;
  }
  if (bytes == 0) return;
  with.waited = true;
  std::shared_ptr<void> copy;
  void* raw = const_cast<void*>(view.data);
  if (!view.on_device) {
    copy = device.allocate(bytes);
    device.copy_in(stream, copy.get(), view.data, bytes);
    raw = copy.get();
  }
  Graph g;
  const Expr from = input(g, "from", view.dtype, view.shape), to = input(g, "to", leaf.dtype(), view.shape);
  const ProgramOutput cast_to{from, to, leaf.dtype()};
  KernelCall call = plain_call(device, "convert weights", std::array{cast_to}, view.shape);
  call.bind([&](const Expr& l) { return l == from ? raw : dst; });
  call.enqueue(stream);
  stream.synchronize();
}

struct Packed;
using Views = std::map<const Node*, ParamView>;

// The kernel calls that pack parameters which are already on the device, in the types that they have there. Calls for
// updates are kept, since every training step runs them.
class PackingCalls {
 public:
  void run(Device& device, Stream& stream, const Packed& packed, const Views& views, void* dst);

 private:
  void make(Device& device, const Packed& packed, const Views& views);

  std::map<const Node*, DType> types_;  // parameter types for which the calls were made
  std::unique_ptr<Graph> graph_;
  std::map<const Node*, const Node*> leaf_of_;  // maps a kernel's leaf to the leaf in the writes
  std::vector<KernelCall> calls_;
};

// A leaf and the values stored through views of it, in a graph of their own.
struct Packed {
  Graph graph;
  Expr leaf;
  std::vector<PackedWrite> writes;
  PackingCalls in_place;

  // The leaf loses its name, which only says how a kernel refers to it.
  Packed(const Expr& of, const std::vector<PackedWrite>& from) {
    leaf = input(graph, "packed", of.dtype(), of.shape());
    Memo memo{{of.get(), leaf}};
    for (const PackedWrite& p : from) writes.push_back({rebuild(graph, p.value, memo), rebuild(graph, p.place, memo)});
  }

  // True if a kernel can read all parameters in place: their types match the leaves, or the stored values are only
  // views, rounded at the end.
  bool read_in_place(const Views& views) const {
    const bool only_views = std::ranges::all_of(writes, [](const PackedWrite& p) { return is_view_chain(p.value); });
    return std::ranges::all_of(views, [&](const auto& v) {
      const DType wanted = v.first->dtype;
      return v.second.on_device && (v.second.dtype == wanted || (only_views && wanted == leaf.dtype()));
    });
  }

  std::string key() const {
    std::vector<Expr> all;
    for (const PackedWrite& p : writes) {
      all.push_back(p.value);
      all.push_back(p.place);
    }
    return "packed\n" + print(all);
  }

  std::vector<std::string> params() const {
    std::vector<Expr> values;
    for (const PackedWrite& p : writes) values.push_back(p.value);
    return params_of(values);
  }

  void compute(Device& device, const WeightMaking& with, void* dst) {
    Views views;
    for (const PackedWrite& write : writes)
      for (const Expr& l : memory_leaves(write.value))
        if (write.value.shape().numel() > 0 && !views.contains(l.get())) views[l.get()] = with.find(l);
    if (read_in_place(views)) return in_place.run(device, with.stream, *this, views, dst);
    std::vector<std::shared_ptr<void>> memory;
    for (auto& [node, view] : views) {
      const Expr l(node);
      memory.push_back(device.allocate(leaf_bytes(l)));
      upload(device, with, view, l, memory.back().get());
      view = {l.dtype(), l.shape(), memory.back().get(), true};
    }
    PackingCalls().run(device, with.stream, *this, views, dst);
    with.stream.synchronize();
    with.waited = true;
  }
};

void PackingCalls::make(Device& device, const Packed& packed, const Views& views) {
  calls_.clear();
  leaf_of_.clear();
  graph_ = std::make_unique<Graph>();
  Memo memo{{packed.leaf.get(), input(*graph_, "packed", packed.leaf.dtype(), packed.leaf.shape())}};
  for (const PackedWrite& write : packed.writes)  // in this order, so that equal weights get equal kernel sources
    for (const Expr& l : memory_leaves(write.value)) {
      if (!views.contains(l.get()) || memo.contains(l.get())) continue;
      const DType there = types_[l.get()] = views.at(l.get()).dtype;
      const std::string name = "from" + std::to_string(leaf_of_.size());
      const Expr from = l.is<nodes::Param>() ? param(*graph_, name, there, l.shape())
                                             : input(*graph_, name, there, l.shape(), l->rate);
      leaf_of_[from.get()] = l.get();
      memo.emplace(l.get(), from);
    }
  for (const PackedWrite& write : packed.writes) {
    if (write.value.shape().numel() == 0) continue;
    const Expr value = rebuild(*graph_, write.value, memo), place = rebuild(*graph_, write.place, memo);
    const ProgramOutput output{value, place, packed.leaf.dtype()};
    calls_.push_back(plain_call(device, "pack weights", std::array{output}, domain_of(value)));
  }
}

void PackingCalls::run(Device& device, Stream& stream, const Packed& packed, const Views& views, void* dst) {
  const auto as_made = [&](const auto& v) { return types_.contains(v.first) && types_.at(v.first) == v.second.dtype; };
  if (!graph_ || !std::ranges::all_of(views, as_made)) make(device, packed, views);
  for (KernelCall& call : calls_) {
    call.bind([&](const Expr& l) {
      const auto it = leaf_of_.find(l.get());
      return it == leaf_of_.end() ? dst : const_cast<void*>(views.at(it->second).data);
    });
    call.enqueue(stream);
  }
}

}  // namespace

std::vector<Expr> memory_leaves(const Expr& value) {
  std::vector<Expr> out;
  for (const Expr& e : topological(std::array{value}))
    if (is_memory_leaf(e)) out.push_back(e);
  return out;
}

Expr permuted_rows(const Expr& rows) {
  const Shape shape = rows.shape();
  std::vector<int64_t> blocks = {shape[0] / 32, 4, 4, 2}, order = {0, 2, 1, 3};
  for (int axis = 1; axis < shape.rank(); ++axis) {
    blocks.push_back(shape[axis]);
    order.push_back(axis + 3);
  }
  return reshape(permute(reshape(rows, Shape(blocks)), order), shape);
}

PermutedRows stored_permuted(Graph& g, const std::string& name, DType t, const Shape& shape) {
  Shape stored = shape;
  stored[0] = div_up(shape[0], 32) * 32;
  const Expr leaf = input(g, name, t, stored);
  return {leaf, slice(permuted_rows(leaf), 0, 0, shape[0])};
}

WeightRequest plain_weight(std::shared_ptr<Device> device, const Expr& leaf) {
  const auto graph = std::make_shared<Graph>();
  Memo memo;
  const Expr own = rebuild(*graph, leaf, memo), place = input(*graph, "plain", leaf.dtype(), leaf.shape());
  const auto rounded = std::make_shared<Packed>(place, std::vector{PackedWrite{own, place}});
  WeightRequest r = request_of(leaf, plain_key(leaf), params_of(std::array{leaf}));
  r.make = [graph, own, rounded, device = std::move(device)](const WeightMaking& with, std::span<void* const> parts) {
    const ParamView view = with.find(own);
    if (view.on_device && view.dtype != own.dtype()) return rounded->compute(*device, with, parts[0]);
    upload(*device, with, view, own, parts[0]);
  };
  return r;
}

WeightRequest packed_weight(std::shared_ptr<Device> device, const Expr& leaf, const std::vector<PackedWrite>& writes) {
  const auto packed = std::make_shared<Packed>(leaf, writes);
  WeightRequest r = request_of(leaf, packed->key(), packed->params());
  r.make = [packed, device = std::move(device)](const WeightMaking& with, std::span<void* const> parts) {
    packed->compute(*device, with, parts[0]);
  };
  return r;
}

}  // namespace tenon::cuda
