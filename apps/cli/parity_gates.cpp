// Checks networks against results that diffusers and transformers computed in f64 (tests/fixtures).
#include <cmath>

#include "apps/cli/gates.h"
#include "tenon/core/compare.h"
#include "tenon/core/error.h"
#include "tenon/core/host_tensor.h"
#include "tenon/core/stop.h"
#include "tenon/io/json.h"
#include "tenon/io/safetensors.h"
#include "tenon/models/clip_text.h"
#include "tenon/models/hash_weights.h"
#include "tenon/models/unet.h"
#include "tenon/models/vae.h"
#include "tenon/runtime/executable.h"

namespace tenon::cli {
namespace {
using nlohmann::json;

constexpr double kTolerance = 1e-4;  // relative to the largest magnitude, for one network in f32

// The weights behind the recorded results, from a hash of name and index.
class HashedWeights : public WeightSource {
 public:
  explicit HashedWeights(const WeightShapes& shapes) {
    uint32_t rank = 0;
    for (const auto& [name, shape] : shapes) {
      std::vector<float> values(static_cast<size_t>(shape.numel()));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(hash_weight(name, rank, static_cast<uint32_t>(i)));
      tensors_[name] = HostTensor::from(DType::F32, shape, std::span<const float>(values));
      ++rank;
    }
  }
  HostView find(const std::string& name) const override {
    const auto it = tensors_.find(name);
    TENON_CHECK(Model, it != tensors_.end(), "parity") << "no tensor '" << name << "'";
    return {it->second.dtype, it->second.shape, it->second.data.data()};
  }

 private:
  std::map<std::string, HostTensor> tensors_;
};

Shape shape_from(const json& dims) {
  const auto values = dims.get<std::vector<int64_t>>();
  return Shape(std::span<const int64_t>(values));
}

// An input {"k", "scale", "shape", "offset"} made by the hash.
struct HashedInput {
  Shape shape;
  std::vector<float> values;
  HashedInput(const json& about, int rank) : shape(shape_from(about.at("shape"))) {
    TENON_CHECK(Model, shape.rank() == rank, "parity.json")
        << "expected an input of " << rank << " dimensions, found shape " << shape.str();
    values.resize(static_cast<size_t>(shape.numel()));
    const double scale = about.at("scale"), offset = about.value("offset", 0.0);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] =
          static_cast<float>(scale * hash_uniform(about.at("k").get<uint32_t>(), static_cast<uint32_t>(i)) + offset);
  }
};

// Images in the fixtures are NCHW, the engine's are NHWC.
std::vector<float> to_nhwc(const HashedInput& x) {
  const int64_t n = x.shape[0], c = x.shape[1], area = x.shape[2] * x.shape[3];
  std::vector<float> out(x.values.size());
  for (int64_t i = 0; i < n * c * area; ++i)
    out[static_cast<size_t>((i / (c * area) * area + i % area) * c + i / area % c)] = x.values[static_cast<size_t>(i)];
  return out;
}

// A network's result.
struct Output {
  Shape shape;
  std::vector<float> values;
};

Output to_nchw(const Output& nhwc) {
  const int64_t n = nhwc.shape[0], h = nhwc.shape[1], w = nhwc.shape[2], c = nhwc.shape[3], area = h * w;
  Output out{{n, c, h, w}, std::vector<float>(nhwc.values.size())};
  for (int64_t i = 0; i < n * c * area; ++i)
    out.values[static_cast<size_t>(i)] =
        nhwc.values[static_cast<size_t>((i / (c * area) * area + i % area) * c + i / area % c)];
  return out;
}

// One network over one graph, run once in f32.
struct Network {
  Graph graph;
  Expr value;
  WeightShapes weights;
  std::map<std::string, std::vector<float>> inputs;
  Output run(const std::shared_ptr<Backend>& backend) const {
    const Plan plan = make_plan(std::array{Result{"out", value}});
    Executable executable(plan, backend, HashedWeights(weights));
    for (const auto& [name, values] : inputs) executable.set(name, values);
    executable.run_all();
    return {value.shape(), executable.get("out")};
  }
};

Output run_text(const json& c, const json& models, const std::shared_ptr<Backend>& backend) {
  Network n;
  const ClipTextConfig config = clip_text_config(c.contains("config") ? c["config"] : models.at("text"), "parity.json");
  const auto ids = c.at("ids").get<std::vector<std::vector<int>>>();
  TENON_CHECK(Model, !ids.empty(), "parity.json") << "expected rows of ids, found none";
  n.value = clip_text(n.graph, config, static_cast<int64_t>(ids.size()), static_cast<int64_t>(ids[0].size()), nn::kF32,
                      0, DType::F32);
  n.weights = clip_text_weights(config);
  for (const auto& row : ids) n.inputs["tokens"].insert(n.inputs["tokens"].end(), row.begin(), row.end());
  return n.run(backend);
}

Output run_unet(const json& c, const json& models, const std::shared_ptr<Backend>& backend) {
  Network n;
  const UNetConfig config = unet_config(models.at("unet"), "parity.json");
  const HashedInput x(c.at("x"), 4), context(c.at("context"), 3);
  UNetShape shape;
  shape.batch = x.shape[0];
  shape.height = x.shape[2];
  shape.width = x.shape[3];
  shape.tokens = context.shape[1];
  n.value = unet(n.graph, config, shape, nn::kF32);
  n.weights = unet_weights(config);
  n.inputs = {
      {"latents", x.values}, {"context", context.values}, {"timesteps", {c.at("t").get<float>()}}, {"step", {0.0F}}};
  return n.run(backend);
}

Output run_vae(const json& c, const json& models, bool encode, const std::shared_ptr<Backend>& backend) {
  Network n;
  VaeConfig config = vae_config(models.at("vae"), "parity.json");
  config.scaling_factor = 1;  // the recorded latents are not scaled
  const HashedInput x(c.at("x"), 4);
  n.weights = vae_weights(config);
  if (encode) {
    n.value = vae_encode(n.graph, config, x.shape[0], x.shape[2], x.shape[3], nn::kF32);
    n.inputs = {{"image", to_nhwc(x)}};
    return n.run(backend);
  }
  n.value = vae_decode(n.graph, config, x.shape[0], x.shape[2], x.shape[3], nn::kF32, ImageRange::Signed);
  n.inputs = {{"latents", x.values}};
  return to_nchw(n.run(backend));
}

Output run_network(const json& c, const json& models, const std::shared_ptr<Backend>& backend) {
  const std::string kind = c.at("kind");
  if (kind == "text") return run_text(c, models, backend);
  if (kind == "unet") return run_unet(c, models, backend);
  return run_vae(c, models, kind == "vae-encode", backend);
}

// The other cases are whole pictures, which the tests cover.
bool is_one_network(const json& c) {
  const std::string kind = c.at("kind");
  return kind == "text" || kind == "unet" || kind == "vae-encode" || kind == "vae-decode";
}

void expect_shape(GateCase& c, const Shape& got, const Shape& recorded) {
  const tenon::Comparison found(got, recorded);
  if (!found.agrees()) c.fail(found.text());
}

// nlohmann::json's message, without its own prefix.
std::string reason(const json::exception& e) {
  const std::string text = e.what();
  return text.substr(text.find("] ") + 2);
}

GateCase check_case(const json& c, const json& models, const SafetensorsFile& file,
                    const std::shared_ptr<Backend>& backend) {
  const std::string name = c.at("name");
  GateCase out{"parity " + name, Verdict::Passed, 0, c.value("f32_tolerance", kTolerance), "", {}};
  const json& about = c.at("expect").at("out");
  const Shape shape = shape_from(about.at("shape"));
  const auto stride = about.at("stride").get<int64_t>();
  TENON_CHECK(Model, stride > 0, "parity.json") << "case " << name << " has a stride of " << stride;
  const Output got = run_network(c, models, backend);
  expect_shape(out, got.shape, shape);
  const std::vector<double> kept = every(got.values, static_cast<size_t>(stride));
  const TensorView& recorded = file.at(name + "/out");
  expect_shape(out, {static_cast<int64_t>(kept.size())}, recorded.shape);
  std::vector<double> want;
  for (int64_t i = 0; i < recorded.shape.numel(); ++i) want.push_back(load_element(recorded.dtype, recorded.data, i));
  const double largest = largest_magnitude(want);
  const tenon::Comparison found = tenon::compare(kept, want, Tolerance{out.tolerance * largest});
  out.error = found.worst_share() * out.tolerance;
  if (!found.agrees()) out.fail(found.text());
  return out;
}

}  // namespace

void parity_gates(const std::filesystem::path& folder, const std::shared_ptr<Backend>& backend, const OnCase& done) {
  if (!std::filesystem::exists(folder / "parity.json")) {
    done({"parity", Verdict::Skipped, 0, 0, "there are no recorded results (parity.json) in " + folder.string(), {}});
    return;
  }
  const std::filesystem::path path = folder / "parity.json";
  const json all = read_json(path);
  const SafetensorsFile file = SafetensorsFile::open(folder / "parity.safetensors");
  int compared = 0;
  std::string now;  // file being read
  try {
    const json& models = all.at("models");
    for (const json& c : all.at("cases")) {
      check_stop();
      now = "a case: ";
      now = "case '" + c.at("name").get<std::string>() + "': ";
      if (!is_one_network(c)) continue;
      done(check_case(c, models, file, backend));
      ++compared;
    }
  } catch (const json::exception& e) {
    throw Error(ErrorKind::Model, path.string(), now + reason(e));
  }
  if (compared == 0) done({"parity", Verdict::Skipped, 0, 0, path.string() + " has no case for a single network", {}});
}

}  // namespace tenon::cli
