#include "tenon/pipelines/families/z_image/tensor_names.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tenon/core/error.h"

namespace tenon {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kWholeModel = "model.diffusion_model.", kJoinedRows = ".attention.qkv.";
constexpr std::array<NamePair, 2> kAtFront = {
    {{"x_embedder.", "all_x_embedder.2-1."}, {"final_layer.", "all_final_layer.2-1."}}};
constexpr std::array<NamePair, 3> kInside = {{{".attention.out.", ".attention.to_out.0."},
                                              {".attention.q_norm.", ".attention.norm_q."},
                                              {".attention.k_norm.", ".attention.norm_k."}}};
// Scales of a layer's input, and notes for other programs.
constexpr std::array<std::string_view, 4> kNotes = {".scale_input", ".input_scale", ".comfy_quant", "scaled_fp8"};

std::string_view bare(std::string_view stored) {
  if (stored.starts_with(kWholeModel)) stored.remove_prefix(kWholeModel.size());
  return stored;
}

}  // namespace

std::string z_image_name(std::string_view stored) {
  std::string name(bare(stored));
  for (const auto& [from, to] : kAtFront)
    if (name.starts_with(from)) return name.replace(0, from.size(), to);
  for (const auto& [from, to] : kInside)
    if (const size_t at = name.find(from); at != std::string::npos) return name.replace(at, from.size(), to);
  return name;
}

std::optional<std::array<std::string, 3>> z_image_joined_names(std::string_view stored) {
  const std::string name(bare(stored));
  const size_t at = name.find(kJoinedRows);
  if (at == std::string::npos) return std::nullopt;
  const auto third = [&](std::string_view part) { return std::string(name).replace(at, kJoinedRows.size(), part); };
  return std::array{third(".attention.to_q."), third(".attention.to_k."), third(".attention.to_v.")};
}

bool z_image_ignores(std::string_view stored) {
  return bare(stored) == "norm_final.weight" ||
         std::ranges::any_of(kNotes, [&](std::string_view note) { return stored.ends_with(note); });
}

GgufCheckpoint lumina_checkpoint(const GgufFile& file) {
  return gguf_checkpoint(file, [&](const GgufTensor& tensor) -> std::optional<std::vector<NamedSlice>> {
    if (z_image_ignores(tensor.name)) return std::vector<NamedSlice>{};
    const auto thirds = z_image_joined_names(tensor.name);
    if (!thirds) return std::vector<NamedSlice>{{z_image_name(tensor.name), {&tensor, tensor.shape, 0, 0}}};
    TENON_CHECK(Model, tensor.shape.rank() == 2 && tensor.shape[0] % 3 == 0, file.name())
        << "tensor '" << tensor.name << "': expected a matrix of three times as many rows as a query has, found "
        << tensor.shape.str();
    const int64_t rows = tensor.shape[0] / 3;
    std::vector<NamedSlice> out;
    for (size_t i = 0; i < thirds->size(); ++i)
      out.push_back({(*thirds)[i], {&tensor, Shape{rows, tensor.shape[1]}, static_cast<int64_t>(i) * rows, 0}});
    return out;
  });
}

}  // namespace tenon
