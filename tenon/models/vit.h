// Vision transformers like DINOv2 (timm's vit_*_patch14_dinov2): a patch embedding, learned positions resampled to the
// image, optional registers, pre-norm transformer blocks with LayerScale and a GELU or SwiGLU feed-forward.
//
// Weights have timm's names whatever the checkpoint's layout: `vit_name` translates a stored name.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/models/weights.h"
#include "tenon/nn/scope.h"

namespace tenon {

/// How a table of position embeddings is resampled to another grid; implementations of the same network differ.
enum class VitResample {
  Antialias,    ///< timm, and everything with registers: Keys' cubic, a = -0.5, widened where the grid shrinks
  Plain,        ///< transformers' Dinov2: a = -0.75, four taps, scale from / to
  PlainOffset,  ///< the original without registers: the same with scale from / (to + 0.1)
};

/// Which code the weights are from: decides tensor names, resampling, and the preprocessing that references use.
enum class VitSource { Timm, Original, HuggingFace };

/// The defaults are ViT-g/14 as timm has it.
struct VitConfig {
  int64_t patch = 14;
  int64_t grid = 37;  ///< side of the position table, in patches
  int64_t width = 1536, depth = 40, heads = 24;
  int64_t hidden = 4096;       ///< inner width of the feed-forward: the input width of its second layer
  bool gated = true;           ///< SwiGLU: silu(first half) * second half; false: GELU
  bool layer_scale = true;     ///< a learned factor per channel after both branches
  int64_t registers = 0;       ///< tokens between the class token and the patches, without position embeddings
  bool class_position = true;  ///< row 0 of the table is the class token's position; false: already added to the token
  bool split_qkv = false;      ///< three matrices query, key, value instead of one
  bool split_gate = false;     ///< two matrices gate and up instead of fc1
  double eps = 1e-6;
  VitResample resample = VitResample::Antialias;
  VitSource source = VitSource::Timm;

  /// Number of tokens before the patches.
  int64_t prefix() const { return 1 + registers; }
  /// Side in pixels of the image that the position table was trained for.
  int64_t native_side() const { return grid * patch; }
};

/// A named architecture.
struct VitPreset {
  std::string name;     ///< as in `-m random:<name>`: "vit-g14", "vit-s14-reg", ..
  std::string summary;  ///< one line for listings
  VitConfig config;
};
/// S, B, L and g/14, each with and without registers.
const std::vector<VitPreset>& vit_presets();

/// Tokens after the final norm, f32 [B, prefix + patches, width], of `pixels` f32 [B,H,W,3] (normalised; H and W
/// multiples of the patch). Row 0 of an image is its feature; the last H/patch * W/patch rows are its patches in
/// row-major order. Between blocks the tokens are stored as p.act. Error(Usage) for a shape that does not fit.
Expr vit(const VitConfig& c, const Expr& pixels, nn::Precision p);
/// vit over the input "pixels".
Expr vit(Graph& g, const VitConfig& c, int64_t batch, int64_t height, int64_t width, nn::Precision p);

/// The matrix f32 [to, from] that resamples `from` samples to `to`: the bicubic kernels of VitResample as expressions
/// of coordinates. Rows sum to 1.
Expr resample_matrix(Graph& g, int64_t from, int64_t to, VitResample how);
/// A position table f32 [grid * grid, width], row-major, resampled to height x width: first along the width, then the
/// height.
Expr resample_positions(const Expr& table, int64_t grid, int64_t height, int64_t width, VitResample how);

/// Every tensor of the network, by timm's names.
WeightShapes vit_weights(const VitConfig& c);

/// timm's name of a tensor stored by timm, the original code or transformers (either spelling); "" for tensors that the
/// network does not read (mask token, heads).
std::string vit_name(const std::string& stored);
/// True if these tensors (by stored names) are such a network.
bool is_vit(const WeightShapes& stored);
/// From stored names and shapes: everything except the number of heads. `config`: the checkpoint's config.json or null;
/// heads and eps are taken from it. If it gives no heads they are 64 wide, with Error(Model) if the width is not a
/// multiple of 64. Error(Model) names what does not fit.
VitConfig detect_vit(const WeightShapes& stored, const nlohmann::json& config, const std::string& where);

}  // namespace tenon
