#include "tenon/backend/cuda/launches/device_weights.h"

#include <array>
#include <map>

#include "tenon/backend/cuda/launches/kernel_call.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {
namespace {

WeightRequest request_of(const Expr& leaf, std::string key, std::vector<std::string> params) {
  return {{{std::move(key), div_up(leaf_bytes(leaf), kMemoryAlignment) * kMemoryAlignment}}, std::move(params), {}, {}};
}

// Elements of a parameter in memory of the device, in the leaf's type.
void upload(Device& device, Stream& stream, const ParamView& view, const Expr& leaf, void* dst) {
  const int64_t bytes = view.shape.numel() * size_of(view.dtype);
  if (view.dtype == leaf.dtype()) {
    if (view.on_device)
      device.copy(stream, dst, view.data, bytes);
    else
      device.copy_in(stream, dst, view.data, bytes);
    return;
  }
  if (bytes == 0) return;
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
  call.launch(stream);
  stream.synchronize();
}

// A leaf and what is stored through views of it, in a graph of their own.
struct Packed {
  Graph graph;
  Expr leaf;
  std::vector<PackedPiece> pieces;

  // The leaf loses its name, which says what a kernel calls it.
  Packed(const Expr& of, const std::vector<PackedPiece>& from) {
    leaf = input(graph, "packed", of.dtype(), of.shape());
    Memo memo{{of.get(), leaf}};
    for (const PackedPiece& p : from) pieces.push_back({rebuild(graph, p.value, memo), rebuild(graph, p.place, memo)});
  }

  std::string key() const {
    std::vector<Expr> all;
    for (const PackedPiece& p : pieces) {
      all.push_back(p.value);
      all.push_back(p.place);
    }
    return "packed\n" + print(all);
  }

  std::vector<std::string> params() const {
    std::vector<Expr> values;
    for (const PackedPiece& p : pieces) values.push_back(p.value);
    return params_of(values);
  }

  void compute(Device& device, const WeightMaking& with, void* dst) const {
    std::map<const Node*, std::shared_ptr<void>> memory;
    for (const PackedPiece& piece : pieces) {
      if (piece.value.shape().numel() == 0) continue;
      for (const Expr& l : memory_leaves(piece.value)) {
        if (memory.contains(l.get())) continue;
        memory[l.get()] = device.allocate(leaf_bytes(l));
        upload(device, with.stream, with.find(l), l, memory[l.get()].get());
      }
      const ProgramOutput output{piece.value, piece.place, leaf.dtype()};
      KernelCall call = plain_call(device, "pack weights", std::array{output}, domain_of(piece.value));
      call.bind([&](const Expr& l) { return l == leaf ? dst : memory.at(l.get()).get(); });
      call.launch(with.stream);
    }
    with.stream.synchronize();
  }
};

}  // namespace

std::vector<Expr> memory_leaves(const Expr& value) {
  std::vector<Expr> out;
  for (const Expr& e : topological(std::array{value}))
    if (is_memory_leaf(e)) out.push_back(e);
  return out;
}

WeightRequest plain_weight(std::shared_ptr<Device> device, const Expr& leaf) {
  const auto graph = std::make_shared<Graph>();
  Memo memo;
  const Expr own = rebuild(*graph, leaf, memo);
  WeightRequest r = request_of(leaf, plain_key(leaf), {leaf->attrs.text});
  r.make = [graph, own, device = std::move(device)](const WeightMaking& with, std::span<void* const> parts) {
    upload(*device, with.stream, with.find(own), own, parts[0]);
  };
  return r;
}

WeightRequest packed_weight(std::shared_ptr<Device> device, const Expr& leaf, const std::vector<PackedPiece>& pieces) {
  const auto packed = std::make_shared<const Packed>(leaf, pieces);
  WeightRequest r = request_of(leaf, packed->key(), packed->params());
  r.make = [packed, device = std::move(device)](const WeightMaking& with, std::span<void* const> parts) {
    packed->compute(*device, with, parts[0]);
  };
  return r;
}

}  // namespace tenon::cuda
