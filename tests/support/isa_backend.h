// A CPU backend for one instruction set with any number of threads, whatever the machine's best is.
#pragma once
#include <cstring>
#include <vector>

#include "tenon/backend/cpu/host_memory.h"
#include "tenon/backend/cpu/launches/launch_kernel.h"
#include "tenon/backend/cpu/launches/list_kernel.h"

namespace tenon::cpu {

/// The machine's instruction sets, the best last.
inline std::vector<Isa> machine_isas() {
  std::vector<Isa> out;
  for (int i = 0; i < kIsaCount; ++i)
    if (tile_ops(static_cast<Isa>(i))) out.push_back(static_cast<Isa>(i));
  return out;
}

}  // namespace tenon::cpu

namespace tenon {

class IsaBackend : public Backend {
 public:
  IsaBackend(cpu::Isa isa, int threads) : engine_(std::make_shared<cpu::Engine>(threads, *cpu::tile_ops(isa))) {}
  std::string_view name() const override { return "cpu"; }
  std::string describe() const override { return engine_->tile.name; }
  int64_t memory_available() const override { return cpu::host_memory_available(); }
  std::vector<DType> types() const override { return {DType::F32, DType::BF16}; }
  Target target() const override { return {}; }
  std::shared_ptr<void> allocate(int64_t bytes) override { return cpu::allocate_host(bytes); }
  std::unique_ptr<Kernel> make_kernel(const Launch& launch) override { return cpu::make_kernel(engine_, launch); }
  std::unique_ptr<ListKernel> prepare_list(const Launch& launch) override {
    return cpu::make_list_kernel(engine_, launch);
  }
  void copy(Stream&, void* dst, const void* src, int64_t bytes) override { move(dst, src, bytes); }
  void copy_in(Stream&, void* dst, const void* src, int64_t bytes) override { move(dst, src, bytes); }
  void copy_out(Stream&, void* dst, const void* src, int64_t bytes) override { move(dst, src, bytes); }

 private:
  static void move(void* dst, const void* src, int64_t bytes) {
    if (bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));  // null is not allowed even for 0 bytes
  }

  std::shared_ptr<cpu::Engine> engine_;
};

}  // namespace tenon
