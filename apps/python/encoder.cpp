// Features of pictures, and the abilities of models.
#include <cstring>

#include "apps/python/interrupt.h"
#include "apps/python/options.h"
#include "apps/python/process.h"
#include "tenon/core/error.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/image_embedder.h"

namespace tenon::python {
namespace {

using Pixels = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Features = nb::ndarray<nb::numpy, float>;

// Options of a call.
struct Choice {
  std::string preprocessing;
  int64_t side = 0, batch = 8;
  bool operator==(const Choice&) const = default;
};

Image image_of(const Pixels& pixels) {
  Image out{static_cast<int64_t>(pixels.shape(1)), static_cast<int64_t>(pixels.shape(0)), 3, {}};
  out.pixels.resize(pixels.size());
  std::memcpy(out.pixels.data(), pixels.data(), out.pixels.size());
  return out;
}

// One field of all embeddings, concatenated.
std::vector<float> joined(const std::vector<Embedding>& all, std::vector<float> Embedding::*part) {
  std::vector<float> out;
  out.reserve(all.size() * (all[0].*part).size());
  for (const Embedding& e : all) out.insert(out.end(), (e.*part).begin(), (e.*part).end());
  return out;
}

// A NumPy array that owns the values.
Features array_of(std::vector<float> values, const std::vector<size_t>& shape) {
  auto kept = std::make_unique<std::vector<float>>(std::move(values));
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return {kept.release()->data(), shape.size(), shape.data(), owner};
}

// An ImageEmbedder for the options chosen last; other options prepare the network again, from the same files.
class Encoder {
 public:
  Encoder(const std::filesystem::path& spec, const EmbeddingOptions& options) : options_(with_threads(options)) {
    embedding_ = Interrupt::run([&] { return open_as<ImageEmbedder>(spec.string(), options_); });
    name_ = embedding_->name();
    description_ = embedding_->backend().describe();
    type_ = embedding_->type().text();
  }

  nb::tuple embed(const std::vector<Pixels>& pictures, const Choice& choice) {
    TENON_CHECK(Usage, !pictures.empty(), "images") << "expected at least one picture";
    std::vector<Image> images;
    for (const Pixels& p : pictures) images.push_back(image_of(p));
    std::vector<float> features, patches;
    std::vector<size_t> shape{images.size()};
    Interrupt::run([&] {
      const auto turn = turns_.wait();
      choose(choice);
      const std::vector<Embedding> all = (*embedding_)(images);
      for (const int64_t n : {all[0].rows, all[0].columns}) shape.push_back(static_cast<size_t>(n));
      features = joined(all, &Embedding::feature);
      patches = joined(all, &Embedding::patches);
    });
    const size_t width = features.size() / images.size();
    shape.push_back(width);
    return nb::make_tuple(array_of(std::move(features), {images.size(), width}), array_of(std::move(patches), shape));
  }

  const std::string& name() const { return name_; }
  std::string device() const { return description_; }
  std::string dtype() const { return type_; }

 private:
  void choose(const Choice& choice) {
    if (choice == choice_) return;
    EmbeddingOptions options = options_;
    options.preprocessing = choice.preprocessing;
    options.side = choice.side;
    options.batch = choice.batch;
    auto made = embedding_->with(options);  // bad options leave the current ones in place
    embedding_ = std::move(made);
    choice_ = choice;
  }

  Turns turns_;
  EmbeddingOptions options_;
  Choice choice_;
  MadeHere<ImageEmbedder> embedding_;
  std::string name_, description_;
  std::string type_;
};

}  // namespace

void bind_encoder(nb::module_& m) {
  m.attr("LARGEST_SIDE") = kMaxImageSide;
  bind_options<EmbeddingOptions>(m, "EmbeddingOptions").def_rw("batch_invariant", &EmbeddingOptions::batch_invariant);
  nb::class_<Encoder>(m, "ImageEncoder")
      .def(nb::init<const std::filesystem::path&, const EmbeddingOptions&>(), nb::arg("spec"), nb::arg("options"))
      .def(
          "embed",
          [](Encoder& e, const std::vector<Pixels>& images, const std::string& preprocessing, int64_t size,
             int64_t batch_size) {
            return e.embed(images, {preprocessing, size, batch_size});
          },
          nb::arg("images"), nb::arg("preprocessing"), nb::arg("size"), nb::arg("batch_size"))
      .def_prop_ro("name", &Encoder::name)
      .def_prop_ro("device", &Encoder::device)
      .def_prop_ro("dtype", &Encoder::dtype);
  m.def(
      "model_abilities",
      [](const std::filesystem::path& spec) {
        std::vector<std::string> verbs;
        for (const Ability& a : family_of(spec.string()).abilities) verbs.emplace_back(a.name.verb);
        return verbs;
      },
      nb::arg("spec"), "Verbs of what the model can do; raises what opening it would raise for what is none.");
}

}  // namespace tenon::python
