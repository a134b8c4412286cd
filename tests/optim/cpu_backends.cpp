// Every instruction set, with one thread and with three.
#include <cstring>

#include "optim/backends.h"
#include "tenon/backend/cpu/host_memory.h"
#include "tenon/backend/cpu/list_kernel.h"

namespace tenon::optim {
namespace {

using cpu::Isa;

// Lists and memory; launches of a plan are tested elsewhere.
class IsaBackend : public Backend {
 public:
  IsaBackend(Isa isa, int threads) : engine_(std::make_shared<cpu::Engine>(threads, *cpu::tile_ops(isa))) {}
  std::string_view name() const override { return "cpu"; }
  std::string describe() const override { return engine_->vec.name; }
  int64_t memory_available() const override { return cpu::host_memory_available(); }
  std::vector<DType> types() const override { return {DType::F32}; }
  std::shared_ptr<void> allocate(int64_t bytes) override { return cpu::allocate_host(bytes); }
  std::unique_ptr<Kernel> make_kernel(const Launch&) override { return nullptr; }
  std::unique_ptr<ListKernel> prepare_list(const Launch& launch) override {
    return cpu::make_list_kernel(engine_, launch);
  }
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

const std::vector<Ground>& grounds() {
  static const std::vector<Ground> all = [] {
    std::vector<Ground> out;
    for (const Isa isa : {Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Amx})
      for (const int threads : {1, 3})
        if (cpu::tile_ops(isa))
          out.push_back({std::string(cpu::tile_ops(isa)->name) + ", threads " + std::to_string(threads),
                         std::make_shared<IsaBackend>(isa, threads)});
    return out;
  }();
  return all;
}

}  // namespace tenon::optim
