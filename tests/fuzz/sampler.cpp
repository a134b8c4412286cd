// Any bytes as a scheduler_config.json, for every sampler: either an Error, or a schedule that can be run to its end.
#include "tenon/pipelines/samplers/sampler.h"

#include <array>
#include <cmath>

#include "tenon/io/json.h"
#include "tests/fuzz/fuzz_tools.h"

namespace {
using namespace tenon;

void walk(Sampler& sampler, int steps, double strength) {
  sampler.set_steps(steps, strength);
  std::array<float, 3> sample{0.5f, -1, 2}, output{0.1f, 0.2f, -0.3f};
  for (int i = 0; i < sampler.calls(); ++i) {
    if (!std::isfinite(sampler.timesteps()[static_cast<size_t>(i)])) std::abort();
    sampler.noise_level(i);
    std::array<float, 3> input = sample;
    sampler.scale_model_input(input, i);
    sampler.step(output, i, sample, [](std::span<float> noise) { std::fill(noise.begin(), noise.end(), 0.25f); });
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nlohmann::json config;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!fuzz::refuses_only({ErrorKind::Model}, [&] { config = parse_json(text, "fuzz"); })) return 0;
  std::vector<std::string> names = sampler_names();
  names.emplace_back();
  for (const std::string& name : names)
    for (const std::optional<bool> karras : {std::optional<bool>(), std::optional(true)})
      fuzz::refuses_only({ErrorKind::Model, ErrorKind::Usage}, [&] {
        const auto sampler = make_sampler(name, config, {{}, karras});
        for (const int steps : {1, 2, 7})
          for (const double strength : {1.0, 0.6})
            fuzz::refuses_only({ErrorKind::Model, ErrorKind::Usage}, [&] { walk(*sampler, steps, strength); });
      });
  return 0;
}
