#include "apps/cli/parts.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/core/options.h"
#include "tenon/core/similar.h"
#include "tenon/core/text.h"
#include "tenon/io/image.h"
#include "tenon/pipelines/offload_size.h"
#include "tenon/pipelines/random_weights.h"

namespace tenon::cli {
namespace {

// Names of parts over all families, and "all".
std::vector<std::string> part_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out{"all"};
    for (const ModelFamily* family : families_that(ModelParts::kAbility))
      if (const Presets presets = family->presets(); !presets.empty())
        for (const std::string& part : open_parts(std::string(kRandomModel) + presets.front().first)->parts())
          if (std::ranges::find(out, part) == out.end()) out.push_back(part);
    return out;
  }();
  return names;
}

}  // namespace

void PartFlags::declare(CLI::App& app, const std::string& default_part) {
  part = default_part;
  const CLI::Range side(int64_t{1}, kMaxImageSide);
  offer(app.add_option(
            "-m,--model", spec,
            "model: a folder, a .safetensors file, or random:NAME for random weights (default: the embedded model)"),
        model_names(ModelParts::kAbility), Beside::Files);
  offer(app.add_option("--part", part,
                       "network of the model to work on, or all (default: " +
                           (default_part.empty() ? "the main one" : default_part) + ")"),
        part_names());
  app.add_option("-W,--width", request.width, "image width in pixels (default: the model's)")
      ->transform(whole_number())
      ->check(side);
  app.add_option("-H,--height", request.height, "image height in pixels (default: the model's)")
      ->transform(whole_number())
      ->check(side);
  app.add_option("--batch-size", request.batch, "images or texts computed together (default: 1)")
      ->transform(whole_number())
      ->check(CLI::Range(1, 4096));
  app.add_option("--steps,--num-inference-steps", request.steps, "number of denoising steps (default: the model's)")
      ->transform(whole_number())
      ->check(CLI::Range(1, 1000));
  app.add_option("--cfg-scale,--guidance-scale", request.cfg_scale,
                 "classifier-free guidance scale; above 1 doubles the batch (default: the model's)")
      ->check(guidance_scale());
  app.add_option("--context", request.context,
                 "size of a language model's cache in tokens per sequence; a measured token comes after half of them "
                 "(default: 1024, or the model's positions if fewer)")
      ->transform(whole_number())
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24));
  declare_type(app, type);
  declare_deterministic(app, deterministic);
  declare_offload(app, offload);
  app.add_flag("--no-fusion", no_fusion, "run every node as its own launch, for comparison");
  app.add_flag(
      "--no-fold", no_fold,
      "do not fold constant scales into the weights of linear layers, nor the products of two layers into one");
}

void declare_offload(CLI::App& app, std::string& size) {
  offer(app.add_option("--offload,--max-vram", size,
                       "limit for networks in a GPU's memory, such as 10GB (a bare number is in GiB), or auto for nine "
                       "tenths of what is free; weights that do not fit stay in host memory and are copied to the GPU "
                       "while other launches run (default: no limit)"),
        {"auto", "10GB"});
}

std::shared_ptr<WeightStore> PartFlags::weights(const std::shared_ptr<Backend>& backend,
                                                std::shared_ptr<const WeightSource> source) const {
  auto store = std::make_shared<WeightStore>(backend, std::move(source));
  if (!offload.empty()) store->set_offload(offload_on(*backend, parse_offload(offload, "--offload")));
  return store;
}

void declare_type(CLI::App& app, std::string& type) {
  offer(
      app.add_option(
          "--type", type,
          "type of weights and activations: bf16, f32, f16 (on a GPU), e4m3 (for models that say which layers tolerate "
          "it) or int8 (for the weights of language models), optionally followed by exceptions for layers or networks, "
          "such as \"e4m3, bf16: text_encoder\" (default: bf16 for language models and where the device computes in "
          "it, else f32)"),
      {"bf16", "f16", "f32", "e4m3", "int8"});
}

void declare_training_type(CLI::App& app, std::string& type, const std::vector<std::string>& types) {
  offer(app.add_option("--type", type, joined(types) + " (default: f32)"), types);
}

DType training_type(const std::string& given, const std::vector<std::string>& types, const std::string& rule,
                    const Backend& backend) {
  NetworkType type(DType::F32);
  const auto wrong = [&] {
    return Error(ErrorKind::Usage, "--type", shown(given) + ": " + rule, did_you_mean(given, types));
  };
  try {
    if (!given.empty()) type = NetworkType::parse(given);
  } catch (const Error&) {  // it names types that are not for training
    throw wrong();
  }
  TENON_CHECK(Usage, type.policy.exceptions.empty(), "--type")
      << "'" << shown(given) << "': expected one type, without exceptions";
  const auto is_given = [&](const std::string& t) { return NetworkType::parse(t).name() == type.name(); };
  if (std::ranges::none_of(types, is_given)) throw wrong();
  check_type(backend, type.stored, "--type");
  return type.name();
}

bool fusion_is_off(bool flag) { return flag || is_on(Option::NoFusion); }
bool folding_is_off(bool flag) { return flag || is_on(Option::NoFold); }

std::shared_ptr<Backend> PartFlags::backend(const Common& common) const {
  return common.backend({.batch_invariant = is_batch_invariant(deterministic)});
}

std::shared_ptr<Backend> PartFlags::computing_backend(const Common& common) const {
  std::shared_ptr<Backend> out = backend(common);
  TENON_CHECK(Usage, out->computes(), "--device") << out->name() << " computes nothing that could be timed or checked";
  return out;
}

NetworkOptions PartFlags::networks(const Backend& backend, const ModelParts& model) const {
  const NetworkType asked = type.empty() ? model.default_type(backend) : NetworkType::parse(type);
  check_type(backend, asked.stored, "--type");
  check_exceptions(asked, [&] { return model.networks(); });
  return {.precision = {asked.stored, asked.stored},
          .policy = asked.policy,
          .fusion = !fusion_is_off(no_fusion),
          .fold_scales = !folding_is_off(no_fold),
          .target = backend.target()};
}

}  // namespace tenon::cli
