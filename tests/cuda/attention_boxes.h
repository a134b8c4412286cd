// Shared by tests of the attention cores that read boxes: the device, the kernel's source, its argument, its machine
// code.
#pragma once
#include <gmock/gmock.h>

#include <set>
#include <span>
#include <string>

#include "tenon/backend/cuda/attention/attention_tiles.h"
#include "tenon/backend/cuda/driver/cubin.h"
#include "tests/cuda/attention_problem.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::cuda::test {

/// An H200 as seen by the backend's choices.
constexpr DeviceFacts hopper() {
  DeviceFacts facts;
  facts.arch = "sm_90a", facts.multiprocessors = 132, facts.shared_bytes = 232448;
  return facts;
}

struct BoxParams {
  TensorMap q, k, v;
  device::AttentionSizes sizes;
  float* y;
};

/// A kernel over BoxParams: its core ("attention_short"), its tile, and the host's figures for it.
struct BoxKernel {
  std::string core, tile;
  int threads, blocks, shared_bytes;  ///< blocks: per multiprocessor
  int box_keys;                       ///< of a box of keys or values

  /// `width`: of the epilogue.
  std::string source(DType type, int width) const {
    std::string source =
        "#include \"tenon/backend/cuda/device/attention/" + core +
        ".h\"\nusing namespace tenon::device;\nstruct Params { TensorMap q, k, v; AttentionSizes sizes; "
        "float* y; };\n";
    for (const auto& [name, map] : {std::pair{"Q", "q"}, {"K", "k"}, {"V", "v"}})
      source += std::string("struct ") + name + " { using T = " + element_name(type) +
                "; DEV static const TensorMap& map(const Params& p) { return p." + map + "; } };\n";
    return source + epilogue(1, width, "p.sizes.depth") + "using Tile = " + tile +
           ";\nstatic_assert(Tile::kSharedBytes == " + std::to_string(shared_bytes) +
           " && Tile::kThreads == " + std::to_string(threads) + ");\nKERNEL(Tile::kThreads, " + std::to_string(blocks) +
           ", Params, p) { " + core + "<Tile, Q, K, V, Epilogue>(p); }\n";
  }
};
inline BoxKernel kernel_of(const AttentionWgmmaShape& t) {
  return {"attention_wgmma", t.type(), t.threads(), t.blocks, t.shared_bytes(), t.keys};
}
inline BoxKernel kernel_of(const AttentionShortShape& t) {
  return {"attention_short", t.type(), t.threads(), 1, t.shared_bytes(), t.keys / 2};
}
inline BoxKernel kernel_of(const AttentionDeepShape& t) {
  return {"attention_deep", t.type(), t.kThreads, 1, t.shared_bytes(), t.keys};
}

/// Boxes of 64 queries and of `box_keys` keys and values.
inline BoxParams box_params(Device& device, const AttentionProblem& x, int box_keys, float* y) {
  const device::AttentionSizes& s = x.s;
  const auto map = [&](const std::shared_ptr<void>& memory, int heads, int tokens, int box) {
    const int64_t d = s.depth;
    const HeadStrides strides =
        x.tokens_first ? HeadStrides{heads * d, d, tokens * heads * d} : HeadStrides{d, tokens * d, heads * tokens * d};
    return device.encode(head_box(memory.get(), strides, s.batch, heads, tokens, s.depth, box));
  };
  return {map(x.q, s.heads, s.queries, 64), map(x.k, s.kv_heads, s.keys, box_keys),
          map(x.v, s.kv_heads, s.keys, box_keys), s, y};
}

inline std::vector<std::byte> bytes_of(const BoxParams& params) {
  const auto bytes = std::as_bytes(std::span(&params, 1));
  return {bytes.begin(), bytes.end()};
}

/// The core under test, without a workspace.
inline AttentionCore box_core(const BoxKernel& kernel, DType type, int width, const CallShape& shape) {
  return {kernel.tile,
          type,
          {"attention", kernel.source(type, width)},
          shape,
          [keys = kernel.box_keys](Device& device, const AttentionProblem& x, float* y) {
            return bytes_of(box_params(device, x, keys, y));
          }};
}

/// The requirements on any choice of the backend: fits the device, no spills, tensor cores and copy engine, overlapping
/// products.
inline void expect_machine_code(const BoxKernel& kernel, double wide_stores = 1) {
  EXPECT_LE(kernel.shared_bytes, hopper().shared_bytes) << kernel.tile;
  const std::string source = kernel.source(DType::F16, 8);
  static std::set<std::string> checked;  // many shapes choose one kernel
  if (!checked.insert(source).second) return;
  const KernelBinary code = machine_code({"attention", source}, "sm_90a");
  EXPECT_THAT(check_kernel(read_cubin_kernel(code.cubin, kKernelName), code.log,
                           {.threads = kernel.threads,
                            .blocks = kernel.blocks,
                            .contains = {Opcode::Hgmma, Opcode::TensorLoad, Opcode::Barrier},
                            .lacks = {Opcode::Hmma},
                            .wide_stores = wide_stores}),
              testing::IsEmpty())
      << kernel.tile;
}

}  // namespace tenon::cuda::test
