#include "tenon/pipelines/text_generator.h"

#include <algorithm>
#include <map>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/pipelines/adapted_weights.h"
#include "tenon/pipelines/families/language_model/cache_sizes.h"
#include "tenon/pipelines/families/language_model/text_batch.h"

namespace tenon {
namespace {

// Limits the cache to so many bytes of pages, and the context to what they hold: the requested one, else the largest.
void limit_cache(TextSetup& setup, int64_t bytes, bool asked) {
  const int64_t page = setup.page_bytes();
  const int64_t context = asked ? setup.context : std::min(setup.context, kCachePage);
  const int64_t least = kOwnPages + table_pages(context);
  setup.cache_pages = bytes / page;
  TENON_CHECK(Memory, setup.cache_pages >= least, "cache limit")
      << bytes << " bytes of keys and values are not enough for a text of " << context << " tokens, which needs "
      << least * page << " (" << least << " pages of " << kCachePage
      << " tokens: its own, those that one run of a prompt fills, and " << kOwnPages << " reserved)";
  const int64_t room = (setup.cache_pages - kOwnPages) * kCachePage - kChunks.back();
  setup.context = std::min(setup.context, room);
  spdlog::info("cache: at most {} pages of {} tokens; at most {} tokens per text", setup.cache_pages, kCachePage,
               setup.context);
}

class DecoderGenerator : public TextGenerator {
 public:
  DecoderGenerator(std::shared_ptr<const LanguageModel> model, const TextOptions& options) {
    auto setup = std::make_shared<TextSetup>();
    setup->model = std::move(model);
    setup->backend = make_backend(options.device, {options.threads});
    const Backend& backend = *setup->backend;
    const NetworkType type = options.type.value_or(kTextType);
    check_type(backend, type.stored, "type");
    TENON_CHECK(Usage, backend.computes(), "device")
        << backend.name() << " computes nothing, so it cannot generate text";
    const int64_t positions = setup->model->config().positions;
    TENON_CHECK(Usage, options.cache_limit >= 0, "cache limit")
        << options.cache_limit << " bytes: expected 0 (none) or more";
    TENON_CHECK(Usage, options.context >= 0 && options.context <= positions, "context")
        << options.context << " tokens: the model has " << positions << " positions";
    setup->context = options.context ? options.context : positions;
    check_exceptions(type, [&] { return std::vector<NamedNetwork>{{"decoder", setup->model->shapes()}}; });
    NetworkOptions& networks = setup->networks;
    networks.precision = {type.stored, type.stored};
    networks.policy = type.policy;
    precision_of("decoder", networks);  // throws for e4m3, which planning would refuse
    networks.fusion = options.fusion;
    networks.fold_scales = options.fold_scales;
    networks.target = backend.target();
    if (options.cache_limit) limit_cache(*setup, options.cache_limit, options.context > 0);
    std::unique_ptr<WeightSource> weights = setup->model->weights();
    if (!options.adapter.empty()) weights = with_adapter(std::move(weights), setup->model->shapes(), options.adapter);
    setup->store = std::make_shared<WeightStore>(setup->backend, std::move(weights));
    setup_ = std::move(setup);
    alone_ = std::make_unique<DecoderBatch>(setup_, 1, true);
  }

  TextResult generate(const TextRequest& r, const OnText& each) override {
    alone_->submit(r, each);
    for (;;)
      for (EndedText& text : alone_->step()) {
        if (text.error) throw Error(*text.error);
        return std::move(text.result);
      }
  }

  std::unique_ptr<TextBatch> batch(int64_t rows, int64_t tokens) override {
    return std::make_unique<DecoderBatch>(setup_, rows, false, tokens);
  }

  const LanguageModel& model() const override { return *setup_->model; }
  const Backend& backend() const override { return *setup_->backend; }
  NetworkType type() const override { return setup_->networks.type(); }
  int64_t context() const override { return setup_->context; }

 private:
  std::shared_ptr<const TextSetup> setup_;
  std::unique_ptr<DecoderBatch> alone_;
};

enum class RefusedPrompt : uint8_t { Ends, Throws };

// generate_all. A prompt that is refused has ended with that error, or throws it before any text.
void generate_in_order(TextGenerator& generator, std::span<const TextRequest> requests, int64_t rows,
                       const std::function<void(EndedText&)>& each, RefusedPrompt refused) {
  if (requests.empty()) return;
  const std::unique_ptr<TextBatch> batch = generator.batch(std::min(rows, std::ssize(requests)));
  std::map<int64_t, EndedText> later;  // have ended before one in front of them
  std::vector<int64_t> submitted;      // the requests' indices, by the batch's numbers
  for (int64_t i = 0; i < std::ssize(requests); ++i) try {
      batch->submit(requests[static_cast<size_t>(i)]);
      submitted.push_back(i);
    } catch (const Error& e) {
      if (e.where() != "prompt") throw;
      if (refused == RefusedPrompt::Throws)
        throw requests.size() == 1 ? e : e.with_where("prompt " + std::to_string(i + 1));
      later.emplace(i, EndedText{i, {}, e});
    }
  int64_t next = 0;
  for (;;) {
    for (auto text = later.extract(next); text; text = later.extract(++next)) each(text.mapped());
    if (!batch->busy()) return;
    for (EndedText& text : batch->step()) {
      text.id = submitted[static_cast<size_t>(text.id)];
      later.emplace(text.id, std::move(text));
    }
  }
}

}  // namespace

std::string_view finish_reason(TextEnd end) {
  if (end == TextEnd::Cancelled) return "cancelled";
  return end == TextEnd::StopToken || end == TextEnd::StopString ? "stop" : "length";
}

void generate_all(TextGenerator& generator, std::span<const TextRequest> requests, int64_t rows,
                  const std::function<void(EndedText&)>& each) {
  generate_in_order(generator, requests, rows, each, RefusedPrompt::Ends);
}

std::vector<TextResult> generate_all(TextGenerator& generator, std::span<const TextRequest> requests, int64_t rows) {
  std::vector<TextResult> out;
  const auto keep = [&](EndedText& text) {
    if (text.error) throw Error(*text.error);
    out.push_back(std::move(text.result));
  };
  generate_in_order(generator, requests, rows, keep, RefusedPrompt::Throws);
  return out;
}

std::unique_ptr<TextGenerator> make_text_generator(std::shared_ptr<const LanguageModel> model,
                                                   const TextOptions& options) {
  return std::make_unique<DecoderGenerator>(std::move(model), options);
}

}  // namespace tenon
