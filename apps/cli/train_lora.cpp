// tenon train lora: trains a model that draws on a few pictures.
#include "apps/cli/train.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "apps/cli/parts.h"
#include "apps/cli/text_flags.h"
#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/models/lora.h"
#include "tenon/pipelines/image_generator.h"
#include "tenon/pipelines/lora_set.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/train/checkpoint.h"
#include "tenon/train/lora.h"
#include "tenon/train/metrics.h"
#include "tenon/train/ovals.h"
#include "tenon/train/rematerialise.h"

namespace tenon::cli {
namespace {
using nlohmann::ordered_json;

// Model to use if neither a model nor pictures are given: the embedded one that trains fastest.
constexpr const char* kOwnModel = "z-image-shapes";

const std::vector<std::string> kLoraTypes{"f32", "bf16", "e4m3"};

struct LoraTrainFlags {
  train::LoraOptions o;
  PartPaths parts;
  std::vector<std::string> known;
  std::string model, adapter, pictures, held, caption, output = "lora", cache, type, density = "none",
                                                       decay = "constant", format = "diffusers";
  int64_t resolution = 0, memory = 0, sample_steps = 0;
  double shift = 0;
  bool no_cache = false, least_memory = false;
  const CLI::App* app = nullptr;

  bool given(const std::string& flag) const { return app->count(flag) > 0; }
};

void declare_lora_what(CLI::App& app, LoraTrainFlags& f) {
  offer(app.add_option("-m,--model", f.model,
                       "image model: a folder, a file, or a name in TENON_MODEL_DIR "
                       "(default: an embedded one)"),
        model_names(TrainableDenoiser::kAbility), Beside::Files);
  app.add_option(both_spellings("diffusion_model"), f.parts.diffusion_model,
                 "file or folder of the transformer, for a model in parts");
  app.add_option("--llm", f.parts.text_encoder, "file or folder of the text encoder");
  app.add_option("--vae", f.parts.vae, "file or folder of the VAE");
  offer(app.add_option(
            "--adapter", f.adapter,
            "LoRA to apply to the model during training only, a file or the folder that train lora wrote; it is not "
            "part of the result"),
        {}, Beside::Files);
  offer(app.add_option(both_spellings("instance_data_dir"), f.pictures,
                       "folder of PNG and JPEG pictures to train on, each with its caption in a .txt file beside it "
                       "(default: an embedded model learns 16 pictures that the program draws, by default with "
                       "--steps 3000 --lr 5e-4, or for default-model --steps 6000 --lr 2e-3 --targets all-linear, and "
                       "--train-batch-size 4 --lr-scheduler cosine --lr-warmup-steps 20 --validation-steps 500 "
                       "--sample-every 1000)"),
        {}, Beside::Files);
  app.add_option("--caption," + both_spellings("instance_prompt"), f.caption,
                 "caption of pictures without a .txt file");
  several(app.add_option(both_spellings("class_prompt"), f.known,
                         "prior preservation: the model draws this prompt before training and trains on the picture "
                         "too, so as not to forget it; may be repeated"));
  app.add_option("-o,--output," + both_spellings("output_dir"), f.output,
                 "folder for checkpoints, metrics, samples and the LoRA; a run that is already in it is resumed")
      ->capture_default_str();
  app.add_option(both_spellings("cache_dir"), f.cache,
                 "folder to cache encoded pictures and captions in (default: cache in the output folder)");
  app.add_flag(both_spellings("no_cache"), f.no_cache, "encode pictures and captions again, without a cache");
  only(app.add_option("--format", f.format, "also write the LoRA in this format, beside diffusers'"),
       train::lora_format_names())
      ->capture_default_str();
  app.add_flag("--tensorboard", f.o.tensorboard, "also write metrics as a TensorBoard event file");
}

void declare_lora_layers(CLI::App& app, LoraTrainFlags& f) {
  train::LoraOptions& o = f.o;
  declare_count(app, "--rank", o.rank, "rank of the LoRA's matrices A and B", 1);
  app.add_option(both_spellings("lora_alpha"), o.alpha, "scale B A by this / rank (default: the rank)");
  comma_list(app, "--targets," + both_spellings("lora_layers"), o.targets,
             "layers to adapt, by the end of their names, such as to_q,to_v; or all-linear");
}

void declare_lora_recipe(CLI::App& app, LoraTrainFlags& f) {
  train::LoraOptions& o = f.o;
  declare_count(app, "--steps," + both_spellings("max_train_steps"), o.schedule.steps, "updates of the whole run", 1);
  declare_count(app, both_spellings("train_batch_size"), o.batch, "pictures per batch", 1);
  declare_count(app, both_spellings("gradient_accumulation_steps"), o.accumulation, "batches per update", 1);
  app.add_option("--resolution", f.resolution,
                 "side of the training pictures in pixels; pictures are scaled to cover it and cropped to the centre "
                 "(default: the model's)")
      ->transform(whole_number());
  app.add_flag(both_spellings("aspect_buckets"), o.aspect_buckets,
               "keep pictures near their own aspect ratios, each at about the area of --resolution squared");
  app.add_flag(both_spellings("random_flip"), o.flip, "also train on mirrored pictures");
  app.add_option("--lr," + both_spellings("learning_rate"), o.schedule.peak, "peak learning rate")
      ->capture_default_str();
  only(app.add_option(both_spellings("lr_scheduler"), f.decay,
                      "how the learning rate changes after warm-up: constant, or linear or cosine decay to 0, which "
                      "depend on --steps (without pictures by default cosine)"),
       train::decay_names())
      ->capture_default_str();
  declare_warm_up(app, o.schedule.warm_up);
  only(app.add_option("--optimizer", o.optimizer, "optimizer"), optimizer_names())->capture_default_str();
  app.add_option(both_spellings("weight_decay"), o.optimizer_options.weight_decay, "weight decay")
      ->capture_default_str();
  app.add_option(both_spellings("max_grad_norm"), o.clip, "clip gradients to this norm; 0: no clipping")
      ->capture_default_str();
  app.add_option("--ema", o.ema,
                 "decay per update of a moving average of A and B; the average is written; 0: no average")
      ->capture_default_str();
  declare_seed(app, o.seed, "random seed for noise, noise levels, the order of pictures and the initial A");
  CLI::Option* limit =
      app.add_option(both_spellings("max_memory"), f.memory,
                     "memory limit for a step's values in MiB; values that do not fit are recomputed; 0: no limit")
          ->transform(whole_number())
          ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  app.add_flag(both_spellings("gradient_checkpointing"), f.least_memory,
               "as little memory as recomputing values allows, instead of a limit")
      ->excludes(limit);
}

void declare_lora_noise(CLI::App& app, LoraTrainFlags& f) {
  train::TimestepOptions& t = f.o.timesteps;
  only(app.add_option(both_spellings("weighting_scheme"), f.density,
                      "flow matching: how noise levels are drawn (none: uniformly, logit_normal, mode) or weighted in "
                      "the loss (sigma_sqrt, cosmap)"),
       train::density_names())
      ->capture_default_str();
  app.add_option(both_spellings("logit_mean"), t.logit_mean, "mean of the normal distribution of logit_normal")
      ->capture_default_str();
  app.add_option(both_spellings("logit_std"), t.logit_std,
                 "standard deviation of the normal distribution of logit_normal")
      ->capture_default_str();
  app.add_option(both_spellings("mode_scale"), t.mode_scale, "scale of --weighting-scheme mode")->capture_default_str();
  app.add_option(both_spellings("flow_shift"), f.shift,
                 "flow matching: shift of the noise levels (default: the model's)");
  app.add_option(both_spellings("snr_gamma"), t.snr_gamma,
                 "gamma of min-SNR loss weighting, for models that predict noise or velocity; 0: no weighting")
      ->capture_default_str();
}

void declare_lora_looks(CLI::App& app, LoraTrainFlags& f) {
  train::LoraOptions& o = f.o;
  offer(app.add_option(both_spellings("validation_data_dir"), f.held,
                       "folder of pictures for the validation loss (default: the training pictures)"),
        {}, Beside::Files);
  declare_count(app, both_spellings("validation_steps"), o.validate_every,
                "steps between validation losses, which always use the same noise; 0: never", 0);
  several(app.add_option(both_spellings("validation_prompt"), o.samples.prompts,
                         "prompt to draw samples of during training, with --sample-every; may be repeated"));
  declare_count(app, both_spellings("sample_every"), o.samples.every, "steps between samples; 0: never", 0);
  app.add_option(both_spellings("sample_steps"), f.sample_steps, "denoising steps per sample (default: the model's)")
      ->transform(whole_number())
      ->check(CLI::Range(1, 1000));
  declare_count(app, both_spellings("checkpoint_every") + "," + both_spellings("checkpointing_steps"),
                o.checkpoint_every, "steps between checkpoints; 0: only at the end", 0);
  declare_count(app, "--keep," + both_spellings("checkpoints_total_limit"), o.keep,
                "newest checkpoints to keep; 0: all", 0);
}

void warn_of_idle_flags(const LoraTrainFlags& f, const train::LoraOptions& o) {
  if (o.validate_every == 0) warn_idle(*f.app, "--validation-steps is 0", {"--validation-data-dir"});
  if (o.samples.every == 0) warn_idle(*f.app, "--sample-every is 0", {"--sample-steps"});
  if (o.timesteps.density != train::Density::LogitNormal)
    warn_idle(*f.app, "--weighting-scheme is not logit_normal", {"--logit-mean", "--logit-std"});
  if (o.timesteps.density != train::Density::Mode)
    warn_idle(*f.app, "--weighting-scheme is not mode", {"--mode-scale"});
}

train::LoraOptions lora_options(const LoraTrainFlags& f, const Common& common, const Backend& backend) {
  train::LoraOptions o = f.o;
  if (!f.no_cache)
    o.cache = f.cache.empty() ? std::filesystem::path(f.output) / "cache" : std::filesystem::path(f.cache);
  train::check_learns(backend);
  o.type = training_type(f.type, kLoraTypes, "LoRAs are trained in f32, bf16 or e4m3", backend);
  o.width = o.height = f.resolution;
  if (!f.adapter.empty()) o.adapter = lora_file({}, f.adapter);
  if (!o.adapter.empty() && !file_exists(o.adapter)) check_is_no_folder(f.adapter);
  TENON_CHECK(Usage, !f.given("--lora-alpha") || o.alpha != 0, "lora alpha")
      << "is 0, which would leave the model unchanged";
  TENON_CHECK(Usage, !f.given("--resolution") || f.resolution > 0, "resolution")
      << f.resolution << ": expected 1 or more";
  o.timesteps.density = train::density_of(f.density);
  if (f.given("--flow-shift")) o.shift = f.shift;
  o.schedule.decay = train::decay_of(f.decay);
  o.arena_bytes = f.least_memory ? kSmallestArena : f.memory << 20;
  o.format = train::lora_format_of(f.format);
  o.samples.seed = o.seed;
  o.samples.steps = static_cast<int>(f.sample_steps);
  TENON_CHECK(Usage, o.samples.every == 0 || !o.samples.prompts.empty(), "--sample-every")
      << "needs a --validation-prompt to draw";
  TENON_CHECK(Usage, o.samples.every > 0 || f.given("--sample-every") || !f.given("--validation-prompt"),
              "--validation-prompt")
      << "needs --sample-every STEPS, otherwise it is never drawn";
  o.samples.open = [=, device = common.device_name(), threads = common.backend_options().threads, type = o.type] {
    PipelineOptions p{.device = device, .threads = threads, .type = type};
    p.keep_networks = true;
    p.parts = f.parts;
    return open_as<ImageGenerator>(f.model, p);
  };
  return o;
}

std::string lora_step_text(const ordered_json& m) {
  char text[160];
  const auto number = [&](const char* key) { return m.at(key).get<double>(); };
  if (m.contains("samples")) return "drew " + counted(std::ssize(m["samples"]), "sample");
  if (m.contains("validation_loss"))
    std::snprintf(text, sizeof text, "validation loss %.5f", number("validation_loss"));
  else
    std::snprintf(text, sizeof text, "loss %.4f  norm %.3g  lr %.2g  %.2f s", number("loss"), number("grad_norm"),
                  number("lr"), number("update_seconds"));
  return text;
}

// Without pictures, an embedded model learns a thing that it does not know, with defaults that suit it.
bool takes_ovals(const LoraTrainFlags& f) {
  return f.pictures.empty() && !f.parts.any() &&
         (f.model.empty() || std::ranges::find(embedded_models(), f.model) != embedded_models().end());
}

void take_ovals(LoraTrainFlags& f) {
  const auto suit = [&](const char* flag, auto& value, auto better) {
    if (!f.given(flag)) value = better;
  };
  if (f.model.empty()) f.model = kOwnModel;
  if (f.model == kOwnModel) {  // measured for both: docs/training.md
    suit("--steps", f.o.schedule.steps, 3000);
    suit("--learning-rate", f.o.schedule.peak, 5e-4);
  } else {
    suit("--steps", f.o.schedule.steps, 6000);
    suit("--learning-rate", f.o.schedule.peak, 2e-3);
    suit("--targets", f.o.targets, std::vector<std::string>{train::kAllLinear});
  }
  suit("--train-batch-size", f.o.batch, 4);
  suit("--lr-scheduler", f.decay, "cosine");
  suit("--lr-warmup-steps", f.o.schedule.warm_up, 20);
  suit("--class-prompt", f.known, train::known_scenes());
  suit("--validation-steps", f.o.validate_every, 500);
  suit("--sample-every", f.o.samples.every, 1000);
  suit("--validation-prompt", f.o.samples.prompts,
       std::vector<std::string>{"a yellow zib on a blue background", "a red circle on a white background"});
}

// Prior preservation: pictures that the model draws for these prompts before training, kept with captions in a folder
// of the run; existing ones are not drawn again. Names depend on all that a picture depends on, so that those of other
// options are neither used nor overwritten. `model`: identity.
std::vector<train::CaptionedPicture> known_pictures(const LoraTrainFlags& f, const train::LoraOptions& o,
                                                    const std::string& model) {
  if (f.known.empty()) return {};
  const train::RunFolder ours(f.output);  // prevents others from drawing into it
  const std::filesystem::path folder = ours.path() / "class";
  train::create_folder(folder);
  std::vector<train::CaptionedPicture> pictures;
  std::unique_ptr<ImageGenerator> generator;
  for (size_t i = 0; i < f.known.size(); ++i) {
    const std::string drawn = model + "\n" + std::to_string(o.seed + i) + "\n" + std::to_string(o.width) + "x" +
                              std::to_string(o.height) + "\n" + f.known[i];
    const std::string name = std::to_string(i) + "-" + sha256_hex(std::as_bytes(std::span(drawn))).substr(0, 16);
    const std::filesystem::path picture = folder / (name + ".png"), text = folder / (name + ".txt");
    if (!file_exists(picture) || !file_exists(text) || read_file(text) != f.known[i]) {
      if (!generator) {
        spdlog::info("drawing {} for --class-prompt into {}",
                     counted(std::ssize(f.known) - std::ssize(pictures), "picture"), folder.string());
        generator = o.samples.open();
      }
      ImageRequest r;
      r.prompt = f.known[i];
      r.seed = o.seed + i;
      r.width = o.width;
      r.height = o.height;
      write_png(picture, generator->generate(r).images.at(0), {}, Overwrite::Yes);
      write_file(text, std::as_bytes(std::span(f.known[i])), Overwrite::Yes);
    }
    pictures.push_back({picture.string(), read_image(picture), sha256_file(picture), f.known[i]});
  }
  // In the order of read_pictures.
  std::ranges::sort(pictures, {}, &train::CaptionedPicture::name);
  return pictures;
}

// Checked here, because later errors would name a height and a width, for which there are no flags.
void check_resolution(const TrainableDenoiser& model, int64_t side) {
  if (side == 0) return;
  try {
    model.check_size(side, side);
  } catch (const Error& e) {
    throw Error(e.kind(), "--resolution", e.what());
  }
}

// Includes the pictures not drawn yet.
train::StepPlans plan_steps(const LoraTrainFlags& f, const train::LoraOptions& o, const TrainableDenoiser& model,
                            const Backend& backend, const std::vector<train::CaptionedPicture>& pictures,
                            const std::vector<train::CaptionedPicture>& held) {
  const int64_t side = o.width ? o.width : model.default_side();
  std::vector<train::CaptionedPicture> all;
  for (const train::CaptionedPicture& p : pictures)
    all.push_back({"", {p.image.width, p.image.height, 3, {}}, "", p.caption});
  for (const std::string& prompt : f.known) all.push_back({"", {side, side, 3, {}}, "", prompt});
  return train::plan_steps(o, model, backend, all, held);
}

int run_train_lora(LoraTrainFlags f, const Common& common) {
  TENON_CHECK(Usage, !f.no_cache || f.cache.empty(), "--no-cache") << "excludes --cache-dir";
  check_utf8("--caption", f.caption);
  for (const std::string& text : f.known) check_utf8("--class-prompt", text);
  for (const std::string& text : f.o.samples.prompts) check_utf8("--validation-prompt", text);
  if (f.model.empty()) f.model = f.parts.diffusion_model;
  const bool own = takes_ovals(f);
  TENON_CHECK(Usage, !own || !f.given("--caption"), "--caption") << "needs pictures: use --instance-data-dir FOLDER";
  if (own) take_ovals(f);
  TENON_CHECK(Usage, own || !f.pictures.empty(), "train lora") << "no pictures given, use --instance-data-dir FOLDER";
  const std::shared_ptr<Backend> backend = common.backend();
  const train::LoraOptions o = lora_options(f, common, *backend);
  train::check_lora(o);
  warn_of_idle_flags(f, o);
  const std::optional<std::string> caption = f.given("--caption") ? std::optional(f.caption) : std::nullopt;
  auto pictures = own ? train::ovals() : train::read_pictures(f.pictures, caption);
  auto held = f.held.empty() ? std::vector<train::CaptionedPicture>() : train::read_pictures(f.held, caption);
  auto model = open_as<TrainableDenoiser>(f.model, {backend, o.stored(), f.parts});
  if (model->training(o.shift).distilled && f.adapter.empty())
    spdlog::warn("{} is distilled to few steps; training it without --adapter may undo that", model->name());
  check_resolution(*model, f.resolution);
  train::check_lora(o, *model);  // before any pictures are drawn
  train::check_unused(f.output, train::lora_files());
  train::StepPlans plans = plan_steps(f, o, *model, *backend, pictures, held);
  if (!f.cache.empty()) train::make_cache(o.cache);
  for (train::CaptionedPicture& p : known_pictures(f, o, train::identity_of(*model, o.type)))
    pictures.push_back(std::move(p));
  train::LoraTraining training(backend, std::move(model), pictures, held, o, f.output, std::move(plans));
  const auto count = std::ssize(std::exchange(pictures, {}));  // from here on their encodings are enough
  held = {};
  spdlog::info("{} of {}, {} encoded now; {}, {}; a step takes {:.0f} MB", counted(count, "picture"),
               counted(training.sizes(), "size"), training.encoded(), counted(training.layers(), "layer"),
               counted(training.parameter_count(), "parameter"), static_cast<double>(training.arena_bytes()) / 1e6);
  if (training.step() > 0) spdlog::info("resuming after step {}", training.step());
  return run_training(common, {training.step(), o.schedule.steps, f.output, lora_step_text}, training);
}

}  // namespace

Action declare_train_lora(CLI::App& app, const Common& common) {
  const auto f = std::make_shared<LoraTrainFlags>();
  f->app = &app;
  declare_lora_what(app, *f);
  declare_lora_layers(app, *f);
  declare_lora_recipe(app, *f);
  declare_lora_noise(app, *f);
  declare_lora_looks(app, *f);
  declare_training_type(app, f->type, kLoraTypes);
  return [f, &common] { return run_train_lora(*f, common); };
}

}  // namespace tenon::cli
