// Decoder language models of one kind of block (Qwen2, Qwen2.5, Qwen3, Llama, SmolLM): RMS norms, grouped queries over
// a cache of keys and values, rotary positions, a SiLU-gated feed-forward.
//
// Weights go by transformers' names ("model.layers.0.self_attn.q_proj.weight").
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tenon/models/weights.h"
#include "tenon/nn/low_rank.h"
#include "tenon/nn/scope.h"

namespace tenon {

/// The defaults are Qwen2.5-0.5B.
struct DecoderConfig {
  std::string family = "qwen2";  ///< model_type: "qwen2", "qwen3" or "llama"
  int64_t vocabulary = 151936, width = 896, hidden = 4864, layers = 24;
  int64_t heads = 14, key_heads = 2, head_width = 64;
  int64_t positions = 32768;  ///< tokens of a context, at most
  double theta = 1e6, eps = 1e-6;
  bool qkv_bias = true;      ///< of the projections to queries, keys and values
  bool output_bias = false;  ///< of attention's output projection
  bool mlp_bias = false;
  bool head_norm = false;  ///< queries and keys are normed head by head (Qwen3)
  bool tied = true;        ///< the head's matrix is the embedding
  nn::LowRank adapter{};   ///< beside layers of attention and feed-forward; no checkpoint's configuration has one

  /// Bytes that a token takes in the cache.
  int64_t cache_bytes(DType act) const;
};

/// From a config.json (or gguf_config). Error(Model) names key and value of what is missing, absurd or not
/// implemented: another model_type, another activation, scaled rotary positions, sliding windows.
DecoderConfig read_decoder_config(const nlohmann::json& config, const std::string& where);

/// A Qwen3 from names and shapes alone; what they do not show is as published. Error(Model) for another kind.
DecoderConfig detect_qwen3(const WeightShapes& weights, const std::string& where);

/// Named architectures, ordered by name.
struct DecoderPreset {
  std::string name, summary;
  DecoderConfig config;
};
const std::vector<DecoderPreset>& decoder_presets();

/// Tokens of a page where nobody wants another: attention's kernels take this many keys, or a part of them, at a time.
inline constexpr int64_t kCachePage = 128;

struct DecoderShape {
  int64_t batch = 1;
  int64_t tokens = 1;       ///< new ones of a run, in each sequence
  int64_t capacity = 1024;  ///< tokens that the cache holds of a sequence, at most
  /// Tokens of a page of the cache, a power of two that divides the capacity, and how many pages there are for all
  /// sequences. 0: a sequence's tokens lie side by side.
  int64_t page = 0, pages = 0;
  bool all_logits = false;  ///< of every new token; false: of one token of each sequence

  /// Tokens of the whole cache.
  int64_t places() const { return page ? pages * page : batch * capacity; }
};

struct Decoder {
  Expr logits;  ///< f32 [batch, V], or [batch, tokens, V]
  /// The caches behind this run by their states' names: "cache.<layer>.k" and ".v", [batch * capacity, key heads, D],
  /// or in pages [pages * page, key heads, D].
  std::vector<std::pair<std::string, Expr>> states;
  Expr place;  ///< i32 [batch, tokens]: where in the caches the new tokens are
};

/// The network over tokens i32 [batch, tokens] that follow `position` i32 [batch] tokens which the cache holds
/// already. position + tokens must not pass the capacity. `row` i32 [batch], read only where logits of one token are
/// asked for among several: which of the batch * tokens. Tokens behind it change nothing of what is computed for those
/// in front, so that a run may end with tokens that mean nothing; the next run overwrites them. In pages there is an
/// input "pages" i32 [batch, capacity / page] too: which page has a sequence's first tokens, and so on. Those behind
/// its tokens, the new ones among them, may be any number that is no page.
Decoder decoder(const DecoderConfig& c, const DecoderShape& shape, const Expr& tokens, const Expr& position,
                const Expr& row, nn::Precision p);
/// With inputs "tokens", "position" and, if it is read, "row".
Decoder decoder(Graph& g, const DecoderConfig& c, const DecoderShape& shape, nn::Precision p);

/// What a loss is taken of.
struct DecoderHidden {
  Expr hidden;  ///< f32 [batch, tokens, width]: of every token, behind the last norm
  Expr head;    ///< [V, width]; logits are hidden head^T
};
/// The network over whole sequences from position 0, tokens i32 [batch, tokens]: no cache is read or written, and there
/// is a gradient for every weight. Tokens behind a sequence's end change nothing of what is in front of them.
DecoderHidden decoder_hidden(const DecoderConfig& c, const Expr& tokens, nn::Precision p);

/// Texts [batch, tokens] whose equal beginnings are computed once: what belongs to one token alone is computed of N
/// tokens, attention of whole texts.
struct SharedBeginnings {
  int64_t batch = 1, tokens = 1;
  Expr token_at;  ///< i32 [batch * tokens]: which of the N stands there; behind a text's end any
  Expr place_of;  ///< i32 [N]: where each stands first; batch * tokens: nowhere
  Expr position;  ///< i32 [N]: of each in its texts
};
/// The same of tokens i32 [N] that stand in texts as `texts` says; hidden is f32 [N, width].
DecoderHidden decoder_hidden(const DecoderConfig& c, const Expr& tokens, const SharedBeginnings& texts,
                             nn::Precision p);

/// Hidden states of the texts tokens i32 [B,T], in p.act [B,T,width], behind the first `layers` blocks and without the
/// last norm: what other networks read of a text. Tokens see those in front of them; no cache is kept.
Expr decoder_states(const DecoderConfig& c, const Expr& tokens, int64_t layers, nn::Precision p);

/// What the network reads of a checkpoint.
WeightShapes decoder_weights(const DecoderConfig& c);

}  // namespace tenon
