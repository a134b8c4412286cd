// StableDiffusionCheckpoint::open: finds the files of a path, and the component of each tensor.
#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/gguf.h"
#include "tenon/io/json.h"
#include "tenon/models/stable_diffusion_checkpoint.h"
#include "tenon/models/stable_diffusion_names.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {

struct ComponentFolder {
  const char* name;
  const char* stem;  // of its weight file's name
};
constexpr std::array<ComponentFolder, 3> kFolders = {
    {{"text_encoder", "model"}, {"unet", "diffusion_pytorch_model"}, {"vae", "diffusion_pytorch_model"}}};

constexpr const char* kConvertHint =
    "a pickle can run code when it is loaded; convert it to safetensors first, for example with diffusers: "
    "StableDiffusionPipeline.from_single_file(...).save_pretrained(...)";

template <size_t N>
bool starts_with_any(std::string_view name, const std::array<std::string_view, N>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return name.starts_with(p); });
}

bool is_pickle_name(const fs::path& path) {
  const std::string e = path.extension().string();
  return e == ".ckpt" || e == ".pt" || e == ".pth" || e == ".bin" || e == ".pkl";
}

// A zip archive or a bare pickle, the formats of torch.save. The first eight bytes of a safetensors file are a length
// and may have any value; its header begins after them.
bool has_pickle_content(const fs::path& path) {
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) return false;  // opening a FIFO would block
  std::array<char, 9> head{};
  std::ifstream(path, std::ios::binary).read(head.data(), head.size());
  const std::string_view text(head.data(), 4);
  if (head[8] == '{') return false;
  return text == "PK\x03\x04" || (text[0] == '\x80' && text[1] >= 2 && text[1] <= 5 && text[2] != 0);
}

// Buffers such as training's noise schedule: derived numbers, not weights.
bool is_buffer(std::string_view name) {
  constexpr std::array<std::string_view, 5> kPrefixes = {"alphas_cumprod", "sqrt_", "log_one_minus_", "posterior_",
                                                         "first_stage_model.loss."};
  return name == "betas" || name == "logvar" || starts_with_any(name, kPrefixes) || name == "model_ema.decay" ||
         name == "model_ema.num_updates" || name.ends_with("position_ids");
}

// A component and a tensor's name in it; the component is empty if the name does not show it.
struct Route {
  std::string component, name;
  bool ldm = false;  // the prefix marks it as a name of the single-file layout
};

Route route(std::string_view name) {
  using Rule = std::pair<std::string_view, const char*>;
  constexpr std::array<Rule, 4> kPrefixes = {{{"model.diffusion_model.", "unet"},
                                              {"first_stage_model.", "vae"},
                                              {"vae.", "vae"},
                                              {"cond_stage_model.transformer.", "text_encoder"}}};
  for (const auto& [prefix, component] : kPrefixes)
    if (name.starts_with(prefix)) return {component, std::string(name.substr(prefix.size())), prefix != "vae."};
  // Names in single-component files have no prefix.
  constexpr std::array<std::string_view, 4> kText = {"text_model.", "embeddings.", "encoder.layers.",
                                                     "final_layer_norm."};
  constexpr std::array<std::string_view, 4> kVae = {"encoder.", "decoder.", "quant_conv.", "post_quant_conv."};
  constexpr std::array<std::string_view, 14> kUnet = {
      "conv_in.",       "conv_out.",   "conv_norm_out.", "time_embedding.", "down_blocks.",
      "mid_block.",     "up_blocks.",  "add_embedding.", "input_blocks.",   "middle_block.",
      "output_blocks.", "time_embed.", "out.",           "label_emb."};
  if (starts_with_any(name, kText)) return {"text_encoder", std::string(name), false};
  if (starts_with_any(name, kVae)) return {"vae", std::string(name), false};
  if (starts_with_any(name, kUnet)) return {"unet", std::string(name), false};
  return {"", std::string(name), false};
}

bool is_ldm_unet(std::string_view name) {
  constexpr std::array<std::string_view, 6> kModules = {"input_blocks.", "middle_block.", "output_blocks.",
                                                        "time_embed.",   "out.",          "label_emb."};
  return starts_with_any(name, kModules);
}

bool is_ldm_vae(std::string_view name) {
  if (!name.starts_with("encoder.") && !name.starts_with("decoder.")) return false;
  constexpr std::array<std::string_view, 4> kModules = {"down.", "up.", "mid.", "norm_out."};
  return starts_with_any(name.substr(8), kModules);
}

// diffusers' name; empty if there is no counterpart.
std::string canonical(const Route& r, int vae_levels) {
  if (r.component == "unet") return r.ldm || is_ldm_unet(r.name) ? unet_name_from_ldm(r.name) : r.name;
  if (r.component == "vae")
    return r.ldm || is_ldm_vae(r.name) ? vae_name_from_ldm(r.name, vae_levels) : vae_name_from_old(r.name);
  return text_name_with_prefix(r.name);
}

// Number of resolutions of an LDM VAE: one more than the highest level in any name.
int count_vae_levels(const WeightSet& set) {
  int levels = 0;
  for (const auto& [name, unused] : set.tensors) {
    constexpr std::string_view kUp = "decoder.up.";
    const size_t at = name.find(kUp);
    int level = 0;
    if (at != std::string::npos &&
        std::from_chars(name.data() + at + kUp.size(), name.data() + name.size(), level).ec == std::errc())
      levels = std::max(levels, std::min(level, 63) + 1);
  }
  return levels ? levels : 4;
}

// The VAE's attention consists of linear layers; LDM files store them as 1x1 convolutions.
Shape without_kernel(const std::string& component, const std::string& name, const Shape& shape) {
  if (component != "vae" || name.find(".attentions.") == std::string::npos || !name.ends_with(".weight")) return shape;
  const bool conv = shape.rank() == 4 && shape[2] == 1 && shape[3] == 1, conv1d = shape.rank() == 3 && shape[2] == 1;
  return conv || conv1d ? Shape{shape[0], shape[1]} : shape;
}

std::optional<Architecture> foreign_family(std::string_view name) {
  if (name.starts_with("conditioner.embedders.") || name.find("label_emb.") != std::string_view::npos)
    return Architecture::StableDiffusionXL;
  if (name.starts_with("cond_stage_model.model.")) return Architecture::StableDiffusion2;
  return std::nullopt;
}

std::string ema_name(const std::string& unet_name) {
  std::string flat = unet_name;
  flat.erase(std::remove(flat.begin(), flat.end(), '.'), flat.end());
  return "model_ema.diffusion_model" + flat;
}

}  // namespace

class CheckpointReader {
 public:
  CheckpointReader(const fs::path& path, const CheckpointOptions& options) : options_(options) { out_.path_ = path; }

  StableDiffusionCheckpoint read() {
    const fs::path& path = out_.path_;
    TENON_CHECK(Model, file_exists(path), path.string())
        << "does not exist; expected a diffusers folder (model_index.json, unet/, vae/, text_encoder/), a .safetensors "
           "file or a .safetensors.index.json";
    if (folder_exists(path))
      read_folder();
    else
      read_file();
    return std::move(out_);
  }

 private:
  void refuse_pickle(const fs::path& path) const {
    if (is_pickle_name(path) || has_pickle_content(path))
      throw Error(ErrorKind::Model, path.string(), "is a Python pickle, which is not supported", kConvertHint);
  }

  void read_file() {
    refuse_pickle(out_.path_);
    WeightSet set = open_weights(out_.path_);
    const bool whole = std::any_of(set.tensors.begin(), set.tensors.end(),
                                   [](const auto& t) { return t.first.starts_with("model.diffusion_model."); });
    out_.kind_ = whole ? CheckpointKind::SingleFile : CheckpointKind::ComponentFile;
    add(set, "");
    // Single files contain no tokenizer; one may be next to them, as in the folder they were made from.
    const fs::path beside = out_.path_.parent_path() / "tokenizer";
    if (whole && folder_exists(beside)) out_.tokenizer_ = beside;
    if (!out_.components_.empty() || out_.foreign_) return;
    std::string first;
    for (const std::string& name : out_.unexpected_)
      if (first.size() < kShownBytes) first.append(first.empty() ? "" : ", ").append(shown(name, kShownBytes / 2));
    throw Error(ErrorKind::Model, out_.path_.string(),
                "holds no UNet, VAE or text encoder of a known layout; its tensors begin with: " +
                    (first.empty() ? "(none)" : first));
  }

  void read_folder() {
    const fs::path& path = out_.path_;
    if (read_component_folder()) return;
    out_.kind_ = CheckpointKind::DiffusersFolder;
    out_.model_index_ = read_json_object(path / "model_index.json");
    for (const ComponentFolder& c : kFolders) {
      if (!folder_exists(path / c.name)) continue;
      const fs::path file = find_weights(path / c.name, c.stem);
      WeightSet set = open_weights(file);
      add(set, c.name);
      out_.components_[c.name].config = read_json_object(path / c.name / "config.json");
    }
    TENON_CHECK(Model, !out_.components_.empty(), path.string())
        << "is not a model folder: looked for model_index.json, text_encoder/, unet/, vae/ and for "
           "diffusion_pytorch_model.safetensors or model.safetensors in it";
    if (folder_exists(path / "tokenizer")) out_.tokenizer_ = path / "tokenizer";
    if (folder_exists(path / "scheduler"))
      out_.scheduler_config_ = read_python_json_object(path / "scheduler" / "scheduler_config.json");
  }

  // A folder that is itself one component: it contains the weight file, whatever it is called.
  bool read_component_folder() {
    for (const char* stem : {"diffusion_pytorch_model", "model"}) {
      const auto file = first_existing(candidates(out_.path_, stem));
      if (!file) continue;
      out_.kind_ = CheckpointKind::ComponentFile;
      WeightSet set = open_weights(*file);
      add(set, "");
      TENON_CHECK(Model, out_.components_.size() == 1, out_.path_.string())
          << "expected the tensors of one component in " << file->filename().string() << ", found those of "
          << out_.components_.size();
      out_.components_.begin()->second.config = read_json_object(out_.path_ / "config.json");
      return true;
    }
    return false;
  }

  std::vector<fs::path> candidates(const fs::path& folder, const std::string& stem) const {
    std::vector<std::string> variants = {options_.variant};
    if (options_.variant.empty()) variants = {"", "fp16", "bf16", "non_ema"};
    std::vector<fs::path> out;
    for (const std::string& v : variants) {
      const std::string dot = v.empty() ? "" : "." + v;
      const auto candidate = [&](std::initializer_list<std::string_view> parts) {
        std::string file;
        for (std::string_view part : parts) file += part;
        out.push_back(folder / file);
      };
      candidate({stem, dot, ".safetensors"});
      candidate({stem, ".safetensors.index", dot, ".json"});
      if (!v.empty()) candidate({stem, dot, ".safetensors.index.json"});
    }
    return out;
  }

  static std::optional<fs::path> first_existing(const std::vector<fs::path>& paths) {
    const auto found = std::find_if(paths.begin(), paths.end(), file_exists);
    return found == paths.end() ? std::nullopt : std::optional(*found);
  }

  fs::path find_weights(const fs::path& folder, const std::string& stem) const {
    const std::vector<fs::path> tried = candidates(folder, stem);
    if (const auto file = first_existing(tried)) return *file;
    for (const fs::path& entry : list_folder(folder))
      if (is_pickle_name(entry)) refuse_pickle(entry);
    std::string list;
    for (const fs::path& p : tried) list.append(list.empty() ? "" : ", ").append(p.filename().string());
    throw Error(ErrorKind::Model, folder.string(), "has no weights; looked for " + list);
  }

  // Sorts the tensors of `set` into `component`, or if that is empty by their own names.
  void add(const WeightSet& set, const std::string& component) {
    const int vae_levels = count_vae_levels(set);
    if (!component.empty()) out_.components_[component];  // also if it has no tensors
    const auto place = [&](const std::string& stored) {
      return component.empty() ? route(stored) : Route{component, stored, false};
    };
    if (options_.use_ema && out_.kind_ == CheckpointKind::SingleFile) require_ema(set);
    for (const auto& [stored, view] : set.tensors) {
      const Route r = place(stored);
      if (const auto family = foreign_family(stored); family && component.empty()) out_.foreign_ = family;
      if (is_buffer(stored)) {
        (r.component.empty() ? out_.ignored_ : out_.components_[r.component].ignored).push_back(stored);
      } else if (stored.starts_with("model_ema.")) {
        out_.ignored_.push_back(stored);
      } else {
        const bool averaged = options_.use_ema && stored.starts_with("model.diffusion_model.");
        add_tensor(stored, averaged ? set.tensors.at(ema_name(r.name)) : view, r, vae_levels);
      }
    }
    for (const auto& [stored, tensor] : set.unsupported) {
      const Route r = place(stored);
      const std::string name = r.component.empty() ? "" : canonical(r, vae_levels);
      if (name.empty())
        out_.unexpected_.push_back(stored);
      else
        out_.components_[r.component].unsupported.emplace(name, tensor);
    }
    for (auto& [name, c] : out_.components_) {
      c.name = name;
      if (c.files.empty()) c.files = set.files;
    }
    out_.keep_.insert(out_.keep_.end(), set.bytes.begin(), set.bytes.end());
  }

  void add_tensor(const std::string& stored, const TensorView& view, const Route& r, int vae_levels) {
    const std::string name = r.component.empty() ? "" : canonical(r, vae_levels);
    if (name.empty()) {
      out_.unexpected_.push_back(stored);
      return;
    }
    TensorView renamed = view;
    renamed.shape = without_kernel(r.component, name, view.shape);
    const bool added = out_.components_[r.component].tensors.emplace(name, renamed).second;
    TENON_CHECK(Model, added, out_.path_.string())
        << "two tensors map to '" << shown(name) << "' of the " << r.component << "; one is '" << shown(stored) << "'";
  }

  // Checks that every UNet tensor has its averaged counterpart.
  void require_ema(const WeightSet& set) {
    for (const auto& [stored, unused] : set.tensors) {
      if (!stored.starts_with("model.diffusion_model.")) continue;
      const std::string partner = ema_name(route(stored).name);
      TENON_CHECK(Model, set.tensors.count(partner), out_.path_.string())
          << "EMA weights were requested, but there is no tensor '" << shown(partner) << "'";
    }
    out_.uses_ema_ = true;
  }

  CheckpointOptions options_;
  StableDiffusionCheckpoint out_;
};

StableDiffusionCheckpoint StableDiffusionCheckpoint::open(const fs::path& path, const CheckpointOptions& options) {
  if (path.extension() == ".gguf") {
    const GgufFile file = GgufFile::open(path);  // says what is wrong with a damaged one
    throw Error(ErrorKind::Model, path.string(),
                "is a GGUF file of architecture '" + shown(file.architecture()) +
                    "'; expected Stable Diffusion in a .safetensors file or a folder");
  }
  return CheckpointReader(path, options).read();
}

}  // namespace tenon
