// Shared by the tests in this folder: hash weights as leaves, recorded outputs of the reference implementation.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/io/safetensors.h"
#include "tenon/models/weights.h"
#include "tenon/oracle/oracle.h"
#include "tests/fixtures/hashing.h"
#include "tests/support/close.h"

namespace models_test {

inline std::string fixture_path(const std::string& name) {
  return std::string(TENON_SOURCE_DIR) + "/tests/fixtures/" + name;
}

/// tests/fixtures/FILE.*: cases by name, and a named tensor of a case.
class Parity {
 public:
  static const Parity& get(const std::string& file = "parity") {
    static std::map<std::string, Parity> all;
    return all.try_emplace(file, file).first->second;
  }
  explicit Parity(const std::string& file)
      : head_(nlohmann::json::parse(std::ifstream(fixture_path(file + ".json")))),
        file_(tenon::SafetensorsFile::open(fixture_path(file + ".safetensors"))) {}
  const nlohmann::json& head() const { return head_; }
  const nlohmann::json& of(const std::string& name) const {
    for (const auto& c : head_["cases"])
      if (c["name"] == name) return c;
    throw std::runtime_error("no case " + name);
  }
  const nlohmann::json& config(const std::string& component) const { return head_["models"][component]; }
  /// Elements 0, stride, 2 stride, .. of the expected tensor.
  std::vector<double> expected(const std::string& name, const std::string& tensor) const {
    const tenon::TensorView& t = file_.at(name + "/" + tensor);
    std::vector<double> out;
    for (int64_t i = 0; i < t.shape.numel(); ++i) out.push_back(tenon::load_element(t.dtype, t.data, i));
    return out;
  }

 private:
  nlohmann::json head_;
  tenon::SafetensorsFile file_;
};

inline tenon::Shape shape_of(const nlohmann::json& dims) {
  return tenon::Shape(std::span<const int64_t>(dims.get<std::vector<int64_t>>()));
}

/// Values 2 u(k, i), like the fixtures' inputs.
inline std::vector<double> hash_input(uint32_t k, int64_t n, double scale = 2.0) {
  const std::vector<float> x = fixtures::hash_tensor(k, n, scale);
  return {x.begin(), x.end()};
}

/// An oracle whose parameters are the hash weights of `names` and whose other leaves are given.
inline tenon::Oracle hash_oracle(const tenon::WeightShapes& names, std::map<std::string, std::vector<double>> inputs) {
  std::map<std::string, uint32_t> rank;
  for (const auto& [name, shape] : names) rank.emplace(name, static_cast<uint32_t>(rank.size()));
  return tenon::Oracle([rank, inputs](const tenon::Expr& leaf) -> std::vector<double> {
    const std::string& name = leaf->attrs.text;
    if (const auto it = inputs.find(name); it != inputs.end()) return it->second;
    const std::vector<float> w = fixtures::hash_weight(name, rank.at(name), leaf.shape().numel());
    return {w.begin(), w.end()};
  });
}

/// Whether every `stride`-th element of `found` is as expected, within `tolerance` of the largest expected value.
inline testing::AssertionResult agrees(const std::vector<double>& found, const std::vector<double>& expected,
                                       double tolerance, size_t stride = 1) {
  return tenon::close_to_largest(tenon::every(found, stride), expected, tolerance);
}

/// Compares a whole or thinned tensor of a parity case with `found`.
inline void expect_parity(const std::string& name, const std::string& tensor, const std::vector<double>& found,
                          double tolerance = 1e-5, const Parity& recorded = Parity::get()) {
  const auto& what = recorded.of(name)["expect"][tensor];
  EXPECT_EQ(static_cast<int64_t>(found.size()), shape_of(what["shape"]).numel()) << name << " " << tensor;
  EXPECT_TRUE(agrees(found, recorded.expected(name, tensor), tolerance, what["stride"].get<size_t>()))
      << name << " " << tensor;
}

inline double mean_magnitude(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += std::abs(v);
  return sum / static_cast<double>(x.size());
}

inline void expect_starts_with(const std::vector<double>& x, std::initializer_list<double> first) {
  ASSERT_GE(x.size(), first.size());
  EXPECT_TRUE(tenon::close(std::vector(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(first.size())),
                           std::vector<double>(first), tenon::Tolerance{1e-4}));
}

/// The value `steps` nodes after the product or convolution with the weight `name`, in a chain: the output in f32 of a
/// named part of a network, which has no node of that name.
inline tenon::Expr behind_weight(const tenon::Expr& root, const std::string& name, int steps) {
  const auto nodes = tenon::topological(std::array{root});
  const auto user_of = [&](const tenon::Expr& x, auto&& wanted) {
    for (const tenon::Expr& e : nodes)
      for (const tenon::Expr& in : e->in)
        if (in == x && wanted(e)) return e;
    throw std::runtime_error("nothing uses " + name);
  };
  const auto any = [](const tenon::Expr&) { return true; };
  for (const tenon::Expr& e : nodes) {
    if (e->attrs.text != name) continue;
    tenon::Expr at = e;
    while (at->family() != tenon::Family::Anchor) at = user_of(at, any);
    for (int i = 0; i < steps; ++i) at = user_of(at, [](const tenon::Expr& u) { return u->name() == "add"; });
    return at;
  }
  throw std::runtime_error("no weight " + name);
}

}  // namespace models_test
