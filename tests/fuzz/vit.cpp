// Separated by a zero byte: shapes of tensors as a JSON object, and a config.json. Either an Error(Model), or a vision
// transformer whose weights can be listed.
#include "tenon/models/vit.h"

#include "tenon/io/json.h"
#include "tests/fuzz/fuzz_tools.h"

namespace {
using namespace tenon;

// Shapes as they can be in a safetensors header.
WeightShapes shapes_of(const nlohmann::json& list) {
  WeightShapes out;
  if (!list.is_object()) return out;
  for (const auto& [name, extents] : list.items()) {
    std::vector<int64_t> shape;
    double elements = 1;
    for (const nlohmann::json& extent : extents) {
      if (!extent.is_number_unsigned() || extent.get<uint64_t>() > (uint64_t{1} << 62)) return {};
      shape.push_back(extent.get<int64_t>());
      elements *= std::max(extent.get<double>(), 1.0);
    }
    if (shape.size() > kMaxRank || elements > 4e18) return {};
    out.emplace(name, Shape(shape));
  }
  return out;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string_view> parts = fuzz::texts(data, size, 2);
  fuzz::refuses_only({ErrorKind::Model}, [&] {
    const WeightShapes shapes = shapes_of(parse_json(parts[0], "fuzz"));
    const nlohmann::json config = parts[1].empty() ? nlohmann::json() : parse_json(parts[1], "fuzz");
    if (!is_vit(shapes)) return;
    const VitConfig c = detect_vit(shapes, config, "fuzz");
    if (c.width < 1 || c.patch < 1 || c.depth < 1 || c.heads < 1 || c.grid < 1) std::abort();
    // Sizes beyond all memory are refused by the memory plan.
    if (c.depth <= 3) fuzz::refuses_only({ErrorKind::Memory}, [&] { check_weights(vit_weights(c), shapes); });
  });
  return 0;
}
