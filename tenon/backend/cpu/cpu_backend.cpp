// The CPU backend: runs launches on the tile kernels and tapes of the machine's best instruction set.
#include <algorithm>
#include <cstring>

#include "tenon/backend/cpu/host_memory.h"
#include "tenon/backend/cpu/launches/launch_kernel.h"
#include "tenon/backend/cpu/launches/list_kernel.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cpu {
namespace {

// True if looked-up rows are read across, each element from another row of the table.
bool looked_up_across(const Expr& hole) {
  for (const Expr& e : topological(std::array{hole})) {
    if (!e.is<nodes::Permute>() || e->attrs.ints.back() == e.shape().rank() - 1) continue;
    for (Expr x = e->in[0]; x->family() == Family::View; x = x->in[0])
      if (view_facts(x).looks_up) return true;
  }
  return false;
}

// A launch that writes no elements. Tile kernels take at least one.
struct NothingToDo : Kernel {
  LaunchMemory memory() const override { return {}; }
  std::span<const WeightRequest> weights() const override { return {}; }
  void bind(const BufferTable&, std::span<void* const>, void*) override {}
  void rebind(const BufferTable&) override {}
  void run(Stream&, void*) override {}
  std::string describe() const override { return "nothing to do"; }
};

// A tensor without elements may have no address, which memcpy does not accept.
void put(void* dst, const void* src, int64_t bytes) {
  if (bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));
}

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options)
      : engine_(std::make_shared<Engine>(options.threads ? options.threads : available_processors())) {}

  std::string_view name() const override { return "cpu"; }
  std::string describe() const override {
    const int threads = engine_->pool.threads();
    return std::string("cpu, ") + engine_->tile.name + ", " + std::to_string(threads) +
           (threads == 1 ? " thread" : " threads");
  }
  int64_t memory_available() const override { return host_memory_available(); }
  std::vector<DType> types() const override {
    if (engine_->tile.bf16_arithmetic) return {DType::BF16, DType::F32};
    return {DType::F32, DType::BF16};
  }
  /// Tapes compute anything that fills a hole, except columns of looked-up rows.
  Target target() const override {
    return {.reads = [](const Form& form, size_t hole) { return !looked_up_across(form.holes[hole]); },
            .i8_blocks = true};
  }
  std::shared_ptr<void> allocate(int64_t bytes) override { return blocks_.allocate(bytes); }
  std::unique_ptr<Kernel> make_kernel(const Launch& launch) override {
    TENON_CHECK(Usage, !launch.form || launch.form->updates.empty(), launch.name)
        << "writes a state that it reads, which takes two launches here: the plan was made for another backend";
    const auto empty = [](const Output& o) { return o.value.shape().numel() == 0; };
    if (std::ranges::all_of(launch.outputs, empty)) return std::make_unique<NothingToDo>();
    return LaunchBodies::make(engine_, launch);
  }
  std::unique_ptr<ListKernel> prepare_list(const Launch& launch) override { return make_list_kernel(engine_, launch); }
  void copy(Stream&, void* dst, const void* src, int64_t bytes) override { put(dst, src, bytes); }
  void copy_in(Stream&, void* dst, const void* src, int64_t bytes) override { put(dst, src, bytes); }
  void copy_out(Stream&, void* dst, const void* src, int64_t bytes) override { put(dst, src, bytes); }

 private:
  std::shared_ptr<Engine> engine_;
  HostBlocks blocks_;
};

std::unique_ptr<Backend> make(const BackendOptions& options) { return std::make_unique<CpuBackend>(options); }

const RegisterBackend kRegisteredCpu("cpu", &make, {}, {.preference = 1});

}  // namespace
}  // namespace tenon::cpu
