// Products of few rows that are computed, or reduced, in every block: each block has the shared memory and the
// registers for them, also on a GPU with less of both.
#include "tests/cuda/emulator.h"
#include "tests/cuda/launch_code.h"

namespace tenon::launches {
namespace {

constexpr DType kType = DType::BF16;

class RowsInFront : public LaunchCodeTest {
 protected:
  Expr rows(int64_t m, int64_t k) {
    const std::string id = numbered(numbered("x", m) + "_", k);
    tensors.emplace(id, random_tensor(kType, {m, k}, 12));
    return input(g, id, kType, {m, k});
  }
  Expr times_weights(const Expr& x, int64_t n) {
    const int64_t k = x.shape()[-1];
    return linear(cast(round(x, kType), kType), weight(numbered(numbered("w", k) + "_", n), kType, {n, k}));
  }
  // Results on a small emulated GPU with the shared memory of sm_89.
  void expect_where_memory_is_scarce(const Expr& y) {
    const Launch l = launch("gemm", {{"y", cast(y, kType)}});
    const auto device = std::make_shared<cuda::test::Emulator>(cuda::test::EmulatorOptions{.arch = "sm_89"});
    const Tensors got = run_on(device, l, tensors);
    compare(l.outputs[0], got.at("y"), Oracle(tensors).eval(l.outputs[0].value), {kType, kType, 4096, 8}, "sm_89");
  }
  // No local memory on either architecture.
  void expect_registers(const Expr& y) {
    const Launch l = launch("gemm", {{"y", cast(y, kType)}});
    for (const std::string& arch : cuda::CompileDevice::architectures())
      expect_code(arch, l, [](const cuda::KernelSource&) { return cuda::KernelExpectations(); });
  }
  static Expr rms(const Expr& x) { return x * rsqrt(mean(x * x) + 1e-6); }
  static Expr centred(const Expr& x) { return rms(x - mean(x)); }
  static Expr block(const Expr& y, int64_t i, int64_t of) {
    const int64_t n = y.shape()[-1] / of;
    return slice(y, 1, i * n, (i + 1) * n);
  }
  static Expr gated(const Expr& y) { return silu(block(y, 0, 2)) * block(y, 1, 2); }
};

// Three groups of two lanes nearly fill it, and the partial reductions of 16 rows lie after them: with one tile per
// block, and with persistent blocks.
TEST_F(RowsInFront, ReductionsHaveSharedMemory) {
  for (const int64_t n : {320, 832}) expect_where_memory_is_scarce(gated(times_weights(rms(rows(16, 72)), n)));
}

// Four lanes take so much that not all rows find a place beside them: these are stored before.
TEST_F(RowsInFront, RowsHaveSharedMemoryBesideFourLanes) {
  struct Size {
    int64_t m, k;
  };
  for (const Size& s : {Size{8, 4096}, {12, 2048}, {16, 2048}}) {
    SCOPED_TRACE(numbered(numbered("rows ", s.m) + " of ", s.k));
    const Expr y = times_weights(centred(rows(s.m, s.k)), 128);
    expect_where_memory_is_scarce(silu(block(y, 0, 4)) * block(y, 1, 4) + block(y, 2, 4) * block(y, 3, 4));
  }
}

// Norms of tokens. A centred row of 4096 columns is left out: its kernels for sm_89 lack a few registers.
TEST_F(RowsInFront, WideRowsDoNotSpill) {
  SKIP_WITHOUT_NVRTC();
  for (const int64_t k : {2048, 2560, 4096})
    for (const int64_t m : {1, 9}) {
      const Expr x = rows(m, k), gain = weight(numbered("gain", k), DType::F32, {k});
      const std::pair<std::string, Expr> norms[] = {{"rms", rms(x) * gain}, {"centred", centred(x) * gain + gain}};
      for (const auto& [name, norm] : norms) {
        if (k == 4096 && name == "centred") continue;
        SCOPED_TRACE(numbered(numbered(name + " of ", m) + "x", k));
        expect_registers(times_weights(norm, 6144));
        expect_registers(gated(times_weights(norm, 8192)));
      }
    }
}

}  // namespace
}  // namespace tenon::launches
