// Names, options, settings and misuse of the samplers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tenon/core/error.h"
#include "tenon/pipelines/samplers/sampler.h"

namespace {

using nlohmann::json;
using tenon::Error;
using tenon::ErrorKind;
using tenon::make_sampler;
using tenon::SamplerOptions;
using tenon::sd15_scheduler_config;

json with(const std::string& key, const json& value) {
  json config = sd15_scheduler_config();
  config[key] = value;
  return config;
}

template <class F>
void expect_error(ErrorKind kind, const std::string& part, F&& f) {
  try {
    f();
    ADD_FAILURE() << "no error; expected one about " << part;
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
    EXPECT_THAT(e.what(), testing::HasSubstr(part));
  }
}

std::vector<double> timesteps(const std::string& name, const json& config, int steps, double strength = 1) {
  const auto sampler = make_sampler(name, config);
  sampler->set_steps(steps, strength);
  return {sampler->timesteps().begin(), sampler->timesteps().end()};
}

TEST(Samplers, Names) {
  EXPECT_THAT(tenon::sampler_names(), testing::IsSupersetOf({"ddim", "dpm++2m", "euler", "euler_a", "pndm"}));
  for (const char* name : {"ddim", "DDIM", "pndm", "PLMS", "euler", "Euler", "euler_a", "Euler a", "euler_ancestral",
                           "dpm++2m", "DPM++ 2M", "dpmpp_2m", "DPM++ 2M Karras", "dpm++_2m_karras",
                           "EulerDiscreteScheduler", "DPMSolverMultistepScheduler"})
    EXPECT_NE(make_sampler(name, sd15_scheduler_config()), nullptr) << name;
  EXPECT_EQ(timesteps("", sd15_scheduler_config(), 20).size(), 21u) << "an empty name takes the config's class";
  EXPECT_EQ(timesteps("", with("_class_name", "DDIMScheduler"), 20).size(), 20u);
}

TEST(Samplers, UnknownNames) {
  expect_error(ErrorKind::Usage, "euler_a", [] { make_sampler("heun", sd15_scheduler_config()); });
  expect_error(ErrorKind::Usage, "unknown sampler", [] { make_sampler("karras", sd15_scheduler_config()); });
  expect_error(ErrorKind::Model, "HeunDiscreteScheduler",
               [] { make_sampler("", with("_class_name", "HeunDiscreteScheduler")); });
  expect_error(ErrorKind::Model, "_class_name", [] { make_sampler("", json::object()); });
  expect_error(ErrorKind::Model, "JSON object", [] { make_sampler("ddim", json::array()); });
}

TEST(Samplers, Options) {
  const json config = sd15_scheduler_config();
  expect_error(ErrorKind::Usage, "Karras", [&] { make_sampler("ddim karras", config); });
  expect_error(ErrorKind::Usage, "Karras", [&] { make_sampler("pndm", config, {.eta = {}, .karras = true}); });
  expect_error(ErrorKind::Usage, "eta", [&] { make_sampler("euler", config, {.eta = 0.5, .karras = {}}); });
  for (const double eta : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()})
    expect_error(ErrorKind::Usage, "eta", [&] { make_sampler("ddim", config, {.eta = eta, .karras = {}}); });
  EXPECT_FALSE(make_sampler("ddim", config)->needs_noise());
  EXPECT_TRUE(make_sampler("ddim", config, {.eta = 1.0, .karras = {}})->needs_noise());
  EXPECT_TRUE(make_sampler("euler_a", config)->needs_noise());
  const auto karras = make_sampler("euler", with("use_karras_sigmas", true), {.eta = {}, .karras = false});
  karras->set_steps(20);
  EXPECT_EQ(karras->timesteps()[1], static_cast<double>(static_cast<float>(999.0 * 18 / 19))) << "the option wins";
}

TEST(Samplers, OneNameForEverySpelling) {
  const auto chosen = [](const std::string& name, const json& config, const SamplerOptions& options = {}) {
    const tenon::SamplerChoice c = tenon::choose_sampler(name, config, options);
    return c.name + (c.options.karras ? *c.options.karras ? " karras" : " discrete" : "") +
           (c.options.eta ? " " + std::to_string(*c.options.eta).substr(0, 3) : "");
  };
  const json config = sd15_scheduler_config(), karras = with("use_karras_sigmas", true);
  for (const char* name : {"dpm++2m", "DPM++ 2M", "dpmpp_2m", "DPMSolverMultistepScheduler"}) {
    EXPECT_EQ(chosen(name, config), "dpm++2m discrete");
    EXPECT_EQ(chosen(name, karras), "dpm++2m karras");
    EXPECT_EQ(chosen(std::string(name) + " Karras", config), "dpm++2m karras");
    EXPECT_EQ(chosen(name, karras, {.eta = {}, .karras = false}), "dpm++2m discrete");
  }
  EXPECT_EQ(chosen("", config), "pndm");
  EXPECT_EQ(chosen("PLMS", karras, {.eta = 0.0, .karras = false}), "pndm");
  EXPECT_EQ(chosen("DDIM", config), "ddim 0.0");
  EXPECT_EQ(chosen("Euler a", karras), "euler_a discrete 1.0");
  EXPECT_EQ(chosen("Euler a Karras", config, {.eta = 0.5, .karras = {}}), "euler_a karras 0.5");
  expect_error(ErrorKind::Usage, "DPM++ 2M Karras",
               [&] { make_sampler("DPM++ 2M Karras", config, {.eta = {}, .karras = false}); });
}

TEST(Samplers, Timesteps) {
  const json config = sd15_scheduler_config();
  EXPECT_THAT(timesteps("ddim", config, 4), testing::ElementsAre(751, 501, 251, 1));
  EXPECT_THAT(timesteps("pndm", config, 4), testing::ElementsAre(751, 501, 501, 251, 1));
  EXPECT_THAT(timesteps("euler", config, 4), testing::ElementsAre(999, 666, 333, 0));
  EXPECT_THAT(timesteps("dpm++2m", config, 4), testing::ElementsAre(999, 749, 500, 250));
  EXPECT_THAT(timesteps("ddim", config, 4, 0.5), testing::ElementsAre(251, 1));
  EXPECT_THAT(timesteps("pndm", config, 4, 0.5), testing::ElementsAre(501, 251, 1));
  EXPECT_THAT(timesteps("ddim", config, 10, 0.29), testing::ElementsAre(101, 1)) << "10 * 0.29 is truncated";
}

// A last beta of 0 makes two noise levels equal: no step may be at a NaN timestep.
TEST(Samplers, LevelsThatAreAlike) {
  const auto sampler = make_sampler("euler", with("beta_end", 0.0), {.eta = {}, .karras = true});
  sampler->set_steps(7);
  for (const double t : sampler->timesteps()) EXPECT_TRUE(t >= 0 && t <= 999) << t;
}

TEST(Samplers, StepCounts) {
  for (const std::string& name : tenon::sampler_names()) {
    const auto sampler = make_sampler(name, sd15_scheduler_config());
    for (const int steps : {-1, 0, 1001, 1000000000})
      expect_error(ErrorKind::Usage, "steps", [&] { sampler->set_steps(steps); });
    for (const double strength : {0.0, -0.5, 1.01, std::numeric_limits<double>::quiet_NaN()})
      expect_error(ErrorKind::Usage, "strength", [&] { sampler->set_steps(10, strength); });
    expect_error(ErrorKind::Usage, "leaves no step", [&] { sampler->set_steps(10, 0.05); });
  }
  expect_error(ErrorKind::Usage, "timestep 1000", [] { timesteps("ddim", sd15_scheduler_config(), 1000); });
  expect_error(ErrorKind::Usage, "same noise level",
               [] { timesteps("dpm++2m", with("timestep_spacing", "leading"), 1000); });
  expect_error(ErrorKind::Usage, "at least 4", [] { timesteps("pndm", with("skip_prk_steps", false), 3); });
  expect_error(ErrorKind::Usage, "Runge-Kutta", [] { timesteps("pndm", with("skip_prk_steps", false), 9, 0.5); });
}

TEST(Samplers, BadSettings) {
  const auto bad = [](const std::string& name, const std::string& key, const json& value) {
    expect_error(ErrorKind::Model, key, [&] { make_sampler(name, with(key, value)); });
  };
  json zero_first = json::array();
  for (int i = 0; i < 1000; ++i) zero_first.push_back(i * 1e-5);
  for (const std::string& name : tenon::sampler_names()) {
    bad(name, "prediction_type", "flow");
    bad(name, "beta_schedule", "sigmoid");
    bad(name, "timestep_spacing", "random");
    bad(name, "beta_start", "0.1");
    bad(name, "beta_end", 1.5);
    bad(name, "num_train_timesteps", 0);
    bad(name, "num_train_timesteps", 10.5);
    bad(name, "steps_offset", -1);
    bad(name, "trained_betas", json::array({0.1, 0.2}));
    bad(name, "trained_betas", 3);
    bad(name, "beta_start", 0);
    bad(name, "beta_start", 1e-12);  // 1 - beta is 1 in f32
    bad(name, "trained_betas", zero_first);
    bad(name, "beta_end", 0.5);  // the product of 1 - beta is 0 in f32: infinite noise
  }
  bad("pndm", "prediction_type", "sample");
  bad("ddim", "thresholding", true);
  bad("ddim", "clip_sample", "yes");
  bad("euler", "interpolation_type", "log_linear");
  bad("euler", "timestep_type", "continuous");
  bad("euler", "use_beta_sigmas", true);
  bad("euler", "final_sigmas_type", "one");
  bad("dpm++2m", "algorithm_type", "sde-dpmsolver++");
  bad("dpm++2m", "solver_order", 3);
  bad("dpm++2m", "solver_type", "heun");
  bad("dpm++2m", "use_lu_lambdas", true);
  bad("dpm++2m", "lambda_min_clipped", -1);
  bad("dpm++2m", "lambda_min_clipped", "x");
  json zero = with("rescale_betas_zero_snr", true);
  zero["timestep_spacing"] = "trailing";
  expect_error(ErrorKind::Model, "no signal", [&] { timesteps("ddim", zero, 4); });
  EXPECT_NO_THROW(make_sampler("ddim", with("trained_betas", nullptr))) << "null means absent";
  for (const json& limit : {json(-5.1), json(nullptr), json(-1e300)})  // below the noisiest timestep's -2.68
    EXPECT_NO_THROW(make_sampler("dpm++2m", with("lambda_min_clipped", limit))) << limit;
}

TEST(Samplers, Misuse) {
  const auto sampler = make_sampler("euler_a", sd15_scheduler_config());
  sampler->set_steps(3);
  std::vector<float> x(4, 1.0f);
  const std::vector<float> e(4, 0.5f), wrong(3, 0.5f);
  const tenon::NoiseSource noise = [](std::span<float> out) { std::fill(out.begin(), out.end(), 0.0f); };
  expect_error(ErrorKind::Internal, "call 0", [&] { sampler->step(e, 1, x, noise); });
  expect_error(ErrorKind::Internal, "elements", [&] { sampler->step(wrong, 0, x, noise); });
  expect_error(ErrorKind::Internal, "noise source", [&] { sampler->step(e, 0, x); });
  expect_error(ErrorKind::Internal, "elements", [&] { sampler->add_noise(x, wrong, 0); });
  expect_error(ErrorKind::Internal, "call 3", [&] { sampler->add_noise(x, e, 3); });
  for (int call = 0; call < 3; ++call) sampler->step(e, call, x, noise);
  expect_error(ErrorKind::Internal, "call 3", [&] { sampler->step(e, 3, x, noise); });
}

TEST(Samplers, NoiseIsDrawnOnceACall) {
  const auto sampler = make_sampler("euler_a", sd15_scheduler_config());
  sampler->set_steps(5);
  int draws = 0;
  std::vector<float> x(4, 1.0f), e(4, 0.1f);
  for (int call = 0; call < 5; ++call)
    sampler->step(e, call, x, [&](std::span<float> out) {
      ++draws;
      std::fill(out.begin(), out.end(), 1.0f);
    });
  EXPECT_EQ(draws, 5) << "the last step draws too, and multiplies by 0";
}

// With the exact noise as model output every sampler must undo the mixture: x0 is a fixed point of all.
TEST(Samplers, TrueNoiseLeadsToTheCleanSample) {
  for (const std::string& name : tenon::sampler_names()) {
    const auto sampler = make_sampler(name, with("set_alpha_to_one", true));
    for (const double strength : {1.0, 0.6}) {
      if (name == "pndm" && strength < 1) continue;  // one timestep ahead of its sample, see pndm.cpp
      sampler->set_steps(25, strength);
      const std::vector<float> clean = {0.3f, -1.2f, 0.7f}, noise = {1.1f, 0.4f, -0.9f};
      std::vector<float> x = clean;
      sampler->add_noise(x, noise, 0);
      for (int call = 0; call < sampler->calls(); ++call) {
        // The noise between the sample and the clean one at this call; PNDM's repeated call is at another level.
        const tenon::NoiseLevel level = sampler->noise_level(call);
        std::vector<float> e(3);
        for (size_t i = 0; i < 3; ++i)
          e[i] = name == "pndm" ? noise[i] : static_cast<float>((x[i] - level.alpha * clean[i]) / level.sigma);
        sampler->step(e, call, x, [](std::span<float> out) { std::fill(out.begin(), out.end(), 0.3f); });
      }
      for (size_t i = 0; i < 3; ++i) EXPECT_LE(std::abs(x[i] - clean[i]), 2e-4) << name << " " << strength;
    }
  }
}

}  // namespace
