// Decoder language models that share one kind of block (Qwen2, Qwen2.5, Qwen3, Llama, SmolLM): RMS norms, grouped-query
// attention over a cache of keys and values, rotary positions, a SiLU-gated feed-forward.
//
// Weights have transformers' names ("model.layers.0.self_attn.q_proj.weight").
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tenon/models/weights.h"
#include "tenon/nn/low_rank.h"
#include "tenon/nn/rotary.h"
#include "tenon/nn/scope.h"

namespace tenon {

/// The defaults are Qwen2.5-0.5B.
struct DecoderConfig {
  std::string family = "qwen2";  ///< model_type: "qwen2", "qwen3" or "llama"
  int64_t vocabulary = 151936, width = 896, hidden = 4864, layers = 24;
  int64_t heads = 14, key_heads = 2, head_width = 64;
  int64_t positions = 32768;  ///< longest context in tokens
  double theta = 1e6, eps = 1e-6;
  nn::RotaryScaling rotary{};
  bool qkv_bias = true;      ///< of the query, key and value projections
  bool output_bias = false;  ///< of attention's output projection
  bool mlp_bias = false;
  bool head_norm = false;  ///< queries and keys are normalised per head (Qwen3)
  bool tied = true;        ///< the output head shares the embedding matrix
  nn::LowRank adapter{};   ///< LoRA on attention and feed-forward layers; never set by a checkpoint's configuration

  /// Bytes of cache per token.
  int64_t cache_bytes(DType act) const;
};

/// From a config.json (or gguf_config). Error(Model) names key and value of anything missing, absurd or not
/// implemented: another model_type, another activation, rotary speeds that depend on the text's length, sliding
/// windows.
DecoderConfig read_decoder_config(const nlohmann::json& config, const std::string& where);

/// A Qwen3 from names and shapes alone; everything else is as published. Error(Model) for another kind of model.
DecoderConfig detect_qwen3(const WeightShapes& weights, const std::string& where);

/// Named architectures, ordered by name.
struct DecoderPreset {
  std::string name, summary;
  DecoderConfig config;
};
const std::vector<DecoderPreset>& decoder_presets();

/// Default page size in tokens: attention's kernels take this many keys, or a fraction of them, at a time.
inline constexpr int64_t kCachePage = 128;

struct DecoderShape {
  int64_t batch = 1;
  int64_t tokens = 1;       ///< new tokens of a run, per sequence
  int64_t capacity = 1024;  ///< most tokens that the cache holds per sequence
  /// Tokens per page of the cache (a power of two that divides the capacity), and the number of pages for all
  /// sequences. 0: each sequence's tokens are contiguous.
  int64_t page = 0, pages = 0;
  bool all_logits = false;  ///< true: of every new token; false: of one token per sequence

  /// Number of tokens that the whole cache has room for.
  int64_t places() const { return page ? pages * page : batch * capacity; }
};

struct Decoder {
  Expr logits;  ///< f32 [batch, V], or [batch, tokens, V]
  /// The caches after this run, by the names of their states: "cache.<layer>.k" and ".v", [batch * capacity, key heads,
  /// D], or with pages [pages * page, key heads, D].
  std::vector<std::pair<std::string, Expr>> states;
  Expr place;  ///< i32 [batch, tokens]: cache index of each new token
};

/// The network over tokens i32 [batch, tokens] that follow the `position` i32 [batch] tokens already in the cache.
/// position + tokens must not exceed the capacity. `row` i32 [batch] is read only if logits of one token among several
/// are wanted: its index among the batch * tokens. Later tokens do not affect results for earlier ones, so a run may
/// end with meaningless tokens; the next run overwrites them. With pages there is another input, "pages" i32 [batch,
/// capacity / page]: the pages of each sequence's tokens, in order. Entries after its last token, new ones included,
/// may be any page, and without fusion must be one, because every entry is then looked up.
Decoder decoder(const DecoderConfig& c, const DecoderShape& shape, const Expr& tokens, const Expr& position,
                const Expr& row, nn::Precision p);
/// With inputs "tokens", "position" and, if needed, "row".
Decoder decoder(Graph& g, const DecoderConfig& c, const DecoderShape& shape, nn::Precision p);

/// The inputs of a loss.
struct DecoderHidden {
  Expr hidden;  ///< f32 [batch, tokens, width]: every token after the last norm
  Expr head;    ///< [V, width]; logits are hidden head^T
};
/// The network over whole sequences from position 0, tokens i32 [batch, tokens], without a cache and differentiable in
/// every weight. Tokens after a sequence's end do not affect those before it.
DecoderHidden decoder_hidden(const DecoderConfig& c, const Expr& tokens, nn::Precision p);

/// Texts [batch, tokens] that share beginnings, which are computed once: per-token work runs on N distinct tokens,
/// attention on whole texts.
struct SharedBeginnings {
  int64_t batch = 1, tokens = 1;
  Expr token_at;  ///< i32 [batch * tokens]: which of the N tokens is there; arbitrary after a text's end
  Expr place_of;  ///< i32 [N]: first place of each; batch * tokens: none
  Expr position;  ///< i32 [N]: position of each in its texts
};
/// The same for tokens i32 [N], placed in texts as `texts` says; hidden is f32 [N, width].
DecoderHidden decoder_hidden(const DecoderConfig& c, const Expr& tokens, const SharedBeginnings& texts,
                             nn::Precision p);

/// Hidden states of tokens i32 [B,T] after the first `layers` blocks, without the last norm, in p.act [B,T,width]: the
/// text features that other networks read. Attention is causal; there is no cache.
Expr decoder_states(const DecoderConfig& c, const Expr& tokens, int64_t layers, nn::Precision p);

/// The weights that the network reads from a checkpoint.
WeightShapes decoder_weights(const DecoderConfig& c);

}  // namespace tenon
