// tenon env: prints resolved settings, for bug reports and scripts.
#include <cstdio>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/folders.h"
#include "apps/cli/onednn.h"
#include "apps/cli/verb.h"
#include "apps/cli/version.h"
#include "tenon/core/error.h"
#include "tenon/core/options.h"
#include "tenon/core/text.h"
#include "tenon/io/json.h"

namespace tenon::cli {
namespace {
using nlohmann::ordered_json;

ordered_json devices(const Common& common) {
  ordered_json list = ordered_json::array();
  for (const std::string& name : backend_names()) {
    ordered_json& entry = list.emplace_back(ordered_json{{"name", name}});
    try {
      const auto backend = make_backend(name, common.backend_options());
      entry["description"] = backend->describe();
      entry["memory_available"] = backend->memory_available();
      entry["default_dtype"] = name_of(backend->types().front());
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;
      entry["unavailable"] = e.what();
    }
    for (const BackendFact& fact : probe_backend(name)) {
      entry["needs"][fact.name]["found"] = fact.value;
      if (!fact.hint.empty()) entry["needs"][fact.name]["install"] = fact.hint;
    }
  }
  return list;
}

ordered_json environment(const Common& common) {
  for (const Option id : {Option::NoFusion, Option::NoFold, Option::CudaTune}) is_on(id);  // refuses other values
  is_batch_invariant("");
  const onednn::Found& yardstick = onednn::find();
  ordered_json out{{"version", version()},
                   {"commit", commit()},
                   {"compiler", compiler()},
                   {"build_type", build_type()},
                   {"onednn", yardstick.api ? yardstick.api->version_text : "not found: " + yardstick.problem},
                   {"machine", machine()},
                   {"date", today()},
                   {"default_model", default_model_text()},
                   {"cache_folder", cache_folder().string()},
                   {"device", common.device_name()},
                   {"threads", common.thread_count()},
                   {"devices", devices(common)}};
  for (const OptionInfo& info : all_options()) out["options"][info.variable] = option(info.id);
  return out;
}

using Line = std::function<void(const std::string& key, const std::string& value)>;

// Prints a device, what it needs from the machine, and how to install what is missing.
void print_device(const ordered_json& device, const Line& line) {
  const std::string name = device["name"];
  std::string about;
  if (device.contains("unavailable")) {
    about = "unavailable: ";
    about += device["unavailable"];
  } else {
    about = device["description"];
    about += ", " + std::to_string(device["memory_available"].get<int64_t>() >> 20) + " MiB available, ";
    about += device["default_dtype"];
  }
  line("device " + name, about);
  if (!device.contains("needs")) return;
  for (const auto& [need, fact] : device["needs"].items()) {
    line("  " + need, fact["found"]);
    if (fact.contains("install")) line("    install", fact["install"]);
  }
}

void print_env(const ordered_json& env) {
  const auto line = [](const std::string& key, const std::string& value) {
    std::cout << key << std::string(key.size() < 20 ? 20 - key.size() : 1, ' ')
              << (value.empty() ? "-" : escaped(value)) << "\n";
  };
  for (const auto& [key, value] : env.items())
    if (value.is_string() || value.is_number()) line(key, value.is_string() ? value.get<std::string>() : value.dump());
  for (const auto& device : env["devices"]) print_device(device, line);
  for (const auto& [key, value] : env["options"].items()) line(key, value.get<std::string>());
}

std::string variables_help() {
  constexpr size_t kColumn = 24;
  std::string text = "Environment variables (a flag overrides its variable):";
  for (const OptionInfo& info : all_options()) {
    const std::string name = info.variable;
    text += "\n  " + name + std::string(name.size() < kColumn ? kColumn - name.size() : 1, ' ') + info.doc;
  }
  return text;
}

const RegisterVerb kEnv{
    {"env", "print versions, devices and the resolved settings", [](CLI::App& app, const Common& common) {
       app.footer(variables_help());
       return [&common] {
         const ordered_json env = environment(common);
         if (common.json)
           std::cout << json_text(env, 2) << "\n";
         else
           print_env(env);
         return 0;
       };
     }}};

}  // namespace
}  // namespace tenon::cli
