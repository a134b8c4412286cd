#include "apps/cli/lora_flags.h"
#include "apps/cli/verb.h"

#include <algorithm>
#include <optional>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/options.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/prompt_loras.h"
#include "tenon/pipelines/lora_set.h"

namespace tenon::cli {
namespace {
namespace fs = std::filesystem;

constexpr size_t kNamesShown = 3;

std::optional<fs::path> find_file(const std::string& name, const fs::path& folder) {
  for (const fs::path& in : {fs::path(), folder})
    if (fs::path file = lora_file(in, name); file_exists(file)) return file;
  return std::nullopt;
}

LoraUse parse_use(const std::string& text, const fs::path& folder) {
  const size_t colon = text.rfind(':');
  std::optional<fs::path> file = find_file(text, folder);
  const auto there = [&](const std::string& name) {
    if (!file)
      for (const fs::path& place : {fs::path(name), folder / name}) check_is_no_folder(place);
    const fs::path other = lora_file(folder, name);
    TENON_CHECK(Model, file.has_value(), name)
        << "there is no such file" << (other == fs::path(name) ? "" : ", nor " + other.string());
    return *file;
  };
  if (file || colon == text.npos || colon == 0) return {.file = there(text)};
  const std::optional<double> weight = lora_weight(std::string_view(text).substr(colon + 1));
  TENON_CHECK(Usage, weight, "--lora") << "expected FILE or FILE:WEIGHT, got '" << shown(text) << "'";
  const std::string name = text.substr(0, colon);
  check_lora_weight(name, *weight);  // before looking for a file
  file = find_file(name, folder);
  return {.file = there(name), .weight = *weight};
}

std::string first_names(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) out += (i ? ", " : "") + shown(names[i]);
  return names.size() > kNamesShown ? out + ", .." : out;
}

}  // namespace

void LoraFlags::declare(CLI::App& app) {
  app.add_option("--lora", files,
                 "LoRA to apply, FILE or FILE:WEIGHT (weight 1 by default), or the folder that train lora wrote; may "
                 "be repeated; in prompts: <lora:FILE:WEIGHT>")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--lora-dir,--lora-model-dir", folder,
                 "folder to look for LoRAs in (default: TENON_LORA_DIR, else the working directory)");
  only(app.add_option("--lora-apply", apply,
                      "merge: add LoRAs to the weights; side: compute them beside linear layers, so that changing one "
                      "copies little"),
       {"merge", "side"})
      ->capture_default_str();
  app.add_option("--lora-rank", rank, "largest sum of the LoRAs' ranks, for --lora-apply side")
      ->transform(whole_number())
      ->capture_default_str();
  app.add_flag("--lora-partial", partial, "skip tensors of a LoRA that have no place in the model, instead of failing");
}

fs::path LoraFlags::lora_folder() const { return folder.empty() ? option(Option::LoraDir) : folder; }

void LoraFlags::set(PipelineOptions& options) const {
  options.lora_folder = lora_folder();
  options.lora_apply = apply == "side" ? LoraApply::Side : LoraApply::Merge;
  options.lora_rank = rank;
}

std::vector<LoraUse> LoraFlags::uses() const {
  std::vector<LoraUse> out;
  for (const std::string& text : files) out.push_back(parse_use(text, lora_folder()));
  return out;
}

void LoraFlags::load(ImageGenerator& model, ImageRequest& request) const {
  for (LoraUse& use : request.loras) {
    use.partial = partial;
    const LoraReport report = model.load_lora(use);
    spdlog::info("{}: {}, weight {}", escaped(use.file.native()), report.str(), use.weight);
    if (!report.redundant.empty())
      spdlog::info("{}: skipped {} that would change nothing: {}", escaped(use.file.native()),
                   counted(std::ssize(report.redundant), "tensor"), first_names(report.redundant));
    if (!report.unmatched.empty())
      spdlog::warn("{}: skipped {} without a place in the model: {}", escaped(use.file.native()),
                   counted(std::ssize(report.unmatched), "tensor"), first_names(report.unmatched));
  }
}

}  // namespace tenon::cli
