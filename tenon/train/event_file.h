// An event file as TensorBoard reads it: records framed as TFRecord (length and CRC-32C in front, CRC-32C behind) of
// tensorboard.Event messages, of which only scalars are made here.
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
    std::string tag;  ///< "train/loss": what stands in front of "/" is a section of the page
    float value = 0;
  };

  /// A new file "events.out.tfevents.<time>.<host>.<process>" in a folder, whose reader is told that values of other
  /// files from step `first` on are void. Error(Internal) if it cannot be made.
  EventFile(const std::filesystem::path& folder, int64_t first);
  /// Adds the values of a step, on disk for a reader when this returns. Error(Internal) if the system cannot write.
  void add(int64_t step, const std::vector<Scalar>& scalars);

 private:
  void record(const std::string& bytes);

  std::filesystem::path path_;
  std::ofstream file_;
};

/// CRC-32C (Castagnoli, reflected 0x82f63b78) of bytes, RFC 3720 appendix B.4.
uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace tenon::train
