// Any bytes as a GGUF file: either an Error(Model), or tensors inside the bytes that can be read, and metadata that
// gives a tokenizer and a configuration or is refused likewise.
#include "tenon/io/gguf.h"

#include <cstdlib>

#include "tenon/core/error.h"
#include "tenon/io/byte_level_tokenizer.h"
#include "tenon/io/gguf_checkpoint.h"
#include "tenon/models/decoder.h"
#include "tenon/models/z_image.h"
#include "tenon/pipelines/families/z_image/tensor_names.h"

namespace {
using namespace tenon;

template <class F>
void allow_model_errors(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Model) std::abort();
  }
}

void use_metadata(const GgufFile& file) {
  for (const auto& [key, value] : file.values()) {
    allow_model_errors([&, k = key] { file.string(k); });
    allow_model_errors([&, k = key] { file.number(k); });
    allow_model_errors([&, k = key] { file.strings(k); });
    allow_model_errors([&, k = key] { file.integers(k); });
  }
  allow_model_errors([&] { static_cast<void>(gguf_config(file)); });
  allow_model_errors([&] {
    const ByteLevelTokenizer tokenizer = ByteLevelTokenizer::from_gguf(file);
    for (const int32_t id : tokenizer.encode("it's 12 ab<|im_end|>"))
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
  });
}

void read_all(const GgufSlice& slice) {
  const int64_t cols = slice.shape.cols();
  if (slice.shape.numel() == 0 || cols > 1 << 20) return;
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t i = 0; i < slice.shape.rows(); ++i) read_rows(slice, i, row);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  allow_model_errors([&] {
    const GgufFile file = GgufFile::from_bytes(bytes, "fuzz");
    for (const auto& [name, tensor] : file.tensors()) {
      const bool inside = tensor.data.empty() || (tensor.data.data() >= bytes.data() &&
                                                  tensor.data.data() + tensor.data.size() <= bytes.data() + size);
      if (!inside || &file.at(name) != &tensor) std::abort();
      read_all({&tensor, tensor.shape, 0, 0});
    }
    use_metadata(file);
    const GgufCheckpoint checkpoint =
        file.architecture() == "lumina2" ? lumina_checkpoint(file) : gguf_checkpoint(file);
    WeightShapes shapes;
    for (const auto& [name, slice] : checkpoint.tensors) {
      read_all(slice);
      if (slice.stored().size() > slice.tensor->data.size()) std::abort();
      shapes.emplace(name, slice.shape);
    }
    allow_model_errors([&] {
      const ZImageConfig c = detect_z_image(shapes, "fuzz");
      if (c.axis_depths[0] + c.axis_depths[1] + c.axis_depths[2] != c.head_width()) std::abort();
    });
    allow_model_errors([&] {
      const DecoderConfig c = detect_qwen3(shapes, "fuzz");
      if (c.heads % c.key_heads || c.width < 1) std::abort();
    });
  });
  return 0;
}
