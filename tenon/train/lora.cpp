#include "tenon/train/lora.h"

#include <cmath>

#include "tenon/core/clock.h"
#include "tenon/core/error.h"
#include "tenon/core/not_null.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/pipelines/lora_set.h"
#include "tenon/train/adapter.h"
#include "tenon/train/batch_order.h"
#include "tenon/train/checkpoint.h"
#include "tenon/train/denoising.h"
#include "tenon/train/metrics.h"
#include "tenon/train/row_seed.h"
#include "tenon/train/updater.h"

namespace tenon::train {
namespace fs = std::filesystem;
namespace {
using nlohmann::ordered_json;

constexpr int64_t kMaxExamples = int64_t{1} << 20;        // of a step
constexpr uint64_t kValidationSeed = 0x76616c6964617465;  // noise that no training step uses
constexpr const char* kLooksDue = "looks_due";

ordered_json options_json(const LoraOptions& o, const Backend& backend, const std::string& model,
                          const std::string& adapter, const PictureSet& pictures) {
  ordered_json out = recipe_json(o, backend);
  out.update({{"model", as_utf8(model)},
              {"adapter", adapter},
              {"pictures", pictures.sha256},
              {"rank", o.rank},
              {"scale", o.scale()},
              {"targets", o.targets},
              {"size", {o.width, o.height}},
              {"flip", o.flip},
              {"batch", o.batch},
              {"accumulation", o.accumulation},
              {"timesteps",
               {{"density", density_names().at(static_cast<size_t>(o.timesteps.density))},
                {"logit_mean", o.timesteps.logit_mean},
                {"logit_std", o.timesteps.logit_std},
                {"mode_scale", o.timesteps.mode_scale},
                {"snr_gamma", o.timesteps.snr_gamma}}},
              {"shift", o.shift ? ordered_json(*o.shift) : ordered_json()},
              {"type", name_of(o.type)}});
  return out;
}

// A LoRA in another format than the result's own.
std::string file_of(LoraFormat format) {
  return "lora_" + lora_format_names().at(static_cast<size_t>(format)) + ".safetensors";
}

// The weights that training starts from: the model's, plus those of an adapter, whose hash is stored in `sha256`.
std::unique_ptr<WeightSource> base_weights(const TrainableDenoiser& model, const fs::path& adapter,
                                           std::string& sha256) {
  if (adapter.empty()) return model.weights();
  LoraSet loras([&] { return model.lora_names(); }, {});
  std::vector<LoraUse> uses{{.file = adapter}};
  for (const auto& [component, tensors] : loras.apply(uses))
    TENON_CHECK(Usage, component == model.component(), adapter.string())
        << "changes the " << component << ", expected an adapter of the " << model.component() << " only";
  sha256 = uses.front().sha256;
  return loras.over(model.component(), model.weights());
}

}  // namespace

std::vector<std::string> lora_files() {
  std::vector<std::string> out{kLoraFile};
  for (const LoraFormat f : {LoraFormat::Comfy, LoraFormat::Kohya}) out.push_back(file_of(f));
  return out;
}

void check_lora(const LoraOptions& o) {
  const auto positive = [](const char* name, int64_t n) {
    TENON_CHECK(Usage, n >= 1, name) << n << ": expected 1 or more";
  };
  TENON_CHECK(Usage, o.rank >= 1 && o.rank <= kMaxAdapterRank, "rank")
      << o.rank << ": expected 1 to " << kMaxAdapterRank;
  TENON_CHECK(Usage, o.alpha >= 0 && o.alpha <= kMaxAdapterAlpha, "lora alpha")
      << o.alpha << ": expected a number above 0, at most " << kMaxAdapterAlpha;
  positive("batch", o.batch);
  positive("accumulation", o.accumulation);
  TENON_CHECK(Usage, o.batch <= kMaxExamples && o.accumulation <= kMaxExamples / o.batch, "accumulation")
      << o.accumulation << " batches of " << o.batch << ": expected at most " << kMaxExamples << " pictures a step";
  positive("steps", o.schedule.steps);
  TENON_CHECK(Usage, o.validate_every >= 0 && o.checkpoint_every >= 0 && o.keep >= 0 && o.samples.every >= 0, "lora")
      << "expected counts of 0 or more";
  if (o.validate_every > 0) positive("validation levels", o.validate_levels);
  TENON_CHECK(Usage, o.samples.every == 0 || o.samples.prompts.empty() || o.samples.open, "samples")
      << "expected a function that opens the model to draw with";
  TENON_CHECK(Usage, o.type == DType::F32 || o.type == DType::BF16 || o.type == DType::E4M3, "type")
      << name_of(o.type) << ": expected f32, bf16 or e4m3";
  check_update(o.clip, o.ema);
  check_optimizer(o.optimizer_options);
  check_schedule(o.schedule);
}

void check_lora(const LoraOptions& o, const TrainableDenoiser& model) {
  check_lora(o);
  const int64_t width = o.width ? o.width : model.default_side();
  model.check_size(o.height ? o.height : width, width);
  check_timesteps(o.timesteps, model.training(o.shift).target);
  static_cast<void>(target_weights(model.shapes(), o.targets));
  static_cast<void>(training_precision(model, o.type, {}));
  std::string ignored;
  static_cast<void>(base_weights(model, o.adapter, ignored));
}

namespace {

nn::SideBranches branches_of(const TrainableDenoiser& model, const LoraOptions& o) {
  return {o.rank, std::make_shared<const std::set<std::string>>(target_weights(model.shapes(), o.targets)), o.scale()};
}

nn::Precision precision_of(const LoraOptions& o) { return {o.stored(), o.stored()}; }

GradientOptions gradient_options(const LoraOptions& o, const PrecisionPolicy& policy) {
  return {
      .precision = policy, .accumulates = o.accumulation > 1, .merge_siblings = false, .arena_bytes = o.arena_bytes};
}

// Options for fitting pictures.
PictureSetOptions picture_options(const TrainableDenoiser& model, const LoraOptions& o) {
  const int64_t width = o.width ? o.width : model.default_side();
  const PictureSize side{width, o.height ? o.height : width};
  return {o.aspect_buckets ? aspect_buckets(side, model.size_unit()) : std::vector{side}, o.flip};
}

}  // namespace

StepPlans plan_steps(const LoraOptions& o, const TrainableDenoiser& model, const Backend& backend,
                     const std::vector<CaptionedPicture>& pictures, const std::vector<CaptionedPicture>& held) {
  DenoisingShape shape{.batch = o.batch, .latent = {}};
  for (const auto* all : {&pictures, &held})
    for (const CaptionedPicture& p : *all) {
      const Shape text = model.text_shape(p.caption);
      shape.text_rows = std::max(shape.text_rows, model.padded_rows(text[0]));
      shape.text_width = text[1];
    }
  const std::vector<PictureSize> sizes = picture_options(model, o).sizes;
  const nn::SideBranches branches = branches_of(model, o);
  const GradientOptions options = gradient_options(o, training_precision(model, o.type, branches));
  const nn::DenoisingTarget target = model.training(o.shift).target;
  StepPlans out;
  for (const CaptionedPicture& p : pictures) {
    const PictureSize size = nearest_shape(sizes, {p.image.width, p.image.height});
    if (out.contains(size)) continue;
    Graph g;
    shape.latent = model.latent_shape(size.height, size.width);
    const Differentiated d = adapter_gradients(g, model, shape, target, branches, precision_of(o));
    out.emplace(size, plan_gradients(d, backend.target(), options));
  }
  return out;
}

struct LoraTraining::State {
  std::shared_ptr<Backend> backend;
  std::unique_ptr<TrainableDenoiser> model;
  LoraOptions o;
  std::string adapter;  // sha256 of its file
  std::unique_ptr<WeightSource> base;
  RunFolder folder;
  PictureSet pictures, held;
  DenoisingData data, validation;
  std::optional<BatchOrder> order;
  int64_t text_rows = 0;
  nn::SideBranches branches;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Updater> updater;
  std::shared_ptr<Arena> arena;                                   // shared by all of the following
  std::vector<std::unique_ptr<Gradients>> gradients;              // one per size in `order`
  std::map<PictureSize, std::unique_ptr<Executable>> evaluation;  // for a single picture
  std::unique_ptr<ImageGenerator> generator;
  CheckpointContent content;
  std::unique_ptr<MetricsLog> log;
  int64_t step = 0;
  bool looks_due = false;  // validation or samples of this step: the run was stopped before them

  State(std::shared_ptr<Backend> b, std::unique_ptr<TrainableDenoiser> m, LoraOptions options, const fs::path& output)
      : backend(std::move(b)),
        model(std::move(m)),
        o(std::move(options)),
        base(base_weights(*model, o.adapter, adapter)),
        folder(output),
        arena(std::make_shared<Arena>(backend)) {}

  PrecisionPolicy policy() const { return training_precision(*model, o.type, branches); }
  DenoisingShape shape(PictureSize size, int64_t batch) const {
    return {batch, model->latent_shape(size.height, size.width), text_rows, pictures.texts.front().width};
  }
  void encode(const std::vector<CaptionedPicture>& learnt, const std::vector<CaptionedPicture>& validated);
  void prepare(StepPlans plans);
  void resume();
  void checkpoint();
  ordered_json train_step();
  Executable& evaluation_of(PictureSize size);
  ordered_json validate();
  ordered_json draw();
  void finish() const;
};

LoraTraining::LoraTraining(std::shared_ptr<Backend> backend, std::unique_ptr<TrainableDenoiser> model,
                           const std::vector<CaptionedPicture>& pictures, const std::vector<CaptionedPicture>& held,
                           LoraOptions options, const fs::path& output, StepPlans plans) {
  check_learns(*not_null(backend, "backend"));  // report errors before a folder is made
  check_lora(options, *not_null(model.get(), "model"));
  TENON_CHECK(Usage, !pictures.empty(), "pictures") << "there are none to train on";
  check_unused(output, lora_files());
  if (options.width == 0) options.width = model->default_side();
  if (options.height == 0) options.height = options.width;
  const DenoiserTraining training = model->training(options.shift);
  state_ = std::make_unique<State>(std::move(backend), std::move(model), std::move(options), output);
  state_->data = {state_->model.get(), &state_->pictures, training, state_->o.timesteps, state_->o.seed};
  state_->encode(pictures, held);
  state_->prepare(std::move(plans));
  state_->resume();
}
LoraTraining::~LoraTraining() = default;

int64_t LoraTraining::step() const { return state_->step; }
int64_t LoraTraining::layers() const { return std::ssize(*state_->branches.weights); }
int64_t LoraTraining::parameter_count() const { return state_->parameters->count(); }
int64_t LoraTraining::arena_bytes() const {
  int64_t beside = 0;
  for (const auto& g : state_->gradients) {
    const MemoryPlan m = g->memory();
    beside = std::max(beside, m.total() - m.arena - m.scratch);
  }
  return beside + state_->arena->bytes();
}
int64_t LoraTraining::sizes() const { return std::ssize(state_->gradients); }
int64_t LoraTraining::encoded() const { return state_->pictures.made + state_->held.made; }

void LoraTraining::State::encode(const std::vector<CaptionedPicture>& learnt,
                                 const std::vector<CaptionedPicture>& validated) {
  const PictureSetOptions sizes = picture_options(*model, o);
  for (const PictureSize& s : sizes.sizes) model->check_size(s.height, s.width);
  pictures = encode_pictures(*model, o.stored(), learnt, sizes, o.cache);
  if (!validated.empty()) held = encode_pictures(*model, o.stored(), validated, sizes, o.cache);
  model->release_encoders();
  validation = data;
  if (!validated.empty()) validation.pictures = &held;
  for (const PictureSet* set : {&pictures, &held})
    for (const TextFeatures& t : set->texts) text_rows = std::max(text_rows, model->padded_rows(t.rows));
  order.emplace(pictures, o.batch, o.seed);
}

void LoraTraining::State::prepare(StepPlans plans) {
  const WeightShapes shapes = model->shapes();
  branches = branches_of(*model, o);
  const WeightShapes leaves = branch_shapes(shapes, *branches.weights, o.rank);
  std::unique_ptr<Optimizer> optimizer = make_optimizer(o.optimizer, backend, o.optimizer_options);
  parameters = std::make_unique<Parameters>(backend, with_new_adapter(std::move(base), leaves, o.seed), leaves,
                                            optimizer->moments().size(), o.ema > 0);
  updater = std::make_unique<Updater>(*parameters, std::move(optimizer), o.clip, o.ema);
  for (const PictureSize& size : order->sizes()) {
    Graph g;
    GradientOptions options = gradient_options(o, policy());
    options.arena = arena;
    const auto made = plans.find(size);
    gradients.push_back(std::make_unique<Gradients>(
        *parameters,
        adapter_gradients(g, *model, shape(size, o.batch), data.training.target, branches, precision_of(o)), options,
        made == plans.end() ? std::nullopt : std::optional(std::move(made->second))));
  }
  content.file = {kLoraFile, "", model->component() + ".",
                  lora_metadata(model->component(), o.rank, o.scale() * static_cast<double>(o.rank), o.targets)};
}

void LoraTraining::State::resume() {
  const ordered_json mine = options_json(o, *backend, model->name(), adapter, pictures);
  const std::optional<Resumed> r = read_newest(folder, mine,
                                               "belongs to a run with other options, pictures or model files; choose "
                                               "another folder, or use those in trainer.json",
                                               content.file, *parameters, updater->optimizer());
  if (r) {
    step = r->step;
    updater->set_steps(step);
    looks_due = ConfigReader(r->run, folder.checkpoint(step).string() + " run").flag(kLooksDue, false);
  }
  log = std::make_unique<MetricsLog>(folder.path(), r ? step : -1,
                                     MetricsLogOptions{.events = o.tensorboard, .evaluation_due = looks_due});
  content.run = {{"options", mine}};
}

void LoraTraining::State::checkpoint() {
  content.step = step;
  content.run.erase(kLooksDue);
  if (looks_due) content.run[kLooksDue] = true;
  write_checkpoint(folder, *parameters, updater->optimizer(), content, o.keep);
}

ordered_json LoraTraining::State::train_step() {
  const auto begin = Clock::now();
  double loss = 0;
  for (int64_t run = 0; run < o.accumulation; ++run) {
    check_stop("training");
    const int64_t n = step * o.accumulation + run;
    const BatchOrder::Batch drawn = order->at(n);
    DenoisingBatch batch(data, shape(order->sizes()[drawn.size], o.batch));
    for (int64_t row = 0; row < o.batch; ++row)
      batch.add(drawn.pictures[static_cast<size_t>(row)], row_seed(o.seed, n * o.batch + row, 0));
    Gradients& g = *gradients[drawn.size];
    batch.give(g);
    loss += g.run(run == 0) / static_cast<double>(o.accumulation);
  }
  const double lr = o.schedule.rate(step + 1);
  const Updater::Report report = updater->step(lr, o.accumulation);
  return {{"step", step + 1},
          {"loss", loss},
          {"grad_norm", report.norm},
          {"lr", lr},
          {"update_seconds", seconds_since(begin)}};
}

Executable& LoraTraining::State::evaluation_of(PictureSize size) {
  std::unique_ptr<Executable>& out = evaluation[size];
  if (out) return *out;
  Graph g;
  PlanOptions options;
  options.name = "validation";
  options.fold_scales = false;
  options.merge_siblings = false;
  options.precision = policy();
  options.target = backend->target();
  const Expr loss = denoising_loss(g, *model, shape(size, 1), data.training.target, branches, precision_of(o));
  out = std::make_unique<Executable>(make_plan(std::vector<Result>{{"loss", loss}}, options), parameters->store(),
                                     std::map<std::string, void*>{}, nullptr, nullptr, arena);
  return *out;
}

// Levels are evenly spaced, all equally often, and the noise is the same each time, so that only what was learnt
// changes the loss. A picture's place alone determines both.
ordered_json LoraTraining::State::validate() {
  const auto begin = Clock::now();
  const std::vector<EncodedPicture>& all = validation.pictures->pictures;
  const int64_t levels = o.validate_levels, rounds = (std::ssize(all) + levels - 1) / levels, count = rounds * levels;
  double loss = 0;
  parameters->with_averages([&] {
    for (int64_t k = 0; k < count; ++k) {
      check_stop("validation");
      const size_t picture = static_cast<size_t>(k) % all.size();
      DenoisingBatch batch(validation, shape(all[picture].size, 1));
      batch.add(picture, row_seed(kValidationSeed, k, 0),
                (static_cast<double>(k % levels) + 0.5) / static_cast<double>(levels));
      Executable& e = evaluation_of(all[picture].size);
      batch.give(e);
      e.run_all();
      loss += static_cast<double>(e.get("loss")[0]) / static_cast<double>(count);
    }
  });
  TENON_CHECK(Numeric, std::isfinite(loss), "validation loss") << "is " << loss;
  return {{"step", step}, {"validation_loss", loss}, {"count", count}, {"evaluation_seconds", seconds_since(begin)}};
}

// The generator reads the LoRA from a file, as any user would.
ordered_json LoraTraining::State::draw() {
  const auto begin = Clock::now();
  const fs::path folder_of_samples = folder.path() / "samples", file = folder_of_samples / "now.safetensors";
  create_folder(folder_of_samples);
  CheckpointContent now = content;
  now.file.weights = file.filename().string();
  const auto remove = [](const fs::path* written) {
    std::error_code failed;
    fs::remove(*written, failed);
  };
  const std::unique_ptr<const fs::path, decltype(remove)> gone(&file, remove);  // also if drawing is interrupted
  write_model(folder_of_samples, *parameters, now);
  if (!generator) generator = o.samples.open();
  const LoraUse use{.file = file};
  generator->load_lora(use);
  ordered_json names = ordered_json::array();
  for (size_t i = 0; i < o.samples.prompts.size(); ++i) {
    ImageRequest r;
    r.prompt = o.samples.prompts[i];
    r.seed = o.samples.seed + i;
    r.steps = o.samples.steps;
    r.width = o.width;
    r.height = o.height;
    r.loras = {use};
    const std::string number = std::to_string(step);
    std::string name(6 - std::min<size_t>(number.size(), 6), '0');
    name.append(number).append("-" + std::to_string(i) + ".png");
    write_png(folder_of_samples / name, generator->generate(r).images.at(0), {}, Overwrite::Yes);
    names.push_back({{"file", "samples/" + name}, {"prompt", as_utf8(o.samples.prompts[i])}});
  }
  return {{"step", step}, {"samples", names}, {"sample_seconds", seconds_since(begin)}};
}

void LoraTraining::State::finish() const {
  write_model(folder.path(), *parameters, content);
  for (size_t i = 0; i < lora_format_names().size(); ++i) {
    const auto format = static_cast<LoraFormat>(i);
    const fs::path file = folder.path() / file_of(format);
    // One that a run in another format left would be an older LoRA.
    if (format == LoraFormat::Diffusers || (format != o.format && !file_exists(file))) continue;
    convert_lora(folder.path() / kLoraFile, file, model->component(), o.scale() * static_cast<double>(o.rank), format);
  }
}

bool LoraTraining::run(const OnMetrics& each, const std::function<bool()>& stop) {
  State& s = *state_;
  const auto tell = [&](const ordered_json& m) {
    s.log->add(m);
    if (each) each(m);
  };
  const auto due = [&](int64_t every) { return every > 0 && (s.step == s.o.schedule.steps || s.step % every == 0); };
  const auto validates = [&] { return due(s.o.validate_every); };
  const auto draws = [&] { return due(s.o.samples.every) && !s.o.samples.prompts.empty(); };
  const auto look = [&] {
    s.looks_due = false;
    if (validates()) tell(s.validate());
    if (draws()) tell(s.draw());
  };
  if (s.looks_due || (s.step == 0 && s.folder.steps().empty())) {
    look();
    s.checkpoint();
  }
  while (s.step < s.o.schedule.steps) {
    const ordered_json m = named_step(s.folder, s.step + 1, [&] { return s.train_step(); });
    ++s.step;
    tell(m);
    const bool last = s.step == s.o.schedule.steps, stopped = stop && stop();
    s.looks_due = stopped && (validates() || draws());
    if (!stopped) look();
    if (last || stopped || (s.o.checkpoint_every > 0 && s.step % s.o.checkpoint_every == 0)) s.checkpoint();
    if (stopped) return false;
  }
  s.finish();
  return true;
}

}  // namespace tenon::train
