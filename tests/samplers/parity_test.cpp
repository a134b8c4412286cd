// Samplers against recorded runs of diffusers (tools/fixtures/schedulers.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tenon/pipelines/samplers/sampler.h"
#include "tests/fixtures/hashing.h"
#include "tests/support/close.h"

namespace {

using nlohmann::json;
using tenon::Sampler;

constexpr double kTolerance = 2e-5;
constexpr int kSize = 6;

json read_cases() {
  std::ifstream file(TENON_SOURCE_DIR "/tests/fixtures/schedulers.json");
  return json::parse(file).at("cases");
}

std::vector<float> fake_model(const std::vector<float>& x, double t) {
  std::vector<float> out(x.size());
  for (size_t j = 0; j < x.size(); ++j)
    out[j] = static_cast<float>(0.3 * x[j] + 0.8 * std::sin(1.7 * static_cast<double>(j) + 0.013 * t));
  return out;
}

std::unique_ptr<Sampler> sampler_of(const json& c) {
  tenon::SamplerOptions options;
  if (c.contains("eta")) options.eta = c.at("eta").get<double>();
  if (c.contains("karras")) options.karras = c.at("karras").get<bool>();
  return tenon::make_sampler(c.at("sampler").get<std::string>(), c.at("config"), options);
}

// Relative to the largest magnitude of the recorded vector, so that elements near 0 have the same absolute tolerance.
void expect_close(const std::vector<float>& got, const std::vector<double>& want, const std::string& what) {
  EXPECT_TRUE(tenon::close_to_largest(got, want, kTolerance)) << what;
}

std::vector<float> start_sample(const json& c, const Sampler& sampler) {
  std::vector<float> x = fixtures::hash_tensor(1, kSize);
  if (c.at("strength") < 1) {
    const std::vector<float> noise = x;
    x = fixtures::hash_tensor(2, kSize);
    sampler.add_noise(x, noise, 0);
  } else {
    for (float& v : x) v = static_cast<float>(v * sampler.init_noise_sigma());
  }
  return x;
}

// Runs the case; returns element 0 after every call and leaves the final sample in x.
std::vector<float> sample(Sampler& sampler, std::vector<float>& x) {
  std::vector<float> after;
  for (int call = 0; call < sampler.calls(); ++call) {
    std::vector<float> input = x;
    sampler.scale_model_input(input, call);
    const std::vector<float> output = fake_model(input, sampler.timesteps()[static_cast<size_t>(call)]);
    sampler.step(output, call, x, [&](std::span<float> noise) {
      const std::vector<float> n = fixtures::hash_tensor(static_cast<uint32_t>(100 + call), kSize);
      std::copy(n.begin(), n.end(), noise.begin());
    });
    after.push_back(x[0]);
  }
  return after;
}

TEST(SamplerParity, EveryRecordedRun) {
  const json cases = read_cases();
  ASSERT_GT(cases.size(), 300u);
  for (const json& c : cases) {
    json label = c;
    for (const char* key : {"after", "final", "start", "timesteps"}) label.erase(key);
    SCOPED_TRACE(label.dump());
    const auto sampler = sampler_of(c);
    sampler->set_steps(c.at("steps"), c.at("strength"));
    const std::vector<double> times = c.at("timesteps");
    EXPECT_TRUE(tenon::close(sampler->timesteps(), times, tenon::Tolerance{2e-3})) << "timesteps";
    EXPECT_LE(std::abs(sampler->init_noise_sigma() / c.at("init_noise_sigma").get<double>() - 1), 1e-6);
    std::vector<float> x = start_sample(c, *sampler);
    expect_close(x, c.at("start"), "start");
    const std::vector<float> after = sample(*sampler, x);
    expect_close(after, c.at("after"), "after every call");
    expect_close(x, c.at("final"), "final");
  }
}

TEST(SamplerParity, SetStepsForgetsEverything) {
  for (const json& c : read_cases()) {
    if (c.at("steps") != 10) continue;
    const auto used = sampler_of(c), fresh = sampler_of(c);
    used->set_steps(7);
    std::vector<float> x = fixtures::hash_tensor(3, kSize);
    sample(*used, x);
    used->set_steps(10, c.at("strength"));
    fresh->set_steps(10, c.at("strength"));
    std::vector<float> a = start_sample(c, *used), b = start_sample(c, *fresh);
    sample(*used, a);
    sample(*fresh, b);
    EXPECT_EQ(a, b) << c.at("sampler");
  }
}

}  // namespace
