#include "tenon/backend/stored_launch.h"

#include <array>

#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon {
namespace {

constexpr int64_t kStoredAlignment = 64;

// A launch with all that is needed to run it again after its plan is gone.
struct Repeatable {
  std::shared_ptr<Backend> backend;
  Graph graph;
  Launch launch;
  std::vector<std::string> reads;  // stored buffers, in the order of the request's needs
  std::shared_ptr<Kernel> kernel;  // for the first run

  void run(const WeightMaking& with, std::span<void* const> parts) {
    const std::shared_ptr<Kernel> k = kernel ? std::move(kernel) : backend->make_kernel(launch);
    kernel = nullptr;
    run_alone(*backend, *k, with, [&](const std::string& name) { return address(name, with, parts); });
  }

  void* address(const std::string& name, const WeightMaking& with, std::span<void* const> parts) const {
    for (size_t i = 0; i < launch.outputs.size(); ++i)
      if (launch.outputs[i].buffer == name) return parts[i];
    for (size_t i = 0; i < reads.size(); ++i)
      if (reads[i] == name) return with.needs[i];
    throw Error(ErrorKind::Internal, launch.name, "reads '" + name + "', which is not stored");
  }
};

}  // namespace

void run_alone(Backend& backend, Kernel& kernel, const WeightMaking& with, const BufferTable& buffers) {
  const auto allocate = [&](int64_t bytes) { return backend.allocate(bytes); };
  const std::vector<std::shared_ptr<void>> weights = make_apart(kernel.weights(), with, allocate);
  std::vector<void*> addresses;
  for (const auto& w : weights) addresses.push_back(w.get());
  const std::shared_ptr<void> kept = allocate(kernel.memory().kept), scratch = allocate(kernel.memory().scratch);
  kernel.bind(buffers, addresses, kept.get());
  kernel.run(with.stream, scratch.get());
  with.stream.synchronize();
  with.waited = true;
}

WeightRequest StoredLaunches::request(const Launch& launch, std::shared_ptr<Kernel> kernel) {
  const auto again = std::make_shared<Repeatable>();
  again->backend = backend_;
  again->launch = launch;
  again->kernel = std::move(kernel);
  WeightRequest r;
  Memo own;
  std::vector<Expr> roots;
  for (Output& o : again->launch.outputs) roots.push_back(o.value = rebuild(again->graph, o.value, own));
  r.params = params_of(roots);
  Memo memo;
  for (const Expr& e : operands_of(launch)) {
    if (e.is<nodes::Param>()) continue;
    memo.emplace(e.get(), values_.at(e->attrs.text));
    again->reads.push_back(e->attrs.text);
    r.needs.push_back(keys_.at(e->attrs.text));
  }
  for (const Output& o : launch.outputs) {
    const Expr value = rebuild(graph_, o.value, memo);
    const int64_t bytes = bytes_of(o.value.shape(), o.value.dtype());
    r.parts.push_back({"by " + launch.skeleton + "\n" + print(value),
                       (bytes + kStoredAlignment - 1) / kStoredAlignment * kStoredAlignment});
    values_[o.buffer] = value;
    keys_[o.buffer] = r.parts.back().key;
  }
  r.make = [again](const WeightMaking& with, std::span<void* const> parts) { again->run(with, parts); };
  return r;
}

int64_t transient_bytes(const Kernel& kernel) {
  int64_t bytes = kernel.memory().kept + kernel.memory().scratch;
  for (const WeightRequest& r : kernel.weights())
    for (const WeightRequest::Part& p : r.parts) bytes += p.bytes;
  return bytes;
}

}  // namespace tenon
