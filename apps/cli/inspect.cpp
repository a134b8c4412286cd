// tenon inspect: lists the contents of a checkpoint, and how they differ from what its architecture needs.
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/verb.h"
#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/explain/explanation.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/pipelines/model_files.h"
#include "tenon/pipelines/model_parts.h"
#include "tenon/pipelines/model_report.h"

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
  for (const auto& [type, count] : c.types()) out["dtypes"][type] = count;
  for (const fs::path& file : c.files) out["files"].push_back(file.string());
  out["ignored"] = c.ignored;
  out["unsupported"] = ordered_json::array();
  for (const auto& [name, t] : c.unsupported) out["unsupported"].push_back({{"name", name}, {"dtype", t.dtype}});
  out["tensors"] = ordered_json::object();
  for (const auto& [name, t] : c.tensors)
    out["tensors"][name] = {{"dtype", name_of(t.dtype)},
                            {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.end())}};
  for (const auto& [name, t] : c.blocks)
    out["tensors"][name] = {{"dtype", name_of(t.tensor->type)},
                            {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.end())}};
  return out;
}

ordered_json tensors_json(const WeightShapes& shapes) {
  ordered_json out = ordered_json::object();
  for (const auto& [tensor, shape] : shapes)
    out[tensor] = {{"shape", std::vector<int64_t>(shape.begin(), shape.end())}};
  return out;
}

// A preset without a file: everything that its networks need.
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

ordered_json inspect_checkpoint(const fs::path& path) {
  const ModelFamily& family = family_of(path.string());
  TENON_CHECK(Model, family.inspect, path.string())
      << "is of the family '" << family.name << "', whose files cannot be inspected";
  const ModelReport report = family.inspect(path);
  ordered_json out{{"model", path.string()}, {"kind", report.kind}, {"architecture", report.architecture}};
  if (report.tokenizer) out["tokenizer"] = *report.tokenizer;
  for (const auto& [name, component] : report.components) out["components"][name] = component_json(component);
  for (const auto& [name, differences] : report.differences) out["components"][name].update(report_json(differences));
  out["unexpected"] = report.unexpected;
  out["ignored"] = report.ignored;
  out["missing_components"] = report.missing_components;
  out["notes"] = report.notes;
  if (!report.problem.empty()) out["problem"] = report.problem;
  out["usable"] = report.usable;
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
  if (all.contains("notes"))
    for (const auto& note : all["notes"]) std::cout << "  " << escaped(note.get<std::string>()) << "\n";
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
                       "model: a folder, a .safetensors or .gguf file, or random:NAME (default: the embedded model)"),
        model_names(ModelParts::kAbility), Beside::Files);
  app.add_option("--names", flags->limit, "maximum number of names to show of each list")
      ->transform(whole_number())
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40).description(""))
      ->capture_default_str();
  return [flags, &common] { return run(flags->model, flags->limit, common); };
}

const RegisterVerb kInspect{
    {"inspect", "list a model's components, types, and missing or unexpected weights", declare_inspect}};

}  // namespace
}  // namespace tenon::cli
