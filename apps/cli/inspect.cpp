// tenon inspect: what a checkpoint holds, and how it differs from what its architecture needs.
#include <iostream>
#include <nlohmann/json.hpp>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/explain/explanation.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/pipelines/family.h"
#include "tenon/pipelines/image_encoder.h"
#include "verb.h"

namespace tenon::cli {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

ordered_json report_json(const WeightReport& report) {
  ordered_json wrong = ordered_json::array();
  for (const auto& w : report.wrong_shape)
    wrong.push_back({{"name", w.name}, {"expected", w.expected.str()}, {"found", w.found.str()}});
  return {{"missing", report.missing}, {"unexpected", report.unexpected}, {"wrong_shape", wrong}};
}

ordered_json component_json(const Component& c) {
  ordered_json out{{"parameters", c.parameters()}, {"bytes", c.bytes()}};
  for (const auto& [dtype, count] : c.dtypes()) out["dtypes"][std::string(name_of(dtype))] = count;
  for (const fs::path& file : c.files) out["files"].push_back(file.string());
  out["ignored"] = c.ignored;
  out["unsupported"] = ordered_json::array();
  for (const auto& [name, t] : c.unsupported) out["unsupported"].push_back({{"name", name}, {"dtype", t.dtype}});
  out["tensors"] = ordered_json::object();
  for (const auto& [name, t] : c.tensors)
    out["tensors"][name] = {{"dtype", name_of(t.dtype)},
                            {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.end())}};
  return out;
}

ordered_json tensors_json(const WeightShapes& shapes) {
  ordered_json out = ordered_json::object();
  for (const auto& [tensor, shape] : shapes)
    out[tensor] = {{"shape", std::vector<int64_t>(shape.begin(), shape.end())}};
  return out;
}

// A layout without a file: all that its networks need.
ordered_json inspect_random(const std::string& name) {
  const auto model = open_parts("random:" + name);
  ordered_json out{{"model", "random:" + name}, {"kind", "random"}, {"architecture", ""}, {"usable", true}};
  for (const ModelFamily* family : model_families())
    for (const auto& [preset, summary] : family->presets())
      if (preset == name) out["architecture"] = summary;
  for (const std::string& part : model->parts()) {
    const WeightShapes shapes = model->shapes(part);
    out["components"][model->component(part)] = {{"parameters", parameter_count(shapes)},
                                                 {"tensors", tensors_json(shapes)}};
  }
  return out;
}

// The one network of an image encoder, by timm's names.
ordered_json inspect_encoder(const fs::path& path) {
  const auto encoder = ImageEncoder::open(path.string());
  const VitConfig& c = encoder->config();
  static constexpr const char* kLayouts[] = {"timm", "original", "transformers"};
  const std::string architecture = "vision transformer, width " + std::to_string(c.width) + ", " +
                                   std::to_string(c.depth) + " blocks, patch " + std::to_string(c.patch) +
                                   (c.gated ? ", SwiGLU" : ", GELU") +
                                   (c.registers ? ", " + std::to_string(c.registers) + " registers" : "");
  ordered_json out{{"model", path.string()},
                   {"kind", std::string("image encoder, ") + kLayouts[static_cast<int>(c.source)] + " layout"},
                   {"architecture", architecture}};
  Component all;
  for (const auto& [stored, view] : encoder->checkpoint()->tensors) {
    const std::string timm = vit_name(stored);
    if (timm.empty())
      all.ignored.push_back(stored);
    else
      all.tensors.emplace(timm, view);
  }
  all.name = "encoder";
  all.files = {path};
  out["components"]["encoder"] = component_json(all);
  out["components"]["encoder"].update(report_json(check_weights(encoder->shapes(), shapes_of(all))));
  out["usable"] = true;
  return out;
}

ordered_json inspect_checkpoint(const fs::path& path) {
  if (ImageEncoder::reads(path)) return inspect_encoder(path);
  const Checkpoint checkpoint = Checkpoint::open(path);
  static constexpr const char* kKinds[] = {"diffusers folder", "single file", "component file"};
  ordered_json out{{"model", path.string()},
                   {"kind", kKinds[static_cast<int>(checkpoint.kind())]},
                   {"architecture", name_of(checkpoint.architecture())},
                   {"tokenizer", checkpoint.tokenizer() ? checkpoint.tokenizer()->string() : ""}};
  for (const auto& [name, component] : checkpoint.components()) out["components"][name] = component_json(component);
  out["unexpected"] = checkpoint.unexpected();
  out["ignored"] = checkpoint.ignored();
  bool usable = true;
  try {
    checkpoint.require_stable_diffusion_1();
    const StableDiffusionConfig config = stable_diffusion_config(checkpoint);
    for (const auto& [name, report] : check_checkpoint(checkpoint, config)) {
      out["components"][name].update(report_json(report));
      usable = usable && report.usable();
    }
    out["missing_components"] = ordered_json::array();
    for (const auto& [name, shapes] : expected_weights(config))
      if (!checkpoint.has(name)) out["missing_components"].push_back(name);
    // A file of one network is all that it claims to be; a whole model is not usable without one of them.
    usable = usable && (checkpoint.kind() == CheckpointKind::ComponentFile || out["missing_components"].empty());
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Model) throw;
    out["problem"] = e.what();
    usable = false;
  }
  out["usable"] = usable;
  return out;
}

void print_names(const ordered_json& from, const char* key, size_t limit) {
  if (!from.contains(key) || from[key].empty()) return;
  std::cout << "    " << key << ": " << from[key].size() << "\n";
  size_t printed = 0;
  for (const auto& name : from[key]) {
    if (printed++ == limit) {
      std::cout << "      ..\n";
      break;
    }
    std::cout << "      " << shown(name.is_string() ? name.get<std::string>() : name.dump()) << "\n";
  }
}

void print_text(const ordered_json& all, size_t limit) {
  for (const char* key : {"model", "kind", "architecture", "tokenizer"})
    if (all.contains(key) && !all[key].get<std::string>().empty())
      std::cout << key << ": " << escaped(all[key].get<std::string>()) << "\n";
  if (all.contains("components"))
    for (const auto& [name, c] : all["components"].items()) {
      std::cout << "  " << name << ": " << c["tensors"].size() << " tensors, " << c["parameters"].get<int64_t>()
                << " parameters";
      if (c.contains("bytes")) std::cout << ", " << bytes_text(static_cast<double>(c["bytes"].get<int64_t>()));
      if (c.contains("dtypes"))
        for (const auto& [dtype, count] : c["dtypes"].items()) std::cout << ", " << count << " in " << dtype;
      std::cout << "\n";
      for (const char* key : {"missing", "wrong_shape", "unexpected", "unsupported", "ignored"})
        print_names(c, key, limit);
    }
  if (all.contains("tokenizer") && all["tokenizer"].get<std::string>().empty())
    std::cout
        << "  no tokenizer of its own: CLIP's is used if its vocabulary is CLIP's, else a folder tokenizer/ beside the "
           "components is needed\n";
  for (const char* key : {"missing_components", "unexpected", "ignored"}) print_names(all, key, limit);
  if (all.contains("problem")) std::cout << "problem: " << all["problem"].get<std::string>() << "\n";
  std::cout << (all["usable"].get<bool>() ? "usable" : "not usable") << "\n";
}

int run(const std::string& spec, size_t limit, const Common& common) {
  const bool random = spec.starts_with("random:");
  const ordered_json all = random ? inspect_random(spec.substr(7))
                                  : inspect_checkpoint(spec.empty() ? default_model_folder() : find_model(spec));
  if (common.json)
    std::cout << json_text(all, 2) << "\n";
  else
    print_text(all, limit);
  return all["usable"].get<bool>() ? 0 : static_cast<int>(ErrorKind::Model);
}

Action declare_inspect(CLI::App& app, const Common& common) {
  struct Flags {
    std::string model;
    size_t limit = 8;
  };
  const auto flags = std::make_shared<Flags>();
  offer(app.add_option("MODEL,-m,--model", flags->model,
                       "folder, .safetensors file or random:NAME (default: the embedded model)"),
        random_models(), Beside::Files);
  app.add_option("--names", flags->limit, "names shown of each list")->transform(whole_number())->capture_default_str();
  return [flags, &common] { return run(flags->model, flags->limit, common); };
}

const RegisterVerb kInspect{
    {"inspect", "list a model's components, types, missing and unexpected names", declare_inspect}};

}  // namespace
}  // namespace tenon::cli
