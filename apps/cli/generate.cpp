// tenon generate: writes PNG files from a prompt, or from a prompt and a picture.
#include <algorithm>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/cli/lora_flags.h"
#include "apps/cli/output_names.h"
#include "apps/cli/parts.h"
#include "apps/cli/progress.h"
#include "apps/cli/standard_input.h"
#include "apps/cli/version.h"
#include "apps/cli/vocabulary.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/core/utf8.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/io/prompt_weights.h"
#include "tenon/io/random.h"
#include "tenon/pipelines/generation_defaults.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/offload_size.h"
#include "tenon/pipelines/picture_text.h"
#include "tenon/pipelines/samplers/sampler.h"

namespace tenon::cli {
namespace {
namespace fs = std::filesystem;

struct GenerateFlags {
  std::string model, prompt_argument, negative, output, init, type, deterministic, sampler, schedule, offload,
      rng = "cpu", resize_mode = "stretch";
  std::vector<std::string> prompts, prompt_files;
  int64_t width = 0, height = 0, seed = 42, batch_size = 1;
  int steps = 0, batch_count = 1, first_number = 0;
  double cfg_scale = -1, cfg_normalization = 0, cfg_truncation = 1, strength = 0.75;
  std::optional<double> eta, guidance_scale, flow_shift;
  PartPaths parts;
  bool overwrite = false, no_metadata = false, no_fusion = false;
  LoraFlags lora;
  CLI::App* app = nullptr;

  bool given(const std::string& flag) const { return app->count(flag) > 0; }
};

std::string read_prompt_file(const std::string& path) {
  std::string text =
      path == "-" ? read_standard_input("prompt", kMaxPromptBytes) : read_argument_file(path, kMaxPromptBytes);
  text = std::string(without_byte_order_mark(text));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

// What only a complete request tells.
void check_complete(const GenerateFlags& f, const ImageRequest& request) {
  if (request.cfg_scale <= 1)
    warn_idle(*f.app, "guidance is off", {"--negative-prompt", "--cfg-normalization", "--cfg-truncation"});
  if (request.loras.empty())
    warn_idle(*f.app, "there is no LoRA", {"--lora-dir", "--lora-partial", "--lora-apply", "--lora-rank"});
  else if (f.lora.apply != "side")
    warn_idle(*f.app, "--lora-apply is not side", {"--lora-rank"});
  const auto images = static_cast<uint64_t>(f.batch_count) * static_cast<uint64_t>(request.batch);
  const auto only_name = [&](int number) { return output_names("--output", f.output, 1, number); };
  if (images == 1 && only_name(0) == only_name(1))
    warn_idle(*f.app, "the output's name has no number", {"--output-begin-idx"});
  TENON_CHECK(Usage, request.seed + images - 1 <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), "--seed")
      << request.seed << ": " << images << " images take as many seeds, and the largest is "
      << std::numeric_limits<int64_t>::max();
}

// Prompts may come from flags of one kind only; one of them may be standard input.
std::vector<std::string> resolve_prompts(const GenerateFlags& f) {
  const int given = f.given("PROMPT") + !f.prompts.empty() + !f.prompt_files.empty();
  TENON_CHECK(Usage, given == 1, "prompt")
      << (given ? "is given in more than one way: use PROMPT, --prompt or --prompt-file"
                : "missing: tenon generate \"a red circle\"");
  std::vector<std::string> texts = f.prompts;
  if (f.given("PROMPT")) texts = {f.prompt_argument};
  for (const std::string& file : f.prompt_files) texts.push_back(read_prompt_file(file));
  TENON_CHECK(Usage, std::ranges::count(f.prompt_files, "-") + std::ranges::count(f.prompts, "-") < 2, "prompt")
      << "standard input can be read only once";
  for (std::string& text : texts)
    if (text == "-" && f.prompt_files.empty()) text = read_prompt_file("-");
  const auto check = [](const std::string& what, const std::string& value) {
    if (const auto at = first_invalid_utf8(value))
      throw Error(ErrorKind::Usage, what, "is not UTF-8: byte " + std::to_string(*at) + " is not part of a character");
    // A PNG text chunk ends there, so the rest of the description would be lost.
    TENON_CHECK(Usage, value.find('\0') == std::string::npos, what) << "has a zero byte at " << value.find('\0');
  };
  for (size_t i = 0; i < texts.size(); ++i) check(prompt_label(texts, i), texts[i]);
  check("negative prompt", f.negative);
  return texts;
}

std::optional<bool> resolve_karras(const std::string& schedule) {
  if (schedule.empty() || schedule == "default") return {};
  return schedule == "karras";
}

ImageRequest request_of(const GenerateFlags& f) {
  ImageRequest r;
  r.prompts = resolve_prompts(f);
  r.batch = f.batch_size;
  if (r.prompts.size() == 1) {
    r.prompt = std::move(r.prompts.front());
    r.prompts.clear();
  } else {
    TENON_CHECK(Usage, f.batch_size == 1, "--batch-size")
        << "cannot be combined with several prompts, which are computed together";
    r.batch = static_cast<int64_t>(r.prompts.size());
  }
  r.negative = f.negative;
  r.loras = f.lora.uses();
  r.width = f.width;
  r.height = f.height;
  r.steps = f.steps;
  r.cfg_scale = f.cfg_scale;
  r.cfg_normalization = f.cfg_normalization;
  r.cfg_truncation = f.cfg_truncation;
  r.sampler = f.sampler;
  r.sampler_options = {f.eta, resolve_karras(f.schedule), f.flow_shift};
  r.strength = f.strength;
  TENON_CHECK(Usage, f.seed >= -1, "--seed") << f.seed << ": expected 0 or more, or -1 to pick one";
  r.seed = f.seed < 0 ? draw_seed() : static_cast<uint64_t>(f.seed);
  if (f.init.empty()) {
    for (const char* flag : {"--strength", "--resize-mode"})
      TENON_CHECK(Usage, !f.given(flag), flag) << "needs a picture (--init-img)";
    return r;
  }
  r.picture = read_image(f.init);
  r.resize_mode = parse_resize_mode(f.resize_mode);
  return r;
}

void check_positive(const GenerateFlags& f, const char* flag, int64_t value) {
  TENON_CHECK(Usage, !f.given(flag) || value > 0, flag) << "expected a positive number, got " << value;
}

void check_flags(const GenerateFlags& f) {
  check_positive(f, "--width", f.width);
  check_positive(f, "--height", f.height);
  check_positive(f, "--steps", f.steps);
}

std::string result_line(const fs::path& path, const ImageResult& result, size_t i) {
  const Timings& t = result.timings;
  nlohmann::ordered_json out = picture_json(result, i);
  out["timings"] = {{"load", t.load},       {"text", t.text},     {"encode", t.encode},
                    {"denoise", t.denoise}, {"decode", t.decode}, {"steps", t.steps}};
  out["peak_bytes"] = result.peak_bytes;
  out["path"] = path.string();
  return json_text(out);
}

void write_batch(const GenerateFlags& f, const Common& common, const ImageResult& result, const ModelText& model,
                 const std::vector<fs::path>& names, size_t first) {
  for (size_t i = 0; i < result.images.size(); ++i) {
    check_stop();
    const ImageText text = f.no_metadata ? ImageText{} : picture_text(result, i, model, {version(), commit()});
    write_image(names[first + i], result.images[i], text, f.overwrite ? Overwrite::Yes : Overwrite::No);
    std::cout << (common.json ? result_line(names[first + i], result, i) : escaped(names[first + i].native()))
              << std::endl;
  }
}

int run(const GenerateFlags& f, const Common& common) {
  check_flags(f);
  ImageRequest request = request_of(f);
  const int total = f.batch_count * static_cast<int>(request.batch);
  const std::vector<fs::path> names = output_names("--output", f.output, total, f.first_number);
  for (const fs::path& name : names) check_output(name, f.overwrite ? Overwrite::Yes : Overwrite::No, kOverwriteHint);
  PipelineOptions options;
  options.device = common.device_name();
  options.threads = common.backend_options().threads;
  if (!f.type.empty()) options.type = NetworkType::parse(f.type);
  options.fusion = !fusion_is_off(f.no_fusion);
  options.batch_invariant = is_batch_invariant(f.deterministic);
  if (!f.offload.empty()) options.offload = parse_offload(f.offload, "--offload");
  f.lora.set(options);
  options.keep_networks = f.batch_count > 1;
  options.parts = f.parts;
  const std::string& spec = f.model.empty() ? f.parts.diffusion_model : f.model;
  const std::unique_ptr<ImageGenerator> model = open_as<ImageGenerator>(spec, options);
  if (f.guidance_scale) request.cfg_scale = *f.guidance_scale + model->guidance_offset();
  request = model->complete(std::move(request));
  f.lora.load(*model, request);
  check_complete(f, request);
  for (const std::string& warning : model->warnings(request, "tenon generate --help")) spdlog::warn("{}", warning);
  model->check_fits(request);
  if (request.init && request.init->scaled_from)
    spdlog::info("{}: {}x{}, resized to {}x{} ({})", f.init, request.init->scaled_from->first,
                 request.init->scaled_from->second, request.width, request.height, f.resize_mode);
  const double offset = model->guidance_offset();
  const std::string also = offset == 0 ? "" : " (--guidance-scale " + number_text(request.cfg_scale - offset) + ")";
  spdlog::info("{}: {}x{}, {} {} of {}{}, guidance {}{}, seed {}, {}", model->name(), request.width, request.height,
               request.steps, request.steps == 1 ? "step" : "steps", request.sampler,
               request.sampler_options.karras.value_or(false) ? " (karras)" : "", request.cfg_scale, also, request.seed,
               model->backend().describe());
  const ModelText about = f.no_metadata ? ModelText{} : model_text(*model);
  for (int b = 0; b < f.batch_count; ++b) {
    check_stop();
    ImageRequest one = request;
    one.seed = request.seed + static_cast<uint64_t>(b) * static_cast<uint64_t>(request.batch);
    ImageResult result;
    {
      ProgressBar bar("step", common.quiet);
      result = model->generate(one, [&bar](const Progress& p) { bar.step(p.step, p.steps, p.seconds); });
    }
    write_batch(f, common, result, about, names, static_cast<size_t>(b) * result.images.size());
  }
  return 0;
}

void declare_picture_flags(CLI::App& app, GenerateFlags& f) {
  app.add_option("PROMPT", f.prompt_argument, "prompt: what to draw; -: read it from standard input");
  several(app.add_option("-p,--prompt", f.prompts,
                         "prompt: what to draw; repeat it for one image each, computed together, where the model can"));
  several(app.add_option("--prompt-file", f.prompt_files,
                         "file with the prompt; -: standard input; may be repeated as -p"));
  app.add_option("-n,--negative-prompt", f.negative, "negative prompt: what not to draw");
  offer(app.add_option(
            "-m,--model", f.model,
            "model: a folder, .safetensors or .gguf file, or a name in TENON_MODEL_DIR (default: the embedded model)"),
        model_names(ImageGenerator::kAbility), Beside::Files);
  app.add_option("--diffusion-model", f.parts.diffusion_model,
                 "file or folder of the transformer of a model in parts, instead of the one in -m");
  app.add_option("--llm", f.parts.text_encoder, "file or folder of the text encoder of a model in parts");
  app.add_option("--vae", f.parts.vae, "file or folder of the VAE of a model in parts");
  app.add_option("-W,--width", f.width, "image width in pixels (default: the model's)")->transform(whole_number());
  app.add_option("-H,--height", f.height, "image height in pixels (default: the model's)")->transform(whole_number());
  app.add_option("--steps,--num-inference-steps", f.steps, "denoising steps (default: the model's)")
      ->transform(whole_number());
  CLI::Option* cfg =
      app.add_option("--cfg-scale", f.cfg_scale, "classifier-free guidance scale; 1: off (default: the model's)")
          ->check(guidance_scale());
  app.add_option("--guidance-scale", f.guidance_scale, "guidance as the model's diffusers pipeline counts it")
      ->check(guidance_scale())
      ->excludes(cfg);
  app.add_option("--cfg-normalization", f.cfg_normalization,
                 "limit a guided prediction to this times the norm of the prompt's own, where the model can (default: "
                 "0, no limit)")
      ->check(guidance_scale());
  app.add_option(
         "--cfg-truncation", f.cfg_truncation,
         "no guidance at steps with less noise than 1 minus this, where the model can (default: 1, at all steps)")
      ->check(guidance_scale());
  const std::vector<std::string> samplers = sampler_names();
  offer(app.add_option("--sampling-method,--sampler", f.sampler,
                       "sampler: " + joined(samplers) + " (default: the model's)"),
        samplers);
  only(app.add_option("--scheduler", f.schedule, "spacing of the noise levels (default: the model's or sampler's)"),
       {"default", "discrete", "karras"});
  app.add_option("--eta", f.eta, "share of fresh noise, 0 to 1, for ddim (default: 0) and euler_a (default: 1)");
  app.add_option("--flow-shift", f.flow_shift, "shift of the noise levels in flow matching (default: the model's)");
  app.add_option("-s,--seed", f.seed, "random seed; -1: pick one and report it; image i uses seed + i")
      ->transform(whole_number())
      ->capture_default_str();
  app.add_option("-b,--batch-count", f.batch_count, "number of batches, computed one after the other")
      ->transform(whole_number())
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--batch-size", f.batch_size, "images per batch, computed together")
      ->transform(whole_number())
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("-i,--init-img", f.init, "picture to start from, PNG or JPEG");
  app.add_option("--strength", f.strength, "how much of --init-img to redraw, as a share of the steps, above 0 up to 1")
      ->capture_default_str();
  only(app.add_option("--resize-mode", f.resize_mode,
                      "how --init-img is fitted to -W and -H: stretched, cropped, or its borders filled"),
       resize_mode_names())
      ->capture_default_str();
}

// The words of the embedded model; empty if it is not installed.
std::string vocabulary_help() {
  std::string out;
  for (const auto& [kind, words] : vocabulary()) {
    out += "\n  " + kind + ":";
    for (const std::string& word : words) out += " " + word;
  }
  return out.empty() ? out : std::string("\n") + kVocabularyIntroduction + out + "\n";
}

Action declare_generate(CLI::App& app, const Common& common) {
  const auto f = std::make_shared<GenerateFlags>();
  f->app = &app;
  app.footer(vocabulary_help);
  declare_picture_flags(app, *f);
  only(app.add_option("--rng", f->rng, "noise generator: PyTorch's CPU generator"), {"cpu"})->capture_default_str();
  declare_type(app, f->type);
  declare_deterministic(app, f->deterministic);
  declare_offload(app, f->offload);
  f->lora.declare(app);
  app.add_option("-o,--output", f->output,
                 "output file (PNG or JPEG), pattern such as a_%03d.png, or folder (default: output.png)");
  app.add_option("--output-begin-idx", f->first_number,
                 "number of the first output file, if their names are numbered (default: 0)")
      ->transform(whole_number())
      ->check(CLI::Range(0, 1000000));
  app.add_flag("--overwrite", f->overwrite, "replace existing files");
  app.add_flag("--no-metadata,--disable-image-metadata", f->no_metadata, "do not write the settings into the file");
  app.add_flag("--no-fusion", f->no_fusion, "run every node as its own launch, for comparison");
  return [f, &common] { return run(*f, common); };
}

const RegisterVerb kGenerate{{"generate", "draw pictures from a prompt", declare_generate}};

}  // namespace
}  // namespace tenon::cli
