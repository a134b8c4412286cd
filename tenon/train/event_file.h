// Writes event files for TensorBoard: tensorboard.Event messages (only scalars) framed as TFRecord (length and its
// CRC-32C before, CRC-32C of the data after).
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::train {

class EventFile {
 public:
  struct Scalar {
    std::string tag;  ///< "train/loss": the part before "/" is a section of the page
    float value = 0;
  };

  /// Creates "events.out.tfevents.<time>.<host>.<process>" in a folder. It tells the reader to discard values of other
  /// files from step `first` on. Error(Internal) if it cannot be created.
  EventFile(const std::filesystem::path& folder, int64_t first);
  /// Adds the values of a step; a reader of the file sees them on return. Error(Internal) if the system cannot write.
  void add(int64_t step, const std::vector<Scalar>& scalars);

 private:
  void record(const std::string& bytes);

  std::filesystem::path path_;
  std::ofstream file_;
};

/// CRC-32C (Castagnoli, reflected 0x82f63b78) of bytes, RFC 3720 appendix B.4.
uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace tenon::train
