#include "tests/gradients/cases.h"

#include <cmath>
#include <fstream>

#include "tenon/expr/ops.h"
#include "tenon/expr/vjp.h"
#include "tenon/nn/loss.h"
#include "tests/fixtures/hashing.h"

namespace tenon::gradient_cases {
namespace {

using nlohmann::json;

class Maker {
 public:
  Maker(const json& about, int64_t chunk) : about_(about), chunk_(chunk) {
    made_.name = about.at("name");
    made_.expect = about.at("expect");
  }

  Case made() {
    const std::string kind = made_.name.substr(0, made_.name.find('-'));
    if (kind == "gather") {
      differentiate(gather(weight("table"), leaf("index")), {"table"});
    } else if (kind == "conv2d") {
      differentiate(conv2d(leaf("x"), weight("w"), about_.at("stride"), about_.at("pads")), {"x", "w"});
    } else if (kind == "attention") {
      differentiate(attention(leaf("q"), leaf("k"), leaf("v"), about_.at("attention_scale"), about_.at("causal")),
                    {"q", "k", "v"});
    } else if (kind == "cross") {
      const nn::CrossEntropy c = nn::cross_entropy(leaf("hidden"), weight("weight"), leaf("target"), chunk_);
      made_.results = {{"loss", c.loss}, {"d.hidden", c.d_hidden}, {"d.weight", c.d_weight}};
    } else {
      transformer();
    }
    return std::move(made_);
  }

 private:
  Expr leaf(const std::string& name) { return add(name, false); }
  Expr weight(const std::string& name) { return add(name, true); }

  Expr add(const std::string& name, bool is_weight) {
    const json& i = about_.at("inputs").at(name);
    const Shape shape(i.at("shape").get<std::vector<int64_t>>());
    const bool whole = i.contains("below");
    std::vector<double> values;
    for (int64_t at = 0; at < shape.numel(); ++at) {
      const double u = fixtures::u(i.at("k"), static_cast<uint32_t>(at));
      values.push_back(whole ? std::floor((u + 0.5) * i.at("below").get<double>())
                             : i.value("offset", 0.0) + i.at("scale").get<double>() * u);
    }
    if (name == "target" && about_.contains("without_target"))
      for (const json& at : about_.at("without_target")) values[at.get<size_t>()] = -1;
    const DType type = whole ? DType::I32 : DType::F32;
    made_.tensors.emplace(name, HostTensor::from(type, shape, values));
    const Expr e = is_weight ? param(*made_.graph, name, type, shape) : input(*made_.graph, name, type, shape);
    return leaves_[name] = e;
  }

  void differentiate(const Expr& y, const std::vector<std::string>& names) { differentiate(y, leaf("seed"), names); }
  void differentiate(const Expr& y, const Expr& seed, const std::vector<std::string>& names) {
    std::vector<Expr> wanted;
    for (const std::string& name : names) wanted.push_back(leaves_.at(name));
    const std::vector<Expr> grads = gradients(y, seed, wanted);
    for (size_t i = 0; i < names.size(); ++i) made_.results.push_back({"d." + names[i], grads[i]});
  }

  Expr norm(const Expr& x, const std::string& name) { return x * rsqrt(mean(x * x) + 1e-6) * weight(name); }

  Expr attend(const Expr& h, const std::string& layer) {
    const int64_t depth = about_.at("depth"), batch = h.shape()[0], rows = h.shape()[1];
    const auto heads = [&](const char* name, const char* count) {
      const Expr y = linear(h, weight(layer + name));
      return permute(reshape(y, {batch, rows, about_.at(count), depth}), {0, 2, 1, 3});
    };
    const Expr q = heads("q", "heads"), k = heads("k", "kv_heads"), v = heads("v", "kv_heads");
    const Expr mixed = attention(q, k, v, 1 / std::sqrt(static_cast<double>(depth)), true);
    return linear(reshape(permute(mixed, {0, 2, 1, 3}), h.shape()), weight(layer + "o"));
  }

  void transformer() {
    Expr x = gather(weight("embed"), leaf("tokens"));
    for (int i = 0; i < about_.at("layers"); ++i) {
      const std::string layer = std::to_string(i) + ".";
      x = x + attend(norm(x, layer + "norm1"), layer);
      const Expr h = norm(x, layer + "norm2");
      x = x + linear(silu(linear(h, weight(layer + "gate"))) * linear(h, weight(layer + "up")), weight(layer + "down"));
    }
    made_.forward = norm(x, "norm");
    std::vector<std::string> names;
    for (const auto& [name, e] : leaves_)
      if (e.is<nodes::Param>()) names.push_back(name);
    const nn::CrossEntropy c = nn::cross_entropy(made_.forward, weight("head"), leaf("target"), chunk_);
    made_.results = {{"loss", c.loss}, {"d.head", c.d_weight}};
    differentiate(made_.forward, c.d_hidden, names);
  }

  const json& about_;
  int64_t chunk_;
  Case made_;
  std::map<std::string, Expr> leaves_;
};

json recorded() {
  std::ifstream file(TENON_SOURCE_DIR "/tests/fixtures/gradients.json");
  return json::parse(file).at("cases");
}

}  // namespace

std::vector<Case> all_cases(int64_t chunk) {
  const json cases = recorded();
  std::vector<Case> out;
  for (const json& about : cases) out.push_back(Maker(about, chunk).made());
  return out;
}

Case case_of(const std::string& name, int64_t chunk) {
  for (Case& c : all_cases(chunk))
    if (c.name == name) return std::move(c);
  throw std::out_of_range("no case " + name);
}

}  // namespace tenon::gradient_cases
