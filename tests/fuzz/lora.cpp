// Any bytes as a LoRA of the tiny Z-Image: either an Error(Model), or changes that fit the weights and can be added to
// them. The first byte says whether tensors without a place are left out.
#include "tenon/models/lora.h"

#include <cmath>

#include "tenon/models/z_image.h"
#include "tests/fuzz/fuzz_tools.h"

namespace {
using namespace tenon;

const LoraNames& names() {
  static const LoraNames all = z_image_lora_names(
      {.width = 24, .layers = 1, .refiners = 1, .heads = 1, .text_width = 8, .axis_depths = {8, 8, 8}}, {}, {});
  return all;
}

void add(const LoraChange& c) {
  const LoraMatrix& m = *c.matrix;
  if (c.target.first_row + c.target.shape[0] > m.rows || m.columns != c.target.shape.numel() / c.target.shape[0])
    std::abort();
  std::vector<float> row(static_cast<size_t>(m.columns));
  for (int64_t i = 0; i < c.target.shape[0]; ++i) m.add_row(c.target.first_row + i, 1, row);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  fuzz::refuses_only({ErrorKind::Model}, [&] {
    const auto file = SafetensorsFile::from_bytes(std::as_bytes(std::span(data + 1, size - 1)), "fuzz");
    const Lora lora = read_lora(file, names(), data[0] % 2 ? LoraRest::LeftOut : LoraRest::Refused);
    for (const auto& [component, tensors] : lora.changes)
      for (const auto& [tensor, change] : tensors) add(change);
    if (lora.report.str().empty()) std::abort();
  });
  return 0;
}
