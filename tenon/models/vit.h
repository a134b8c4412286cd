// Vision transformers of DINOv2's kind (timm's vit_*_patch14_dinov2): a patch embedding, learned positions resampled to
// the image, optional registers, pre-norm transformer blocks with LayerScale and a GELU or SwiGLU feed-forward.
//
// Weights go by timm's names, whatever layout the checkpoint has: `vit_name` says which one a stored name stands for.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/models/weights.h"
#include "tenon/nn/scope.h"

namespace tenon {

/// How a table of positions is brought to another grid; implementations of the same network differ.
enum class VitResample {
  Antialias,    ///< timm, and everything with registers: Keys' cubic, a = -0.5, widened where the grid shrinks
  Plain,        ///< transformers' Dinov2: a = -0.75, four taps, scale from / to
  PlainOffset,  ///< the original without registers: the same with scale from / (to + 0.1)
};

/// Who wrote the weights: decides names, the resampling and the preprocessing that features are compared under.
enum class VitSource { Timm, Original, HuggingFace };

/// The defaults are ViT-g/14 as timm has it.
struct VitConfig {
  int64_t patch = 14;
  int64_t grid = 37;  ///< the position table's side, in patches
  int64_t width = 1536, depth = 40, heads = 24;
  int64_t hidden = 4096;       ///< inner width of the feed-forward: what its second layer reads
  bool gated = true;           ///< SwiGLU: silu(first half) * second half; false: GELU
  bool layer_scale = true;     ///< a learned factor for each channel behind both branches
  int64_t registers = 0;       ///< tokens between the class token and the patches, without positions
  bool class_position = true;  ///< the table's row 0 is the class token's; false: it has been added to the token
  bool split_qkv = false;      ///< three matrices query, key, value instead of one
  bool split_gate = false;     ///< two matrices gate and up instead of fc1
  double eps = 1e-6;
  VitResample resample = VitResample::Antialias;
  VitSource source = VitSource::Timm;

  /// Tokens before those of the patches.
  int64_t prefix() const { return 1 + registers; }
  /// Side in pixels of the image that the table of positions was made for.
  int64_t native_side() const { return grid * patch; }
};

/// A named architecture.
struct VitPreset {
  std::string name;     ///< as in `-m random:<name>`: "vit-g14", "vit-s14-reg", ..
  std::string summary;  ///< one line for lists
  VitConfig config;
};
/// S, B, L and g/14, each with and without registers.
const std::vector<VitPreset>& vit_presets();

/// The tokens behind the final norm, f32 [B, prefix + patches, width], of `pixels` f32 [B,H,W,3] (normalised; H and W
/// multiples of the patch). Row 0 of an image is its feature; the last H/patch * W/patch rows are its patches, row by
/// row. Between blocks the tokens are stored as p.act. Error(Usage) for a shape that does not fit.
Expr vit(const VitConfig& c, const Expr& pixels, nn::Precision p);
/// vit over the input "pixels".
Expr vit(Graph& g, const VitConfig& c, int64_t batch, int64_t height, int64_t width, nn::Precision p);

/// The matrix f32 [to, from] that brings `from` samples to `to`: the bicubic kernels of VitResample as maths on
/// coordinates. Rows sum to 1.
Expr resample_matrix(Graph& g, int64_t from, int64_t to, VitResample how);
/// A table of positions f32 [grid * grid, width], row by row, on a grid of height x width: width first, then height.
Expr resample_positions(const Expr& table, int64_t grid, int64_t height, int64_t width, VitResample how);

/// Every tensor of the network, by timm's names.
WeightShapes vit_weights(const VitConfig& c);

/// timm's name of a tensor that timm, the original code or transformers (either spelling) stored; "" for what the
/// network does not read (mask token, heads).
std::string vit_name(const std::string& stored);
/// True if these tensors (stored names) are a network of this kind.
bool is_vit(const WeightShapes& stored);
/// From stored names and shapes: everything but heads. `config`: config.json of the checkpoint or null; its heads and
/// eps are taken. Without its heads they are 64 wide, and Error(Model) where the width is no multiple of that.
/// Error(Model) names what does not fit.
VitConfig detect_vit(const WeightShapes& stored, const nlohmann::json& config, const std::string& where);

}  // namespace tenon
