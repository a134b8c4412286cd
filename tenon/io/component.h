// One network of a checkpoint: its tensors by name, and their metadata. No tensor is copied.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/io/gguf_checkpoint.h"
#include "tenon/io/safetensors.h"

namespace tenon {

/// A network of a pipeline with its tensors and configuration.
struct Component {
  std::string name;                           ///< "unet", "vae", ..
  std::map<std::string, TensorView> tensors;  ///< by the names that the network reads
  std::map<std::string, GgufSlice> blocks;    ///< used instead of `tensors` if the file is a GGUF
  /// Factors for the elements of a tensor in `tensors`: one number, or one per row.
  std::map<std::string, TensorView> scales;
  std::vector<std::string> ignored;  ///< names of tensors that hold no weights (position_ids, ...), as stored
  std::map<std::string, UnsupportedTensor> unsupported;  ///< tensors of element types that cannot be read
  nlohmann::json config;                                 ///< config.json; null if there is none (single files)
  std::vector<std::filesystem::path> files;

  /// Where `config` is from, for messages.
  std::string config_file() const { return (files.front().parent_path() / "config.json").string(); }
  /// The tensor of that name. Error(Model) names the component, and the element type if that is why it is not there.
  const TensorView& at(const std::string& tensor) const;
  /// Error(Model), as `at` throws it, if there is a tensor of an unsupported element type.
  void require_readable() const;
  std::map<std::string, Shape> shapes() const;
  /// Gives tensors the shapes in `wanted` where they differ only in extents of 1: linear layers stored as 1x1
  /// convolutions, a single row stored as a vector.
  void reshape(const std::map<std::string, Shape>& wanted);
  /// Number of elements of all tensors, and their size in bytes.
  int64_t parameters() const;
  int64_t bytes() const;
  /// Number of tensors of each element type, by the type's name.
  std::map<std::string, int64_t> types() const;
};

}  // namespace tenon
