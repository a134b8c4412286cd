// Separated by a zero byte: config.json and preprocessor_config.json next to the weights of a small vision transformer.
// Either an Error(Model), or settings that work for preparing a picture.
#include <array>
#include <cmath>

#include "tenon/io/image.h"
#include "tenon/pipelines/families/image_encoder/image_encoder.h"
#include "tests/fuzz/fuzz_tools.h"

namespace {
using namespace tenon;

const fuzz::Folder& model() {
  static const fuzz::Folder folder;
  static const bool written = [] {
    VitConfig c;
    c.patch = 2;
    c.grid = 2;
    c.width = 64;
    c.depth = c.heads = 1;
    c.hidden = 64;
    c.gated = false;
    std::vector<std::vector<std::byte>> values;
    std::vector<TensorData> tensors;
    for (const auto& [name, shape] : vit_weights(c)) values.emplace_back(static_cast<size_t>(shape.numel() * 4));
    size_t i = 0;
    for (const auto& [name, shape] : vit_weights(c)) tensors.push_back({name, DType::F32, shape, values[i++]});
    write_safetensors(folder / "model.safetensors", tensors);
    return true;
  }();
  static_cast<void>(written);
  return folder;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string_view> parts = fuzz::texts(data, size, 2);
  model().write("config.json", parts[0].empty() ? "{}" : parts[0]);
  model().write("preprocessor_config.json", parts[1].empty() ? "{}" : parts[1]);
  fuzz::refuses_only({ErrorKind::Model}, [] {
    const auto encoder = ImageEncoder::open(model().path().string());
    for (const char* kind : {"timm", "hf"}) {
      const ImagePreprocessing p = encoder->preprocessing(kind);
      if (p.crop < 1 || p.crop > kMaxImageSide || p.short_side < 1) std::abort();
      for (int i = 0; i < 3; ++i)
        if (!std::isfinite(p.mean[static_cast<size_t>(i)]) || !(p.deviation[static_cast<size_t>(i)] > 0)) std::abort();
    }
  });
  return 0;
}
