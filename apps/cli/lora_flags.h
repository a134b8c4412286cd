// Flags that name LoRAs, and what is said of those that were read.
#pragma once
#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tenon/pipelines/image_generator.h"

namespace tenon::cli {

struct LoraFlags {
  std::vector<std::string> files;
  std::string folder, apply = "merge";
  int64_t rank = 32;
  bool partial = false;

  /// --lora, --lora-dir, --lora-apply, --lora-rank, --lora-partial.
  void declare(CLI::App& app);
  /// Of LoRAs that prompts name: --lora-dir, else TENON_LORA_DIR, else the working directory.
  std::filesystem::path lora_folder() const;
  /// Folder, way and rank.
  void set(PipelineOptions& options) const;
  /// What --lora names: FILE or FILE:WEIGHT, in the working directory or in lora_folder(), with or without
  /// ".safetensors". Error(Usage) for a weight that is no finite number.
  std::vector<LoraUse> uses() const;
  /// Reads the request's LoRAs, and logs what of each is of use. Error(Model) as ImageGenerator::load_lora.
  void load(ImageGenerator& model, ImageRequest& request) const;
};

}  // namespace tenon::cli
