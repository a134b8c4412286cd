// PyTorch's training recordings (tools/fixtures/training.py), and the same models here.
#pragma once
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/models/decoder.h"
#include "tenon/train/decoder_loss.h"
#include "tenon/train/updater.h"
#include "tests/fixtures/hashing.h"

namespace tenon::train::test {

inline const nlohmann::json& recorded() {
  static const nlohmann::json all =
      nlohmann::json::parse(std::ifstream(TENON_SOURCE_DIR "/tests/fixtures/training.json"));
  return all;
}

/// A recorded model: its configuration and hash weights.
class Model : public WeightSource {
 public:
  explicit Model(const nlohmann::json& about)
      : config(read_decoder_config(about.at("config"), "training.json")), shapes(decoder_weights(config)) {
    uint32_t rank = 0;
    for (const auto& [name, dims] : about.at("shapes").items()) fill(name, rank++, dims.get<std::vector<int64_t>>());
  }
  HostView find(const std::string& name) const override {
    return {DType::F32, shapes.at(name), values.at(name).data()};
  }

  DecoderConfig config;
  WeightShapes shapes;
  std::map<std::string, std::vector<float>> values;

 private:
  void fill(const std::string& name, uint32_t rank, const std::vector<int64_t>& shape) {
    const bool norm = name.find("norm") != std::string::npos && name.ends_with("weight");
    std::vector<float>& out = values[name];
    for (int64_t i = 0; i < Shape(std::span<const int64_t>(shape)).numel(); ++i) {
      const double x = fixtures::u(rank + 1, static_cast<uint32_t>(i));
      const double matrix = x * std::sqrt(12.0 / static_cast<double>(shape.back()));
      out.push_back(static_cast<float>(norm ? 1 + 0.4 * x : shape.size() > 1 ? matrix : 0.3 * x));
    }
  }
};

/// training.py's batch_of.
struct Batch {
  std::vector<int32_t> tokens, target;
  Batch(int64_t step, int64_t micro, int64_t vocabulary) {
    const int64_t rows = recorded().at("batch"), length = recorded().at("tokens");
    const auto k = static_cast<uint32_t>(5000 + 10 * (step % 2) + micro);
    const auto id = [&](int64_t at) {
      return static_cast<int32_t>((fixtures::u(k, static_cast<uint32_t>(at)) + 0.5) * static_cast<double>(vocabulary));
    };
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < length; ++i) {
        tokens.push_back(id(row * (length + 1) + i));
        const bool learnt = i > row && i < length - row;
        target.push_back(learnt ? id(row * (length + 1) + i + 1) : -1);
      }
  }
  void give(Gradients& to) const {
    const Shape shape{recorded().at("batch").get<int64_t>(), recorded().at("tokens").get<int64_t>()};
    to.set("tokens", {DType::I32, shape, tokens.data()});
    to.set("target", {DType::I32, shape, target.data()});
  }
};

inline BatchShape batch_shape() { return {recorded().at("batch"), recorded().at("tokens"), 16}; }

}  // namespace tenon::train::test
