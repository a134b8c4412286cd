// Every instruction set, the best one with one thread and with two.
#include <cstring>

#include "planned/devices.h"
#include "tenon/backend/cpu/host_memory.h"
#include "tenon/backend/cpu/launch_kernel.h"

namespace tenon::planned {
namespace {

using cpu::Isa;

class IsaBackend : public Backend {
 public:
  IsaBackend(Isa isa, int threads) : engine_(std::make_shared<cpu::Engine>(threads, *cpu::tile_ops(isa))) {}
  std::string_view name() const override { return "cpu"; }
  std::string describe() const override { return engine_->tile.name; }
  int64_t memory_available() const override { return cpu::host_memory_available(); }
  std::vector<DType> types() const override { return {DType::F32, DType::BF16}; }
  std::shared_ptr<void> allocate(int64_t bytes) override { return cpu::allocate_host(bytes); }
  std::unique_ptr<Kernel> make_kernel(const Launch& launch) override { return cpu::make_kernel(engine_, launch); }
  std::unique_ptr<ListKernel> prepare_list(const Launch&) override { return nullptr; }
  void copy(Stream&, void* dst, const void* src, int64_t bytes) override {
    std::memcpy(dst, src, static_cast<size_t>(bytes));
  }
  void copy_in(Stream&, void* dst, const void* src, int64_t bytes) override {
    std::memcpy(dst, src, static_cast<size_t>(bytes));
  }
  void copy_out(Stream&, void* dst, const void* src, int64_t bytes) override {
    std::memcpy(dst, src, static_cast<size_t>(bytes));
  }

 private:
  std::shared_ptr<cpu::Engine> engine_;
};

}  // namespace

const std::vector<Device>& devices() {
  static const std::vector<Device> all = [] {
    std::vector<Device> out;
    const auto add = [&out](Isa isa, int threads) {
      const std::string name = cpu::tile_ops(isa)->name;
      out.push_back({threads == 1 ? name : name + ", two threads", std::make_shared<IsaBackend>(isa, threads)});
    };
    for (Isa isa : {Isa::Amx, Isa::Avx512Bf16, Isa::Avx512, Isa::Avx2}) {
      if (!cpu::tile_ops(isa)) continue;
      if (out.empty()) add(isa, 2);
      add(isa, 1);
    }
    return out;
  }();
  return all;
}

bool slow_devices() { return false; }

}  // namespace tenon::planned
