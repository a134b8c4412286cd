#include "tenon/io/gguf_checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "tenon/core/error.h"
#include "tenon/io/gguf_rotary.h"

namespace tenon {
namespace {

using Rename = std::pair<std::string_view, std::string_view>;

// llama, qwen2 and qwen3, without ".weight" or ".bias".
constexpr std::array<Rename, 3> kOutside = {
    {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}}};
constexpr std::array<Rename, 11> kInBlock = {{{"attn_norm", "input_layernorm"},
                                              {"attn_q", "self_attn.q_proj"},
                                              {"attn_k", "self_attn.k_proj"},
                                              {"attn_v", "self_attn.v_proj"},
                                              {"attn_output", "self_attn.o_proj"},
                                              {"attn_q_norm", "self_attn.q_norm"},
                                              {"attn_k_norm", "self_attn.k_norm"},
                                              {"ffn_norm", "post_attention_layernorm"},
                                              {"ffn_gate", "mlp.gate_proj"},
                                              {"ffn_up", "mlp.up_proj"},
                                              {"ffn_down", "mlp.down_proj"}}};
bool is_language_model(std::string_view architecture) {
  return architecture == "llama" || architecture == "qwen2" || architecture == "qwen3";
}

template <size_t N>
std::string_view renamed(const std::array<Rename, N>& table, std::string_view name) {
  for (const auto& [from, to] : table)
    if (from == name) return to;
  return {};
}

// "blk.12.attn_q.weight" -> "model.layers.12.self_attn.q_proj.weight"; "" if there is no counterpart.
std::string language_model_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  const std::string_view kind = name.substr(dot);
  if (kind != ".weight" && kind != ".bias") return "";
  std::string_view stem = name.substr(0, dot);
  if (const std::string_view to = renamed(kOutside, stem); !to.empty()) return std::string(to).append(kind);
  if (!stem.starts_with("blk.")) return "";
  stem.remove_prefix(4);
  const size_t end = stem.find('.');
  const std::string_view number = stem.substr(0, end);
  if (end == std::string_view::npos || number.empty() || number.size() > 6 ||
      number.find_first_not_of("0123456789") != std::string_view::npos)
    return "";
  const std::string_view to = renamed(kInBlock, stem.substr(end + 1));
  return to.empty() ? "" : std::string("model.layers.").append(number).append(".").append(to).append(kind);
}

// Heads of queries or of keys, by the suffix of the metadata's key.
int64_t heads_of(const GgufFile& file, const char* key) {
  const std::string front = file.architecture() + ".attention.";
  auto out = file.integer(front + key);
  if (!out) out = file.integer(front + "head_count");
  TENON_CHECK(Model, out && *out > 0, file.name()) << front << "head_count: expected a number of heads";
  return *out;
}

std::optional<std::vector<NamedSlice>> language_model_slices(const GgufFile& file, const GgufTensor& tensor) {
  const std::string name = language_model_name(tensor.name);
  if (name.empty()) return std::nullopt;
  GgufSlice slice{&tensor, tensor.shape, 0, 0};
  const bool q = name.find(".q_proj.") != std::string::npos, k = name.find(".k_proj.") != std::string::npos;
  if (file.architecture() == "llama" && (q || k)) {
    const int64_t count = heads_of(file, q ? "head_count" : "head_count_kv"),
                  rows = tensor.shape.rank() ? tensor.shape[0] : 0;
    TENON_CHECK(Model, rows % count == 0 && rows / count % 2 == 0, file.name())
        << "tensor '" << tensor.name << "': " << rows << " rows do not split into " << count << " heads of even width";
    slice.head_rows = rows / count;
  }
  return std::vector<NamedSlice>{{name, slice}};
}

// Calls f(a row's bytes, where its numbers go) for each row.
template <class T, class F>
void each_row(const GgufSlice& s, int64_t first, std::span<T> out, const F& f) {
  const int64_t cols = s.shape.cols(), rows = s.shape.rows();
  const int64_t count = cols > 0 ? static_cast<int64_t>(out.size()) / cols : 0;
  TENON_CHECK(Internal, first >= 0 && count * cols == static_cast<int64_t>(out.size()) && first + count <= rows, "gguf")
      << "rows " << first << " to " << first + count << " of '" << s.tensor->name << "' " << s.shape.str();
  const size_t bytes = s.tensor->row_bytes();
  for (int64_t i = 0; i < count; ++i) {
    const auto from = static_cast<size_t>(s.first_row + s.file_row(first + i)) * bytes;
    f(s.tensor->data.subspan(from, bytes), out.subspan(static_cast<size_t>(i * cols), static_cast<size_t>(cols)));
  }
}

// The elements of a vector correspond to rows of a matrix: restores the order of interleaved ones one by one.
template <class T>
void order_vector(const GgufSlice& s, std::span<T> out) {
  if (s.head_rows == 0 || s.shape.rank() != 1 || out.empty()) return;
  const std::vector<T> stored(out.begin(), out.end());
  GgufSlice elements = s;
  elements.shape = Shape{s.shape[0], 1};
  for (int64_t i = 0; i < s.shape[0]; ++i)
    out[static_cast<size_t>(i)] = stored[static_cast<size_t>(elements.file_row(i))];
}

// config.json's integers, by the suffix of the GGUF key.
constexpr std::array<Rename, 6> kNeeded = {{{"embedding_length", "hidden_size"},
                                            {"block_count", "num_hidden_layers"},
                                            {"feed_forward_length", "intermediate_size"},
                                            {"attention.head_count", "num_attention_heads"},
                                            {"attention.head_count_kv", "num_key_value_heads"},
                                            {"context_length", "max_position_embeddings"}}};

// All tokens that end a text: of a text, of a turn, of a message to a tool.
std::vector<int64_t> end_tokens(const GgufFile& file) {
  std::vector<int64_t> out;
  for (const char* what : {"eos", "eot", "eom"}) {
    const auto id = file.integer(std::string("tokenizer.ggml.") + what + "_token_id");
    if (id && std::ranges::find(out, *id) == out.end()) out.push_back(*id);
  }
  return out;
}

}  // namespace

int64_t GgufSlice::file_row(int64_t row) const {
  if (head_rows == 0 || shape.rank() == 1) return row;
  const int64_t half = head_rows / 2, head = row / head_rows, at = row % head_rows;
  return head * head_rows + at % half * 2 + at / half;
}

std::span<const std::byte> GgufSlice::stored() const {
  const size_t row = tensor->row_bytes();
  return tensor->data.subspan(static_cast<size_t>(first_row) * row, static_cast<size_t>(shape.rows()) * row);
}

void read_rows(const GgufSlice& slice, int64_t first, std::span<float> out) {
  each_row(slice, first, out,
           [&](std::span<const std::byte> from, std::span<float> to) { dequantise(slice.tensor->type, from, to); });
  order_vector(slice, out);
}

void read_rows_bf16(const GgufSlice& slice, int64_t first, std::span<uint16_t> out) {
  each_row(slice, first, out, [&](std::span<const std::byte> from, std::span<uint16_t> to) {
    dequantise_bf16(slice.tensor->type, from, to);
  });
  order_vector(slice, out);
}

GgufCheckpoint gguf_checkpoint(const GgufFile& file, const GgufNames& names) {
  GgufCheckpoint out;
  for (const auto& [name, type] : file.unsupported()) static_cast<void>(file.at(name));  // says which and why
  for (const auto& [stored, tensor] : file.tensors()) {
    const auto slices = names(tensor);
    if (!slices) {
      out.unexpected.push_back(stored);
      continue;
    }
    for (const NamedSlice& s : *slices) {
      TENON_CHECK(Model, out.tensors.emplace(s.name, s.slice).second, file.name())
          << "two tensors map to '" << s.name << "'; one is '" << stored << "'";
    }
  }
  return out;
}

GgufCheckpoint gguf_checkpoint(const GgufFile& file) {
  const std::string architecture = file.architecture();
  TENON_CHECK(Model, is_language_model(architecture), file.name())
      << "architecture '" << architecture << "' is not supported; expected llama, qwen2 or qwen3";
  const bool known_factors = !gguf_rotary_factors(file).is_null();  // gguf_config states them
  return gguf_checkpoint(file, [&](const GgufTensor& tensor) {
    return known_factors && tensor.name == kGgufRotaryFactors ? std::vector<NamedSlice>()
                                                              : language_model_slices(file, tensor);
  });
}

nlohmann::json gguf_config(const GgufFile& file) {
  const std::string architecture = file.architecture(), front = architecture + ".";
  TENON_CHECK(Model, is_language_model(architecture), file.name())
      << "architecture '" << architecture << "' has no configuration in the file; expected llama, qwen2 or qwen3";
  nlohmann::json out = {{"model_type", architecture}};
  const auto copy_integer = [&](std::string_view key, std::string_view to) {
    const auto value = file.integer(front + std::string(key));
    if (value) out[std::string(to)] = *value;
    return value.has_value();
  };
  for (const auto& [key, to] : kNeeded) {
    if (copy_integer(key, to)) continue;
    TENON_CHECK(Model, to == "num_key_value_heads", file.name()) << "has no metadata '" << front << key << "'";
    out[std::string(to)] = out["num_attention_heads"];
  }
  const auto eps = file.number(front + "attention.layer_norm_rms_epsilon");
  TENON_CHECK(Model, eps, file.name()) << "has no metadata '" << front << "attention.layer_norm_rms_epsilon'";
  out["rms_norm_eps"] = *eps;
  out["rope_theta"] = file.number(front + "rope.freq_base").value_or(10000.0);
  const bool has_head = copy_integer("attention.key_length", "head_dim");
  const auto window = file.integer(front + "attention.sliding_window");
  TENON_CHECK(Model, !window || *window <= 0 || *window >= out["max_position_embeddings"].get<int64_t>(), file.name())
      << front << "attention.sliding_window: a window of " << *window << " tokens is not supported";
  const int64_t heads = out["num_attention_heads"], width = out["hidden_size"];
  const int64_t head = has_head ? out["head_dim"].get<int64_t>() : width / std::max<int64_t>(heads, 1);
  // As in llama.cpp; config.json of Qwen3 without a head_dim would mean 128.
  if (!has_head && architecture == "qwen3" && head > 1 && width % heads == 0) out["head_dim"] = head;
  const auto turned = file.integer(front + "rope.dimension_count");
  TENON_CHECK(Model, !turned || *turned == head, file.name())
      << front << "rope.dimension_count: " << *turned << " of the " << head
      << " numbers of a head are rotated; only all of them is supported";
  TENON_CHECK(Model, file.boolean(front + "attention.causal").value_or(true), file.name())
      << front << "attention.causal is false, which is not supported";
  if (const nlohmann::json scaling = gguf_rope_scaling(file, head); !scaling.is_null()) out["rope_scaling"] = scaling;
  const GgufTensor& embedding = file.at("token_embd.weight");
  out["vocab_size"] = embedding.shape.rank() == 2 ? embedding.shape[0] : 0;
  out["tie_word_embeddings"] = file.tensors().count("output.weight") == 0;
  if (const auto bos = file.integer("tokenizer.ggml.bos_token_id")) out["bos_token_id"] = *bos;
  if (const std::vector<int64_t> ends = end_tokens(file); ends.size() == 1)
    out["eos_token_id"] = ends[0];
  else if (!ends.empty())
    out["eos_token_id"] = ends;
  return out;
}

}  // namespace tenon
