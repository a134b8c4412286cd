// What the tests of the attention cores that read boxes share: the device, the kernel's text, its argument.
#pragma once
#include <span>

#include "attention_problem.h"
#include "tenon/backend/cuda/attention_launch.h"

namespace tenon::cuda::test {

/// An H200 as the backend's choices see it.
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

/// A kernel of `core` ("attention_short") over BoxParams; `tile`: its type and what the host reckons of it, `blocks` on
/// a multiprocessor.
inline std::string boxes_text(const std::string& core, const std::string& tile, int shared_bytes, int threads,
                              int blocks, DType type, int run) {
  std::string text = "#include \"tenon/device/" + core +
                     ".h\"\nusing namespace tenon::device;\nstruct Params { TensorMap q, k, v; AttentionSizes sizes; "
                     "float* y; };\n";
  for (const auto& [name, map] : {std::pair{"Q", "q"}, {"K", "k"}, {"V", "v"}})
    text += std::string("struct ") + name + " { using T = " + element_name(type) +
            "; DEV static const TensorMap& map(const Params& p) { return p." + map + "; } };\n";
  return text + epilogue(1, run, "p.sizes.depth") + "using Tile = " + tile +
         ";\nstatic_assert(Tile::kSharedBytes == " + std::to_string(shared_bytes) +
         " && Tile::kThreads == " + std::to_string(threads) + ");\nKERNEL(Tile::kThreads, " + std::to_string(blocks) +
         ", Params, p) { " + core + "<Tile, Q, K, V, Epilogue>(p); }\n";
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

}  // namespace tenon::cuda::test
