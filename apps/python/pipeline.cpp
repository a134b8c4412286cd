// Text to image. Python's signals are checked before every launch, so Ctrl-C ends a picture within a step.
#include <cstring>

#include "apps/python/interrupt.h"
#include "apps/python/options.h"
#include "apps/python/process.h"
#include "tenon/core/error.h"
#include "tenon/core/options.h"
#include "tenon/io/random.h"
#include "tenon/pipelines/lora_set.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/pipelines/offload_size.h"
#include "tenon/pipelines/picture_text.h"

namespace tenon::python {
namespace {

nb::object pixels_of(const Image& image) {
  return nb::bytes(reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size());
}

class ImagePipeline {
 public:
  ImagePipeline(const std::filesystem::path& spec, PipelineOptions options) {
    if (options.lora_folder.empty()) options.lora_folder = option(Option::LoraDir);
    options.keep_networks = true;
    pipeline_ = Interrupt::run([&] { return open_as<ImageGenerator>(spec.string(), with_threads(options)); });
  }

  ImageResult generate(const ImageRequest& request, const OnStep& on_step) {
    TENON_CHECK(Usage, !turns_.mine(), "pipeline") << "is already drawing: its own callback cannot draw with it";
    return Interrupt::run([&] {
      const auto turn = turns_.wait();
      return pipeline_->generate(request, on_step);
    });
  }

  // Description of picture i. The model's files are hashed for the first one.
  ImageText text_of(const ImageResult& result, size_t i) {
    if (!about_)
      about_ = Interrupt::run([&] {
        const auto turn = turns_.wait();
        return model_text(*pipeline_);
      });
    return picture_text(result, i, *about_, {TENON_VERSION, ""});
  }

  LoraReport load_lora(const LoraUse& use) {
    return Interrupt::run([&] {
      const auto turn = turns_.wait();
      return pipeline_->load_lora(use);
    });
  }
  void unload_loras() {
    Interrupt::run([&] {
      const auto turn = turns_.wait();
      pipeline_->unload_loras();
    });
  }

  const ImageGenerator& model() const { return *pipeline_; }
  std::vector<std::string> warnings(const ImageRequest& request) const {
    return pipeline_->warnings(pipeline_->complete(request), "pipe.known_words");
  }
  ImageRequest complete(const ImageRequest& request) const { return pipeline_->complete(request); }
  double guidance_offset() const { return pipeline_->guidance_offset(); }
  std::string device() const { return pipeline_->backend().describe(); }

 private:
  Turns turns_;
  MadeHere<ImageGenerator> pipeline_;
  std::optional<ModelText> about_;
};

nb::tuple latent_shape(const ImagePipeline& pipeline, const ImageRequest& request) {
  const Shape s = pipeline.model().latent_shape(request);
  return nb::make_tuple(s[0], s[1], s[2], s[3]);
}

nb::dict run(ImagePipeline& pipeline, const ImageRequest& asked, const nb::object& on_step, bool with_texts) {
  const ImageRequest request = pipeline.complete(asked);
  OnStep call;
  if (!on_step.is_none())
    call = [&](const Progress& p) {
      const GilTaken gil;
      const nb::object changed =
          on_step(p.step - 1, p.timestep, latent_shape(pipeline, request),
                  nb::bytes(reinterpret_cast<const char*>(p.latents.data()), p.latents.size_bytes()));
      if (changed.is_none()) return;
      const nb::bytes values = nb::cast<nb::bytes>(changed);
      TENON_CHECK(Usage, values.size() == p.latents.size_bytes(), "latents") << "changed size in the callback";
      std::memcpy(p.latents.data(), values.c_str(), values.size());
    };
  const ImageResult result = pipeline.generate(request, call);
  nb::dict out;
  nb::list images, texts;
  for (size_t i = 0; i < result.images.size(); ++i) {
    const Image& image = result.images[i];
    images.append(nb::make_tuple(image.width, image.height, image.channels, pixels_of(image)));
    if (!with_texts) continue;
    nb::dict text;
    for (const auto& [key, value] : pipeline.text_of(result, i)) text[key.c_str()] = value;
    texts.append(text);
  }
  out["images"] = images;
  out["texts"] = texts;
  out["latents"] =
      nb::bytes(reinterpret_cast<const char*>(result.latents.data()), result.latents.size() * sizeof(float));
  out["latent_shape"] = latent_shape(pipeline, result.request);
  out["seeds"] = nb::cast(result.seeds);
  out["timesteps"] = nb::cast(result.timesteps);
  out["width"] = result.request.width;
  out["height"] = result.request.height;
  out["steps"] = result.request.steps;
  out["sampler"] = result.request.sampler;
  out["guidance_scale"] = result.request.cfg_scale - pipeline.guidance_offset();
  return out;
}

void bind_request(nb::module_& m) {
  nb::class_<ImageRequest>(m, "ImageRequest")
      .def(nb::init<>())
      .def_rw("prompt", &ImageRequest::prompt)
      .def_rw("negative", &ImageRequest::negative)
      .def_rw("width", &ImageRequest::width)
      .def_rw("height", &ImageRequest::height)
      .def_rw("steps", &ImageRequest::steps)
      .def_rw("cfg_scale", &ImageRequest::cfg_scale)
      .def_rw("cfg_normalization", &ImageRequest::cfg_normalization)
      .def_rw("cfg_truncation", &ImageRequest::cfg_truncation)
      .def_rw("sampler", &ImageRequest::sampler)
      .def_rw("seed", &ImageRequest::seed)
      .def_rw("batch", &ImageRequest::batch)
      .def_rw("strength", &ImageRequest::strength)
      .def_rw("clip_skip", &ImageRequest::clip_skip)
      .def_rw("decode", &ImageRequest::decode)
      .def_prop_rw(
          "eta", [](const ImageRequest& r) { return r.sampler_options.eta; },
          [](ImageRequest& r, std::optional<double> eta) { r.sampler_options.eta = eta; }, nb::arg().none())
      .def_prop_rw(
          "karras", [](const ImageRequest& r) { return r.sampler_options.karras; },
          [](ImageRequest& r, std::optional<bool> karras) { r.sampler_options.karras = karras; }, nb::arg().none())
      .def_prop_rw(
          "flow_shift", [](const ImageRequest& r) { return r.sampler_options.flow_shift; },
          [](ImageRequest& r, std::optional<double> shift) { r.sampler_options.flow_shift = shift; }, nb::arg().none())
      .def("add_lora", [](ImageRequest& r, const std::filesystem::path& file, double weight,
                          bool partial) { r.loras.push_back({.file = file, .weight = weight, .partial = partial}); })
      .def("set_picture",
           [](ImageRequest& r, int64_t width, int64_t height, const nb::bytes& rgb, const std::string& resize_mode) {
             const auto* begin = reinterpret_cast<const uint8_t*>(rgb.c_str());
             r.picture = Image{width, height, 3, std::vector<uint8_t>(begin, begin + rgb.size())};
             r.resize_mode = parse_resize_mode(resize_mode);
           })
      .def("set_latents", [](ImageRequest& r, const nb::bytes& values) {
        r.latents.resize(values.size() / sizeof(float));
        std::memcpy(r.latents.data(), values.c_str(), r.latents.size() * sizeof(float));
      });
}

void bind_pipeline_options(nb::module_& m) {
  nb::class_<PartPaths>(m, "PartPaths")
      .def(nb::init<std::string, std::string, std::string>(), nb::arg("diffusion_model"), nb::arg("llm"),
           nb::arg("vae"))
      .def_rw("diffusion_model", &PartPaths::diffusion_model);
  bind_options<PipelineOptions>(m, "PipelineOptions")
      .def_rw("lora_rank", &PipelineOptions::lora_rank)
      .def_rw("lora_folder", &PipelineOptions::lora_folder)
      .def_rw("batch_invariant", &PipelineOptions::batch_invariant)
      .def_rw("parts", &PipelineOptions::parts)
      .def("set_lora_apply",
           [](PipelineOptions& o, const std::string& how) {
             o.lora_apply = how == "side" ? LoraApply::Side : LoraApply::Merge;
           })
      .def("set_offload",
           [](PipelineOptions& o, const std::string& size) { o.offload = parse_offload(size, "offload"); });
}

}  // namespace

void bind_pipeline(nb::module_& m) {
  bind_request(m);
  bind_pipeline_options(m);
  nb::class_<ImagePipeline>(m, "ImagePipeline")
      .def(nb::init<const std::filesystem::path&, const PipelineOptions&>(), nb::arg("spec"), nb::arg("options"))
      .def("run", &run, nb::arg("request"), nb::arg("on_step").none(), nb::arg("with_texts"))
      .def(
          "load_lora",
          [](ImagePipeline& p, const std::filesystem::path& file, bool partial) {
            const LoraReport report = p.load_lora({.file = file, .partial = partial});
            return nb::make_tuple(report.str(), report.unmatched);
          },
          nb::arg("file"), nb::arg("partial"))
      .def("unload_loras", &ImagePipeline::unload_loras)
      .def("warnings", &ImagePipeline::warnings, nb::arg("request"))
      .def_prop_ro("known_words", [](const ImagePipeline& p) { return p.model().known_words(); })
      .def_prop_ro("name", [](const ImagePipeline& p) { return p.model().name(); })
      .def_prop_ro("guidance_offset", &ImagePipeline::guidance_offset)
      .def_prop_ro("device", &ImagePipeline::device);
  m.def("draw_seed", &draw_seed);
  m.def("check_lora_weight", &check_lora_weight, nb::arg("where"), nb::arg("weight"));
  m.def("default_model_folder", [] { return default_model_folder().string(); });
}

}  // namespace tenon::python
