#include "tenon/pipelines/families/z_image/checkpoint.h"

#include <algorithm>
#include <array>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/models/config_reader.h"
#include "tenon/models/stable_diffusion_names.h"
#include "tenon/pipelines/families/z_image/tensor_names.h"
#include "tenon/pipelines/language_model.h"
#include "tenon/pipelines/model_files.h"

namespace tenon {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;
using ZFiles = ZImageCheckpoint;

constexpr const char* kPartConfig = "config.json";
constexpr const char* kMark = "layers.0.adaLN_modulation.0.weight";  // no other transformer has this tensor
constexpr const char* kDecoderPrefix = "model.";                     // missing in bare exports of the encoder
constexpr std::string_view kScaled = ".weight";
constexpr int kVaeLevels = 4;

const char* stem_of(const std::string& part) { return part == ZFiles::kText ? "model" : "diffusion_pytorch_model"; }

bool is_transformer_config(const fs::path& file) {
  if (!file_exists(file)) return false;
  const json config = read_json(file);
  return config.is_object() && config.value("_class_name", json()) == json("ZImageTransformer2DModel");
}

// The part that a tensor of an all-in-one file belongs to, and its name there; empty for names without a prefix.
std::pair<std::string, std::string> section_of(const std::string& stored) {
  constexpr std::string_view kEncoders = "text_encoders.", kInner = ".transformer.";
  for (const std::string_view prefix : {"vae.", "first_stage_model."})
    if (stored.starts_with(prefix)) return {ZFiles::kVae, stored.substr(prefix.size())};
  if (!stored.starts_with(kEncoders)) return {"", stored};
  const size_t inner = stored.find(kInner);
  return {ZFiles::kText, inner == std::string::npos ? "" : stored.substr(inner + kInner.size())};
}

// Collects a safetensors file's tensors by the names that a part's network reads.
class PartReader {
 public:
  PartReader(Component& out, const std::string& where) : out_(out), where_(where) {}

  void add(const std::string& stored, const TensorView& view) {
    if (stored.empty() || z_image_ignores(stored)) return out_.ignored.push_back(stored);
    if (out_.name == ZFiles::kTransformer) return add_transformer(stored, view);
    if (out_.name == ZFiles::kVae) return put(vae_name(stored), stored, view);
    if (stored.starts_with("lm_head.")) return out_.ignored.push_back(stored);
    put(stored.starts_with(kDecoderPrefix) ? stored : kDecoderPrefix + stored, stored, view);
  }

  // Assigns scales to their tensors, once all are there.
  void finish() {
    for (const auto& [name, scale] : scales_) {
      const auto tensor = out_.tensors.find(name);
      if (tensor == out_.tensors.end()) continue;
      TENON_CHECK(Model, tensor->second.dtype == DType::E4M3, where_)
          << "tensor '" << shown(name) << "' is of type " << name_of(tensor->second.dtype)
          << " and has scales, expected them beside e4m3 only; ignoring them would give wrong results";
      const int64_t rows = tensor->second.shape.rank() ? tensor->second.shape[0] : 0, n = scale.shape.numel();
      TENON_CHECK(Model, is_float(scale.dtype) && rows > 0 && (n == 1 || n == rows), where_)
          << "tensor '" << shown(name) << "' " << tensor->second.shape.str() << " has scales " << name_of(scale.dtype)
          << scale.shape.str() << "; expected one number, or one per row";
      out_.scales.emplace(name, scale);
    }
  }

 private:
  static std::string vae_name(const std::string& stored) {
    const std::string name = vae_name_from_ldm(stored, kVaeLevels);
    return name.empty() ? vae_name_from_old(stored) : name;
  }

  void add_transformer(const std::string& stored, const TensorView& view) {
    const auto thirds = z_image_joined_names(stored);
    if (!thirds) return put(z_image_name(stored), stored, view);
    const bool shared = view.shape.numel() == 1;  // one scale for all rows
    TENON_CHECK(Model, shared || (view.shape.rank() > 0 && view.shape[0] % 3 == 0), where_)
        << "tensor '" << shown(stored) << "': expected three times as many rows as a query has, found "
        << view.shape.str();
    TensorView third = view;
    if (!shared) {
      third.size /= thirds->size();
      std::vector<int64_t> extents(view.shape.begin(), view.shape.end());
      extents[0] /= 3;
      third.shape = Shape(extents);
    }
    for (const std::string& name : *thirds) {
      put(name, stored, third);
      if (!shared) third.data += third.size;
    }
  }

  void put(std::string name, const std::string& stored, const TensorView& view) {
    for (const std::string_view scale : {".scale_weight", ".weight_scale"})
      if (name.ends_with(scale)) {
        name.replace(name.size() - scale.size(), scale.size(), kScaled);
        scales_.emplace(name, view);
        return out_.ignored.push_back(stored);
      }
    TENON_CHECK(Model, out_.tensors.emplace(name, view).second, where_) << "two tensors map to '" << shown(name) << "'";
  }

  Component& out_;
  const std::string& where_;
  std::map<std::string, TensorView> scales_;  // by the tensor that they scale
};

class ZImageReader {
 public:
  explicit ZImageReader(ZImageCheckpoint& out) : out_(out) {}

  // Opens a part that has its own path.
  void open_part(const std::string& part, const fs::path& path) {
    if (!folder_exists(path)) return open_file(path, part);
    Component& c = component(part);
    const fs::path config = path / kPartConfig;
    TENON_CHECK(Model, file_exists(config), path.string()) << "has no " << kPartConfig;
    const fs::path file = weights_in(path, stem_of(part));
    TENON_CHECK(Model, !file.empty(), path.string())
        << "has no weights; looked for " << stem_of(part) << ".safetensors, " << stem_of(part)
        << ".safetensors.index.json and one *.safetensors";
    WeightSet set = open_weights(file);
    c.files = set.files;
    take(std::move(set), part, file);
    c.config = read_json(config);
    where_[part] = config.string();
  }

  // Reads one part, or everything in the file if none is named.
  void open_file(const fs::path& path, const std::string& part = "") {
    if (path.extension() == ".gguf") return open_gguf(path, part);
    take(open_weights(path), part, path);
  }

  void configure() {
    if (out_.components.contains(ZFiles::kTransformer))
      out_.transformer = configured(ZFiles::kTransformer, z_image_config, detect_z_image);
    if (out_.components.contains(ZFiles::kText)) {
      out_.text = configured(ZFiles::kText, read_decoder_config, detect_qwen3);
      TENON_CHECK(Model, out_.text.family == "qwen3", ZFiles::kText)
          << "is of the family '" << out_.text.family << "', expected qwen3";
    }
    if (out_.components.contains(ZFiles::kVae)) out_.vae = configured(ZFiles::kVae, vae_config, detect_flux_vae);
  }

  // Looks in the text encoder's own file, then in folders where a tokenizer may be.
  void find_tokenizer(const fs::path& model) {
    const auto text = out_.components.find(ZFiles::kText);
    std::vector<fs::path> places{model / "tokenizer"};
    if (text != out_.components.end()) {
      const fs::path folder = fs::absolute(text->second.files.front()).parent_path();
      places.insert(places.end(), {folder, folder / "tokenizer", folder.parent_path() / "tokenizer"});
    }
    if (text_gguf_ && text_gguf_->has("tokenizer.ggml.model")) {
      out_.tokenizer = ByteLevelTokenizer::from_gguf(*text_gguf_);
      out_.tokenizer_where = text_gguf_->name();
      return;
    }
    for (const fs::path& place : places) {
      if (!folder_exists(place) || (!file_exists(place / "tokenizer.json") && !file_exists(place / "vocab.json")))
        continue;
      out_.tokenizer = ByteLevelTokenizer::from_folder(place);
      const fs::path config = place / "tokenizer_config.json";  // long prompts lose their end
      if (file_exists(config)) ConfigReader(read_json(config), config.string()).expect("truncation_side", {"right"});
      out_.tokenizer_where = place.string();
      return;
    }
  }

 private:
  Component& component(const std::string& name) {
    Component& c = out_.components[name];
    c.name = name;
    return c;
  }

  // Tensors without a prefix belong to `part`, or to the transformer if all parts are wanted.
  void take(WeightSet set, const std::string& part, const fs::path& file) {
    const std::string where = file.string(), own = part.empty() ? ZFiles::kTransformer : part;
    std::map<std::string, std::vector<std::pair<std::string, std::string>>> sections;  // stored name, own name
    const auto sort = [&](const std::string& stored) {
      const auto [section, name] = section_of(stored);
      sections[section.empty() ? own : section].emplace_back(stored, name);
    };
    for (const auto& [stored, view] : set.tensors) sort(stored);
    for (const auto& [stored, tensor] : set.unsupported) sort(stored);
    for (const auto& [section, names] : sections) {
      if (!part.empty() && section != part) continue;
      Component& c = component(section);
      c.files = set.files;
      PartReader reader(c, where);
      for (const auto& [stored, name] : names) {
        const auto tensor = set.tensors.find(stored);
        if (tensor != set.tensors.end())
          reader.add(name, tensor->second);
        else
          c.unsupported.emplace(name, set.unsupported.at(stored));
      }
      reader.finish();
      where_[section] = where;
    }
    out_.files.insert(out_.files.end(), set.bytes.begin(), set.bytes.end());
  }

  void open_gguf(const fs::path& path, const std::string& part) {
    const auto file = std::make_shared<const GgufFile>(GgufFile::open(path));
    const std::string architecture = file->architecture(),
                      found = architecture == "lumina2" ? ZFiles::kTransformer : ZFiles::kText;
    TENON_CHECK(Model, part.empty() || part == found, path.string())
        << "is a GGUF file of architecture '" << shown(architecture) << "', not a " << part
        << (part == ZFiles::kVae ? "; a VAE is read from a .safetensors file" : "");
    TENON_CHECK(Model, found == ZFiles::kTransformer || architecture == "qwen3", path.string())
        << "is a GGUF file of architecture '" << shown(architecture) << "'; expected qwen3 for the text encoder";
    GgufCheckpoint checkpoint = found == ZFiles::kText ? gguf_checkpoint(*file) : lumina_checkpoint(*file);
    Component& c = component(found);
    c.blocks = std::move(checkpoint.tensors);
    std::erase_if(c.blocks, [](const auto& t) { return t.first.starts_with("lm_head."); });
    c.files = {path};
    where_[found] = path.string();
    if (found == ZFiles::kText) {
      std::vector<std::string> left = std::move(checkpoint.unexpected);
      for (const auto& [name, slice] : c.blocks)
        if (name.ends_with(".bias")) left.push_back(name);  // Qwen3 has none
      refuse_left_over(std::move(left), path.string());
      c.config = gguf_config(*file);
      text_gguf_ = file;
    }
    out_.files.push_back(file);
  }

  template <class Config>
  Config configured(const char* part, Config (*read)(const json&, const std::string&),
                    Config (*detect)(const WeightShapes&, const std::string&)) const {
    const Component& c = out_.components.at(part);
    return c.config.is_null() ? detect(c.shapes(), where_.at(part)) : read(c.config, where_.at(part));
  }

  ZImageCheckpoint& out_;
  std::map<std::string, std::string> where_;  // for messages, by part
  std::shared_ptr<const GgufFile> text_gguf_;
};

}  // namespace

bool ZImageCheckpoint::reads(const fs::path& path) {
  try {
    if (folder_exists(path))
      return is_transformer_config(path / ZFiles::kTransformer / kPartConfig) ||
             is_transformer_config(path / kPartConfig);
    if (path.extension() == ".safetensors") return SafetensorsFile::mentions(path, kMark);
    if (path.extension() != ".gguf") return false;
    const GgufFile file = GgufFile::open(path);
    return file.architecture() == "lumina2" && (file.tensors().contains(kMark) || file.unsupported().contains(kMark) ||
                                                file.tensors().contains(std::string("model.diffusion_model.") + kMark));
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Cancelled) throw;
    return false;  // opening it reports the error
  }
}

ZImageCheckpoint ZImageCheckpoint::open(const fs::path& path, const PartPaths& parts) {
  ZImageCheckpoint out;
  ZImageReader reader(out);
  const bool whole = folder_exists(path / ZFiles::kTransformer);
  const std::array<std::pair<const char*, const std::string*>, 3> own = {
      {{ZFiles::kTransformer, &parts.diffusion_model},
       {ZFiles::kText, &parts.text_encoder},
       {ZFiles::kVae, &parts.vae}}};
  out.kind = whole                         ? ZImageCheckpoint::kFolder
             : folder_exists(path)         ? "transformer's folder"
             : path.extension() == ".gguf" ? "GGUF file"
                                           : "safetensors file";
  for (const auto& [part, given] : own)
    TENON_CHECK(Model, !whole || !given->empty() || file_exists(path / part / kPartConfig), path.string())
        << "has no " << part << "/" << kPartConfig;
  if (!whole && folder_exists(path)) reader.open_part(ZFiles::kTransformer, path);
  if (!folder_exists(path)) reader.open_file(path);
  for (const auto& [part, given] : own) {
    if (!given->empty()) {
      out.components.erase(part);
      reader.open_part(part, find_model(*given));
    } else if (whole) {
      reader.open_part(part, path / part);
    }
  }
  reader.configure();
  reader.find_tokenizer(path);
  const fs::path scheduler = path / "scheduler" / "scheduler_config.json";
  if (!whole || !file_exists(scheduler)) return out;
  out.scheduler_file = scheduler.string();
  out.scheduler = read_python_json_object(scheduler);
  return out;
}

}  // namespace tenon
