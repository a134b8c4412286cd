// Low-rank adapters: their gradients, by the chain rule from those of whole weights, and reading them back.
#include "tenon/train/adapter.h"

#include <gtest/gtest.h>

#include "tenon/core/error.h"
#include "tenon/io/safetensors.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/pipelines/adapted_weights.h"
#include "tests/language/language_fixtures.h"
#include "tests/support/close.h"
#include "tests/train/training_cases.h"

namespace tenon::train {
namespace {
using namespace test;

// A recorded model with an adapter whose values are all random.
struct Adapted {
  std::shared_ptr<Model> model;
  DecoderConfig config;
  WeightShapes leaves;
  std::map<std::string, std::vector<float>> values;

  explicit Adapted(size_t number, std::vector<std::string> targets)
      : model(std::make_shared<Model>(recorded().at("models").at(number))), config(model->config) {
    config.adapter = {3, 0.5, std::move(targets)};
    leaves = adapter_weights(config);
    uint32_t rank = 900;
    for (const auto& [name, shape] : leaves) {
      ++rank;
      for (int64_t i = 0; i < shape.numel(); ++i)
        values[name].push_back(static_cast<float>(0.3 * fixtures::u(rank, static_cast<uint32_t>(i))));
    }
  }
  std::shared_ptr<const WeightSource> source() const {
    const auto out = std::make_shared<HostWeights>();
    for (const auto& [name, shape] : model->shapes) out->add(name, model->find(name));
    for (const auto& [name, shape] : leaves) out->add(name, {DType::F32, shape, values.at(name).data()});
    return out;
  }
  std::vector<std::string> layers() const {
    std::vector<std::string> out;
    for (const auto& [name, shape] : leaves)
      if (const size_t at = name.find(".lora_A"); at != std::string::npos) out.push_back(name.substr(0, at));
    return out;
  }
  // Adds scale B A to W, in the model's own values.
  void merge() const {
    for (const std::string& layer : layers()) {
      std::vector<float>& w = model->values.at(layer + ".weight");
      const Shape& s = model->shapes.at(layer + ".weight");
      for (int64_t o = 0; o < s[0]; ++o)
        for (int64_t i = 0; i < s[1]; ++i)
          for (int64_t k = 0; k < 3; ++k)
            w[static_cast<size_t>(o * s[1] + i)] += 0.5F * b(layer, o, k) * a(layer, k, i, s[1]);
    }
  }
  float a(const std::string& layer, int64_t k, int64_t i, int64_t inputs) const {
    return values.at(layer + ".lora_A.weight")[static_cast<size_t>(k * inputs + i)];
  }
  float b(const std::string& layer, int64_t o, int64_t k) const {
    return values.at(layer + ".lora_B.weight")[static_cast<size_t>(o * 3 + k)];
  }
};

struct Step {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

Step step_of(const std::shared_ptr<const WeightSource>& source, const WeightShapes& shapes, const DecoderConfig& c) {
  Parameters parameters(make_backend("cpu"), source, shapes, 0);
  Graph g;
  Gradients gradients(parameters, decoder_cross_entropy(g, c, batch_shape(), nn::kF32));
  Batch(0, 0, c.vocabulary).give(gradients);
  Step out{gradients.run(), {}};
  for (const Parameter& p : parameters.all()) {
    const std::vector<float> values = parameters.values(p.grad, p.count());
    out.gradients[p.name].assign(values.begin(), values.end());
  }
  return out;
}

void expect_chain_rule(size_t number, const std::vector<std::string>& targets) {
  const Adapted m(number, targets);
  const Step got = step_of(m.source(), m.leaves, m.config);
  m.merge();
  const Step want = step_of(m.model, m.model->shapes, m.model->config);
  EXPECT_NEAR(got.loss, want.loss, 1e-5 * want.loss);
  EXPECT_EQ(got.gradients.size(), 2 * m.layers().size());
  for (const std::string& layer : m.layers()) {
    const Shape& s = m.model->shapes.at(layer + ".weight");
    const std::vector<double>& dw = want.gradients.at(layer + ".weight");
    std::vector<double> da(static_cast<size_t>(3 * s[1])), db(static_cast<size_t>(3 * s[0]));
    for (int64_t o = 0; o < s[0]; ++o)
      for (int64_t i = 0; i < s[1]; ++i)
        for (int64_t k = 0; k < 3; ++k) {
          const double d = 0.5 * dw[static_cast<size_t>(o * s[1] + i)];
          da[static_cast<size_t>(k * s[1] + i)] += d * static_cast<double>(m.b(layer, o, k));
          db[static_cast<size_t>(o * 3 + k)] += d * static_cast<double>(m.a(layer, k, i, s[1]));
        }
    const auto floats = [](const std::vector<double>& x) { return std::vector<float>(x.begin(), x.end()); };
    EXPECT_TRUE(close_to_largest(floats(got.gradients.at(layer + ".lora_A.weight")), da, 1e-4)) << layer;
    EXPECT_TRUE(close_to_largest(floats(got.gradients.at(layer + ".lora_B.weight")), db, 1e-4)) << layer;
  }
}

TEST(Adapter, GradientsByTheChainRule) {
  expect_chain_rule(0, adapter_layers());
  expect_chain_rule(1, {"v_proj"});
  expect_chain_rule(2, {"q_proj", "v_proj", "o_proj", "up_proj"});
}

// Initially the network equals the model bit for bit, and only the zero factors have a gradient.
TEST(Adapter, BeginsAsTheModel) {
  const Adapted m(0, adapter_layers());
  auto base = std::make_unique<Model>(*m.model);
  const auto source = with_new_adapter(std::move(base), m.leaves, 7);
  const Step got = step_of(source, m.leaves, m.config);
  EXPECT_EQ(got.loss, step_of(m.model, m.model->shapes, m.model->config).loss);
  for (const std::string& layer : m.layers()) {
    const auto is_zero = [](double x) { return x == 0; };
    EXPECT_TRUE(std::ranges::all_of(got.gradients.at(layer + ".lora_A.weight"), is_zero)) << layer;
    EXPECT_FALSE(std::ranges::all_of(got.gradients.at(layer + ".lora_B.weight"), is_zero)) << layer;
    const HostView a = source->find(layer + ".lora_A.weight");
    const double bound = 1 / std::sqrt(static_cast<double>(a.shape[1]));
    double largest = 0;
    for (int64_t i = 0; i < a.shape.numel(); ++i)
      largest = std::max(largest, std::abs(load_element(a.dtype, a.data, i)));
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, 0.9 * bound);
  }
}

// Read back as PEFT writes it, it is W + alpha / rank B A.
TEST(Adapter, IsReadBack) {
  const Adapted m(0, {"q_proj", "down_proj"});
  const language_test::Folder folder;
  std::vector<TensorData> tensors;
  for (const auto& [name, shape] : m.leaves)
    tensors.push_back({kAdapterPrefix + name, DType::F32, shape, std::as_bytes(std::span(m.values.at(name)))});
  write_safetensors(folder.path() / kAdapterWeights, tensors);
  const auto config = adapter_config(m.config.adapter, "base");
  folder.write(kAdapterConfig, config.dump());
  const auto open = [&] { return with_adapter(std::make_unique<Model>(*m.model), m.model->shapes, folder.path()); };
  const auto merged = open();
  m.merge();
  for (const auto& [name, shape] : m.model->shapes) {
    const HostView got = merged->find(name);
    for (int64_t i = 0; i < shape.numel(); ++i)
      ASSERT_NEAR(load_element(got.dtype, got.data, i),
                  static_cast<double>(m.model->values.at(name)[static_cast<size_t>(i)]), 1e-6)
          << name;
    merged->done(name);
  }
  const auto refuses = [&](const char* key, const nlohmann::json& value, const std::string& part) {
    nlohmann::ordered_json changed = config;
    changed[key] = value;
    folder.write(kAdapterConfig, changed.dump());
    try {
      open();
      ADD_FAILURE() << key;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Model);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refuses("use_dora", true, "use_dora");
  refuses("use_qalora", true, "use_qalora");
  refuses("use_bdlora", {{"nblocks", 2}}, "use_bdlora");
  refuses("peft_type", "IA3", "peft_type");
  refuses("rank_pattern", {{"q_proj", 2}}, "rank_pattern");
  refuses("modules_to_save", {"lm_head"}, "modules_to_save");
  refuses("r", 4, "expected floats [4,");
  refuses("r", 0, "r");
  refuses("alora_invocation_tokens", {1}, "alora_invocation_tokens");  // adds nothing before these
  std::vector<float> bad(tensors[0].data.size() / sizeof(float), 1);
  bad[5] = NAN;
  const std::span<const std::byte> good = tensors[0].data;
  tensors[0].data = std::as_bytes(std::span(bad));
  write_safetensors(folder.path() / kAdapterWeights, tensors);
  refuses("bias", "none", "holds nan at element 5");
  tensors[0].data = good;
  folder.write(kAdapterConfig, config.dump());
  tensors[0].name = "base_model.model.model.layers.99.mlp.down_proj.lora_A.weight";
  write_safetensors(folder.path() / kAdapterWeights, tensors);
  EXPECT_THROW(open(), Error);
  write_safetensors(folder.path() / kAdapterWeights, std::span(tensors).subspan(1));
  EXPECT_THROW(open(), Error);  // one factor without the other
}

// An adapter's folder that is opened with another value of one key of its configuration.
class WrittenAdapter {
 public:
  explicit WrittenAdapter(const std::vector<std::string>& targets)
      : adapted_(0, targets), config_(adapter_config(adapted_.config.adapter, "base")) {
    std::vector<TensorData> tensors;
    for (const auto& [name, shape] : adapted_.leaves)
      tensors.push_back({kAdapterPrefix + name, DType::F32, shape, std::as_bytes(std::span(adapted_.values.at(name)))});
    write_safetensors(folder_.path() / kAdapterWeights, tensors);
  }
  void open_with(const char* key, const nlohmann::json& value) {
    config_[key] = value;
    folder_.write(kAdapterConfig, config_.dump());
    with_adapter(std::make_unique<Model>(*adapted_.model), adapted_.model->shapes, folder_.path());
  }

 private:
  const Adapted adapted_;
  const language_test::Folder folder_;
  nlohmann::ordered_json config_;
};

// PEFT drops what a file has beside layers that the list does not name.
TEST(Adapter, OnlyBesideItsTargets) {
  WrittenAdapter adapter({"q_proj", "down_proj"});
  for (const nlohmann::json& all : {nlohmann::json("all-linear"), nlohmann::json(), nlohmann::json("q_proj|down_proj"),
                                    nlohmann::json({"q_proj", "mlp.down_proj"})})
    EXPECT_NO_THROW(adapter.open_with("target_modules", all)) << all;
  for (const nlohmann::json& some : {nlohmann::json({"q_proj", "v_proj"}), nlohmann::json({"proj", "q_proj"})}) {
    try {
      adapter.open_with("target_modules", some);
      ADD_FAILURE() << some;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Model);
      EXPECT_NE(std::string(e.what()).find("mlp.down_proj.lora_A.weight' is beside a layer that is not in "
                                           "target_modules of adapter_config.json"),
                std::string::npos)
          << e.what();
    }
  }
}

// PEFT's ways to begin: some also change the weights that the product is added to.
TEST(Adapter, BeginningsThatAreReadBack) {
  WrittenAdapter adapter({"q_proj"});
  for (const nlohmann::json& plain : {nlohmann::json(), nlohmann::json(true), nlohmann::json("gaussian"),
                                      nlohmann::json("eva"), nlohmann::json("orthogonal")})
    EXPECT_NO_THROW(adapter.open_with("init_lora_weights", plain)) << plain;
  for (const std::string how : {"pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga"}) {
    try {
      adapter.open_with("init_lora_weights", how);
      ADD_FAILURE() << how;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("'init_lora_weights' is \"" + how), std::string::npos) << e.what();
    }
  }
}

TEST(Adapter, RefusesWhatIsNoAdapter) {
  DecoderConfig c = Adapted(0, {"q_proj"}).config;
  const auto refuses = [&](const nn::LowRank& a) {
    c.adapter = a;
    EXPECT_THROW(adapter_weights(c), Error);
  };
  refuses({0, 1, {"q_proj"}});
  refuses({2, 1, {}});
  refuses({2, 1, {"lm_head"}});
  refuses({2, 1, {"q_proj", "q_proj"}});
  refuses({2, INFINITY, {"q_proj"}});
}

}  // namespace
}  // namespace tenon::train
