// Decoder language models: generate text. Parts: a chunk of a prompt; a token after a half-full cache; and the same
// token with everything that a decode loop repeats, as in text generation and as in GRPO.
#include "tenon/pipelines/language_model.h"

#include "tenon/core/error.h"
#include "tenon/pipelines/decode_loop.h"
#include "tenon/pipelines/families/language_model/text_batch.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/model_parts.h"
#include "tenon/pipelines/text_generator.h"

namespace tenon {
namespace {

constexpr int64_t kPrefillTokens = 512, kCacheTokens = 1024;

class DecoderParts : public ModelParts {
 public:
  explicit DecoderParts(std::shared_ptr<const LanguageModel> model) : model_(std::move(model)) {}

  std::string name() const override { return model_->name(); }
  std::vector<std::string> parts() const override { return {"decode", "prefill", "token", "rollout"}; }
  std::string describe(const std::string& part, const PartRequest& r) const override {
    const DecoderShape s = shape(part, r);
    return std::to_string(s.tokens) + (s.tokens > 1 ? " tokens" : " token") + " over a cache of " +
           std::to_string(s.capacity) + ", batch " + std::to_string(s.batch);
  }
  Plan plan(const std::string& part, const PartRequest& r, const NetworkOptions& options) const override {
    check_request(r, {.context = true}, name());
    const DecoderShape s = shape(part, r);
    if (part == "decode" || part == "prefill") return plan_decoder(model_->config(), s, options);
    const bool rollout = part == "rollout";
    DecodeStepShape step{.rows = s.batch, .capacity = s.capacity, .of_network = rollout};
    if (!rollout) step.page = s.page, step.pages = s.pages;
    PlanOptions o = decoder_options(part, options);
    if (rollout) o.fold_scales = false;  // reason in train/rollout.cpp
    return plan_decode_step(model_->config(), step, decoder_types(options), o);
  }
  std::string component(const std::string&) const override { return "decoder"; }
  DType default_type(const Backend&) const override { return kTextType; }
  WeightShapes shapes(const std::string&) const override { return model_->shapes(); }
  std::unique_ptr<WeightSource> weights(const std::string&) const override { return model_->weights(); }
  std::vector<std::string> peer_arguments(const std::string&, const PartRequest&) const override {
    throw Error(ErrorKind::Usage, "--peer torch", "does not support language models");
  }

 private:
  DecoderShape shape(const std::string& part, const PartRequest& r) const {
    DecoderShape s;
    s.batch = r.batch;
    const int64_t positions = model_->config().positions;
    TENON_CHECK(Usage, r.context <= positions, "--context")
        << r.context << " tokens; " << name() << " has " << positions << " positions";
    s.capacity = r.context > 0 ? r.context : std::min(kCacheTokens, positions);
    s.tokens = part != "prefill" ? 1 : std::min(kPrefillTokens, s.capacity / 2);
    s.page = kCachePage;
    s.capacity = (s.capacity + s.page - 1) / s.page * s.page;
    s.pages = s.batch * s.capacity / s.page;
    return s;
  }

  std::shared_ptr<const LanguageModel> model_;
};

Presets language_model_presets() {
  Presets out;
  for (const DecoderPreset& p : decoder_presets()) out.emplace_back(p.name, p.summary);
  return out;
}

const RegisterFamily kLanguageModels{
    {.name = "language model",
     .presets = language_model_presets,
     .reads = LanguageModel::reads,
     .gguf = {"llama", "qwen2", "qwen3"},
     .inspect = LanguageModel::inspect,
     .abilities = {ability<TextGenerator>([](const std::string& spec, const TextOptions& options) {
                     return make_text_generator(LanguageModel::open(spec), options);
                   }),
                   ability<ModelParts>([](const std::string& spec, const ModelParts::Options&) {
                     return std::make_unique<DecoderParts>(LanguageModel::open(spec));
                   })}}};

}  // namespace
}  // namespace tenon
