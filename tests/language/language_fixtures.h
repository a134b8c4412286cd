// Small language models as files: configurations of tests/fixtures/language.json with hash weights.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/io/safetensors.h"
#include "tenon/pipelines/decoder_plans.h"
#include "tenon/pipelines/text_generator.h"
#include "tests/fixtures/hashing.h"

namespace language_test {

inline std::string fixture(const std::string& name) {
  return std::string(TENON_SOURCE_DIR) + "/tests/fixtures/" + name;
}

inline const nlohmann::json& recorded() {
  static const nlohmann::json all = nlohmann::json::parse(std::ifstream(fixture("language.json")));
  return all;
}

inline std::vector<float> recorded_tensor(const std::string& name) {
  static const tenon::SafetensorsFile file = tenon::SafetensorsFile::open(fixture("language.safetensors"));
  const tenon::TensorView& t = file.at(name);
  std::vector<float> out;
  for (int64_t i = 0; i < t.shape.numel(); ++i)
    out.push_back(static_cast<float>(tenon::load_element(t.dtype, t.data, i)));
  return out;
}

/// A folder that exists as long as the object.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tenon-language-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }

 private:
  std::filesystem::path path_;
};

inline std::vector<float> language_weight(const std::string& name, uint32_t rank, const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  const bool norm = name.find("norm") != name.npos && name.ends_with("weight");
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) {
    const double x = fixtures::u(rank + 1, static_cast<uint32_t>(i));
    const double matrix = x * std::sqrt(12.0 / static_cast<double>(shape.back()));
    out.push_back(static_cast<float>(norm ? 1 + 0.4 * x : shape.size() > 1 ? matrix : 0.3 * x));
  }
  return out;
}

/// `tokens` tokens a run over a cache of `capacity`, with the logits of each.
inline tenon::Plan plan_all_logits(const tenon::DecoderConfig& c, int64_t tokens, int64_t capacity,
                                   const tenon::NetworkOptions& options) {
  tenon::DecoderShape shape;
  shape.tokens = tokens;
  shape.capacity = capacity;
  shape.all_logits = true;
  return tenon::plan_decoder(c, shape, options);
}

/// A recorded case as transformers would save it, with a byte-level tokenizer. `bare`: names without "model.". The
/// embedding of token `odd` is NaN.
inline void write_model(const nlohmann::json& c, const Folder& folder, bool bare = false, int64_t odd = -1) {
  folder.write("config.json", c["config"].dump());
  std::vector<std::vector<float>> values;
  std::vector<tenon::TensorData> tensors;
  values.reserve(c["shapes"].size());
  uint32_t rank = 0;
  for (const auto& [name, dims] : c["shapes"].items()) {  // in bytewise order
    const auto shape = dims.get<std::vector<int64_t>>();
    values.push_back(language_weight(name, rank++, shape));
    if (odd >= 0 && name.ends_with("embed_tokens.weight"))
      std::fill_n(values.back().begin() + odd * shape[1], shape[1], std::nanf(""));
    const std::string stored = bare && name.starts_with("model.") ? name.substr(6) : name;
    tensors.push_back({stored, tenon::DType::F32, tenon::Shape(std::span<const int64_t>(shape)),
                       std::as_bytes(std::span(values.back()))});
  }
  tenon::write_safetensors(folder.path() / "model.safetensors", tensors);
  std::filesystem::copy_file(fixture("byte_level/tokenizer.json"), folder.path() / "tokenizer.json");
}

inline tenon::TextOptions f32_options(const std::string& device = "cpu") {
  tenon::TextOptions o;
  o.device = device;
  o.type = tenon::DType::F32;
  return o;
}

}  // namespace language_test
