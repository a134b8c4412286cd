// Flags that name LoRAs, and log messages about those that were read.
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
  /// Folder of LoRAs named in prompts: --lora-dir, else TENON_LORA_DIR, else the working directory.
  std::filesystem::path lora_folder() const;
  /// Sets the folder, the way of applying, and the rank.
  void set(PipelineOptions& options) const;
  /// The LoRAs of --lora: FILE or FILE:WEIGHT, in the working directory or in lora_folder(), with or without
  /// ".safetensors". Error(Usage) for a weight that is not a finite number.
  std::vector<LoraUse> uses() const;
  /// Reads the request's LoRAs, and logs what was used of each. Error(Model) as ImageGenerator::load_lora.
  void load(ImageGenerator& model, ImageRequest& request) const;
};

}  // namespace tenon::cli
