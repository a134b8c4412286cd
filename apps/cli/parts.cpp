#include "parts.h"

#include <algorithm>
#include <limits>

#include "tenon/core/error.h"
#include "tenon/core/options.h"

namespace tenon::cli {

const std::vector<std::string>& part_names() {
  static const std::vector<std::string> names{"text", "unet", "vae-decode", "vae-encode"};
  return names;
}

void PartFlags::declare(CLI::App& app, const std::string& default_part) {
  part = default_part;
  std::vector<std::string> choices = part_names();
  const CLI::Range positive(int64_t{1}, std::numeric_limits<int64_t>::max());
  choices.emplace_back("all");
  app.add_option("-m,--model", spec, "folder, .safetensors file or random:NAME (default: the embedded model)");
  app.add_option("--part", part, "network")->check(CLI::IsMember(choices))->capture_default_str();
  app.add_option("-W,--width", width, "pixels (default: the model's)")->transform(whole_number())->check(positive);
  app.add_option("-H,--height", height, "pixels (default: the model's)")->transform(whole_number())->check(positive);
  app.add_option("--batch-size", batch, "images in one run")->transform(whole_number())->check(CLI::Range(1, 64));
  app.add_option("--steps,--num-inference-steps", steps, "steps of the schedule")
      ->transform(whole_number())
      ->check(CLI::Range(1, 1000));
  app.add_option("--cfg-scale,--guidance-scale", cfg_scale, "1 or less: without guidance (half the batch)");
  app.add_option("--type", type, "bf16, f32 or, on a GPU, f16 (default: bf16 where the device computes in it)");
  app.add_flag("--no-fusion", no_fusion, "one launch a node");
}

GenerationShape PartFlags::shape(const Model& model) const {
  const GenerationDefaults& d = model.defaults();
  GenerationShape s;
  s.batch = batch;
  s.width = width ? width : d.width;
  s.height = height ? height : d.height;
  s.guided = (cfg_scale < 0 ? d.cfg_scale : cfg_scale) > 1;
  s.tokens = model.config().text.positions;
  s.timesteps = steps ? steps : d.steps;
  check_size(model, s.height, s.width);
  return s;
}

DType parse_type(const std::string& flag) {
  if (flag == "bf16" || flag == "bfloat16") return DType::BF16;
  if (flag == "f32" || flag == "fp32" || flag == "float32") return DType::F32;
  if (flag == "f16" || flag == "fp16" || flag == "float16") return DType::F16;
  throw Error(ErrorKind::Usage, "--type", "'" + flag + "' is not computed in here; expected bf16, f16 or f32");
}

bool fusion_is_off(bool flag) {
  const std::string variable = option(Option::NoFusion);
  return flag || (!variable.empty() && variable != "0");
}

NetworkOptions PartFlags::networks(const Backend& backend) const {
  const std::vector<DType> types = backend.types();
  const DType dtype = type.empty() ? types.front() : parse_type(type);
  TENON_CHECK(Usage, std::find(types.begin(), types.end(), dtype) != types.end(), "--type")
      << name_of(dtype) << " is not computed in by " << backend.name();
  return {{dtype, dtype}, !fusion_is_off(no_fusion)};
}

std::vector<std::string> PartFlags::parts() const {
  return part == "all" ? part_names() : std::vector<std::string>{part};
}

Plan plan_part(const Model& model, const std::string& part, const GenerationShape& shape,
               const NetworkOptions& options) {
  if (part == "text") return plan_text(model, shape.batch * (shape.guided ? 2 : 1), options);
  if (part == "unet") return plan_unet(model, shape, options);
  return part == "vae-decode" ? plan_vae_decode(model, shape, options) : plan_vae_encode(model, shape, options);
}

std::unique_ptr<WeightSource> weights_of_part(const Model& model, const std::string& part) {
  return model.weights(part == "text" ? "text_encoder" : part == "unet" ? "unet" : "vae");
}

}  // namespace tenon::cli
