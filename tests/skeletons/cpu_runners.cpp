// Every instruction set of the machine, with one thread and with two.
#include <cstring>

#include "tenon/backend/cpu/host_memory.h"
#include "tenon/backend/cpu/launches/launch_kernel.h"
#include "tests/skeletons/harness.h"
#include "tests/support/isa_backend.h"

namespace tenon::launches {
namespace {

using cpu::Isa;

// Memory aligned to cache lines.
class Aligned {
 public:
  explicit Aligned(int64_t bytes) : memory_(static_cast<size_t>(bytes) + 64, std::byte{0xff}) {}
  std::byte* data() {
    return reinterpret_cast<std::byte*>(cpu::round_up(reinterpret_cast<int64_t>(memory_.data()), 64));
  }

 private:
  std::vector<std::byte> memory_;
};

Tensors run_on(const Launch& l, const Tensors& tensors, Isa isa, int threads) {
  auto engine = std::make_shared<cpu::Engine>(threads, *cpu::tile_ops(isa));
  const std::unique_ptr<cpu::LaunchKernel> kernel = cpu::make_kernel(engine, l);
  std::map<std::string, Aligned> buffers;
  Tensors out;
  for (const Expr& e : operands_of(l)) {
    if (e.is<nodes::Param>()) continue;
    const HostTensor& t = tensors.at(e->attrs.text);
    auto [it, made] = buffers.try_emplace(e->attrs.text, static_cast<int64_t>(t.data.size()));
    std::copy(t.data.begin(), t.data.end(), it->second.data());
  }
  for (const Output& o : l.outputs) {
    out.emplace(o.buffer, HostTensor::zeros(o.value.dtype(), o.value.shape()));
    buffers.try_emplace(o.buffer, bytes_of(o.value.shape(), o.value.dtype()));
  }
  Stream stream;
  const auto weights = weights_of(*kernel, stream, tensors, cpu::allocate_host);
  kernel->bind([&](const std::string& name) { return buffers.at(name).data(); }, addresses_of(weights), nullptr);
  Aligned scratch(kernel->memory().scratch);
  kernel->run(stream, scratch.data());
  for (auto& [name, t] : out) std::memcpy(t.data.data(), buffers.at(name).data(), t.data.size());
  return out;
}

}  // namespace

const std::vector<Runner>& runners() {
  static const std::vector<Runner> all = [] {
    std::vector<Runner> out;
    for (const Isa isa : cpu::machine_isas())
      for (int threads : {1, 2})
        out.push_back({numbered(std::string(cpu::tile_ops(isa)->name) + ", threads ", threads),
                       cpu::tile_ops(isa)->name,
                       [isa, threads](const Launch& l, const Tensors& t) { return run_on(l, t, isa, threads); }});
    return out;
  }();
  return all;
}

}  // namespace tenon::launches
