#include "tenon/pipelines/lora_set.h"

#include <algorithm>
#include <cmath>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/prompt_loras.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxSideRank = 4096;
constexpr const char* kMergeHint = "merge it into the weights (--lora-apply merge)";

// Maps all spellings of a file's path to one.
fs::path place_of(const fs::path& file) {
  std::error_code failed;
  const fs::path place = fs::weakly_canonical(file, failed);
  return failed ? file : place;
}

}  // namespace

void check_lora_weight(const std::string& where, double weight) {
  TENON_CHECK(Usage, std::abs(weight) <= kMaxLoraWeight, where)
      << "a LoRA's weight must be a number from " << -kMaxLoraWeight << " to " << kMaxLoraWeight << ", got "
      << number_text(weight);
}

LoraSet::LoraSet(std::function<LoraNames()> names, const PipelineOptions& options)
    : make_names_(std::move(names)),
      side_rank_(options.lora_apply == LoraApply::Side ? options.lora_rank : 0),
      terms_(std::make_shared<LoraTerms>()) {
  TENON_CHECK(Usage, options.lora_rank >= 1 && options.lora_rank <= kMaxSideRank, "rank of LoRAs")
      << options.lora_rank << " is outside 1.." << kMaxSideRank;
}

const LoraNames& LoraSet::names() {
  if (!names_) names_ = std::make_unique<LoraNames>(make_names_());
  return *names_;
}

nn::SideBranches LoraSet::branches() {
  if (!side_rank_) return {};
  if (!matrices_) {
    std::set<std::string> all;
    for (const auto& [component, weights] : names().matrices())
      for (const auto& [name, shape] : weights) all.insert(name);
    matrices_ = std::make_shared<const std::set<std::string>>(std::move(all));
  }
  return {side_rank_, matrices_};
}

LoraReport LoraSet::load(const LoraUse& use) {
  const LoraRest rest = use.partial ? LoraRest::LeftOut : LoraRest::Refused;
  Loaded read{read_lora(use.file, names(), rest), rest, sha256_file(use.file),
              sha256_hex(SafetensorsFile::open(use.file).data())};
  LoraTerms alone;
  if (use.weight != 0) add_terms(read.lora, use.weight, alone);
  return (loaded_[use.file] = std::move(read)).lora.report;
}

const LoraSet::Loaded& LoraSet::loaded(const LoraUse& use) {
  const auto it = loaded_.find(use.file);
  const bool enough = it != loaded_.end() && (use.partial || it->second.rest == LoraRest::Refused);
  if (!enough) load(use);
  return loaded_.at(use.file);
}

void LoraSet::check_side(const std::string& file, const std::string& tensor, const std::vector<LoraTerm>& terms) {
  if (terms.back().matrix->rank == 0)
    throw Error(ErrorKind::Usage, file,
                "changes '" + tensor + "' by a Kronecker product, which cannot be applied as a side branch",
                kMergeHint);
  if (!branches().weights->contains(tensor))
    throw Error(ErrorKind::Usage, file, "changes the filter '" + tensor + "', which cannot be applied as a side branch",
                kMergeHint);
  int64_t rank = 0;
  for (const LoraTerm& t : terms) rank += t.matrix->rank;
  TENON_CHECK(Usage, rank <= side_rank_, file)
      << "needs a rank of " << rank << " at '" << tensor << "'"
      << (rank > terms.back().matrix->rank ? " together with the LoRAs before it" : "")
      << ", but side branches have rank " << side_rank_ << "; raise --lora-rank (in Python lora_rank)";
}

void LoraSet::add_terms(const Lora& lora, double weight, LoraTerms& to) {
  for (const auto& [component, tensors] : lora.changes)
    for (const auto& [tensor, change] : tensors) {
      std::vector<LoraTerm>& terms = to[component][tensor];
      terms.push_back({change.matrix, change.target.first_row, weight});
      if (side_rank_) check_side(lora.file, tensor, terms);
    }
}

std::map<std::string, std::set<std::string>> LoraSet::apply(std::vector<LoraUse>& uses) {
  LoraTerms now;
  std::set<fs::path> seen;
  for (LoraUse& use : uses) {
    check_lora_weight(use.file.string(), use.weight);
    TENON_CHECK(Usage, seen.insert(place_of(use.file)).second, use.file.string()) << "the LoRA is named twice";
    const Loaded& l = loaded(use);
    use.sha256 = l.sha256;
    use.data_sha256 = l.data_sha256;
    if (use.weight != 0) add_terms(l.lora, use.weight, now);
  }
  std::map<std::string, std::set<std::string>> changed;
  const auto compare = [&](const LoraTerms& these, const LoraTerms& those) {
    for (const auto& [component, tensors] : these)
      for (const auto& [tensor, terms] : tensors) {
        const auto other = those.find(component);
        if (other != those.end() && other->second.contains(tensor) && other->second.at(tensor) == terms) continue;
        if (side_rank_)
          changed[component].insert({nn::side_down(tensor), nn::side_up(tensor)});
        else
          changed[component].insert(tensor);
      }
  };
  compare(now, *terms_);
  compare(*terms_, now);
  *terms_ = std::move(now);
  return changed;
}

std::unique_ptr<WeightSource> LoraSet::over(const std::string& component, std::unique_ptr<WeightSource> base) {
  if (!side_rank_) return merged_loras(component, std::move(base), terms_);
  return side_loras(component, std::move(base), terms_, side_rank_, names().matrices()[component]);
}

constexpr const char* kSuffix = ".safetensors";

fs::path lora_file(const fs::path& folder, const std::string& name) {
  const fs::path plain = folder / name;
  fs::path file = plain;
  const bool whole = file.extension() == kSuffix || (file_exists(file) && !folder_exists(file));
  if (!whole) file += kSuffix;
  if (!folder_exists(plain) || (file_exists(file) && !folder_exists(file))) return file;
  const auto* const held = std::ranges::find_if(kLoraFiles, [&](const char* f) { return file_exists(plain / f); });
  return held == kLoraFiles.end() ? file : plain / *held;
}

void check_is_no_folder(const fs::path& place) {
  TENON_CHECK(Model, !folder_exists(place), place.string())
      << "is a folder, expected a LoRA file; there is no " << kLoraFiles[0] << " or " << kLoraFiles[1]
      << " in it, and no " << lora_file({}, place.string()).string() << " either";
}

std::string lora_name(const fs::path& file) {
  if (std::ranges::find(kLoraFiles, file.filename().native()) != kLoraFiles.end()) {
    std::error_code failed;
    const fs::path folder = fs::absolute(file, failed).lexically_normal().parent_path().filename();
    if (!failed && !folder.empty()) return as_utf8(folder.native());
  }
  return as_utf8(file.stem().native());
}

void take_prompt_loras(ImageRequest& request, const fs::path& folder) {
  for (const PromptLora& lora : take_loras(request.prompt, "prompt")) {
    check_lora_weight("<lora:" + lora.name + ">", lora.weight);
    const fs::path file = lora_file(folder, lora.name);
    const bool found = file_exists(file);
    if (!found) check_is_no_folder(folder / lora.name);
    TENON_CHECK(Model, found, "<lora:" + lora.name + ">")
        << "there is no " << (folder / lora.name).string()
        << (file == folder / lora.name ? "" : ", nor " + file.string());
    const bool known =
        std::ranges::any_of(request.loras, [&](const LoraUse& use) { return place_of(use.file) == place_of(file); });
    TENON_CHECK(Usage, !known, "<lora:" + lora.name + ">") << "the LoRA is named twice";
    request.loras.push_back({.file = file, .weight = lora.weight});
  }
}

}  // namespace tenon
