// Text generation. Python's signals are checked before every token and launch.
#include "apps/python/interrupt.h"
#include "apps/python/options.h"
#include "apps/python/process.h"
#include "tenon/core/error.h"
#include "tenon/io/json.h"
#include "tenon/pipelines/offload_size.h"
#include "tenon/pipelines/text_generator.h"

namespace tenon::python {
namespace {

// (id, log-probability, text)
nb::tuple token_of(const TextToken& t) { return nb::make_tuple(t.id, t.log_probability, t.text); }

class TextPipeline {
 public:
  TextPipeline(const std::filesystem::path& spec, const TextOptions& options) {
    generator_ = Interrupt::run([&] { return open_as<TextGenerator>(spec.string(), with_threads(options)); });
  }

  TextResult generate(const TextRequest& request, const OnText& each, const nb::object& check) {
    TENON_CHECK(Usage, !turns_.mine(), "pipeline") << "is already writing: its own callback cannot write with it";
    return Interrupt::run(
        [&] {
          const auto turn = turns_.wait();
          return generator_->generate(request, each);
        },
        check);
  }

  const TextGenerator& generator() const { return *generator_; }
  const LanguageModel& model() const { return generator_->model(); }

 private:
  Turns turns_;
  MadeHere<TextGenerator> generator_;
};

nb::dict write_text(TextPipeline& pipeline, TextRequest request, const SamplingChoice& choice,
                    const nb::object& on_token, const nb::object& check) {
  request.sampling = chosen(pipeline.model().sampling(), choice);
  OnText each;
  if (!on_token.is_none())
    each = [&](const TextToken& t) {
      const GilTaken gil;
      on_token(t.id, t.log_probability, t.text);
    };
  const TextResult result = pipeline.generate(request, each, check);
  nb::list tokens;
  for (const TextToken& t : result.tokens) tokens.append(token_of(t));
  nb::dict out;
  out["text"] = result.text;
  out["tokens"] = tokens;
  out["finish_reason"] = std::string(finish_reason(result.end));
  out["cached_tokens"] = result.reused;
  out["drawn"] = request.sampling.draw;
  return out;
}

// Ids of a text to be continued, with the model's prefix if it has one.
std::vector<int32_t> encode(const TextPipeline& p, const std::string& text, bool prefix) {
  const ByteLevelTokenizer& tokenizer = p.model().tokenizer();
  const GilReleased released;
  return prefix ? tokenizer.encode_whole(text) : tokenizer.encode(text);
}

void bind_requests(nb::module_& m) {
  bind_options<TextOptions>(m, "TextOptions")
      .def_rw("context", &TextOptions::context)
      .def("set_lora", [](TextOptions& o, const std::filesystem::path& folder) { o.adapter = folder.string(); })
      .def("set_cache_limit",
           [](TextOptions& o, const std::string& size) { o.cache_limit = parse_size(size, "cache_limit"); });
  nb::class_<SamplingChoice>(m, "SamplingChoice")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingChoice::temperature, nb::arg().none())
      .def_rw("top_k", &SamplingChoice::top_k, nb::arg().none())
      .def_rw("top_p", &SamplingChoice::top_p, nb::arg().none())
      .def_rw("min_p", &SamplingChoice::min_p, nb::arg().none())
      .def_rw("repetition_penalty", &SamplingChoice::repetition_penalty, nb::arg().none());
  nb::class_<TextRequest>(m, "TextRequest")
      .def(nb::init<>())
      .def_rw("prompt", &TextRequest::prompt)
      .def_rw("max_tokens", &TextRequest::max_tokens)
      .def_rw("seed", &TextRequest::seed)
      .def_rw("stop", &TextRequest::stop)
      .def_rw("slide", &TextRequest::slide)
      .def_rw("ignore_eos", &TextRequest::ignore_stop_ids);
}

}  // namespace

void bind_text(nb::module_& m) {
  bind_requests(m);
  nb::class_<TextPipeline>(m, "TextPipeline")
      .def(nb::init<const std::filesystem::path&, const TextOptions&>(), nb::arg("spec"), nb::arg("options"))
      .def("run", &write_text, nb::arg("request"), nb::arg("choice"), nb::arg("on_token").none(),
           nb::arg("check").none())
      .def("encode", &encode, nb::arg("text"), nb::arg("prefix"))
      .def(
          "decode",
          [](const TextPipeline& p, const std::vector<int32_t>& ids, bool skip_special) {
            return p.model().tokenizer().decode(ids, skip_special);
          },
          nb::arg("ids"), nb::arg("skip_special"))
      .def(
          "encode_chat",
          [](const TextPipeline& p, const std::string& messages) {
            return p.model().encode_chat(nlohmann::ordered_json::parse(messages));
          },
          nb::arg("messages"))
      .def_prop_ro("name", [](const TextPipeline& p) { return p.model().name(); })
      .def_prop_ro("context", [](const TextPipeline& p) { return p.generator().context(); })
      .def_prop_ro("dtype", [](const TextPipeline& p) { return p.generator().type().text(); })
      .def_prop_ro("device", [](const TextPipeline& p) { return p.generator().backend().describe(); });
}

}  // namespace tenon::python
