#include "tenon/train/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>

#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"

namespace tenon::train {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> out{};
  for (uint32_t i = 0; i < out.size(); ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0x82f63b78U : 0);
    out[i] = c;
  }
  return out;
}

// Rotated and shifted as TFRecord does, because the CRC of data that contains a CRC is a poor check.
uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8U;
}

template <class T>
std::string little_endian(T value) {
  std::string out;
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

// Fields of a protocol buffer: a tag (number and wire type) followed by the value.
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  return out += static_cast<char>(value);
}
enum class Wire : uint8_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };
std::string field(uint64_t number, Wire wire, std::string_view value) {
  std::string out = varint(number << 3 | static_cast<uint64_t>(wire));
  if (wire == Wire::Bytes) out += varint(value.size());
  return out += value;
}

// tensorboard.Event: wall_time = 1, step = 2, and one of file_version = 3, summary = 5, session_log = 7.
std::string event(int64_t step, uint64_t number, std::string_view what) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return field(1, Wire::Fixed64, little_endian(std::bit_cast<uint64_t>(now))) +
         field(2, Wire::Varint, varint(static_cast<uint64_t>(step))) + field(number, Wire::Bytes, what);
}

std::string host_name() {
  std::array<char, 256> out{};
  return gethostname(out.data(), out.size() - 1) == 0 ? out.data() : "localhost";
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t c = ~0U;
  for (const std::byte b : bytes) c = c >> 8 ^ kTable[(c ^ static_cast<uint32_t>(b)) & 0xff];
  return ~c;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  path_ = folder / ("events.out.tfevents." + std::to_string(seconds.count()) + "." + host_name() + "." +
                    std::to_string(getpid()));
  file_.open(path_, std::ios::binary | std::ios::app);
  TENON_CHECK(Internal, file_.good(), path_.string()) << "cannot be written: " << system_reason(errno);
  constexpr uint64_t kFileVersion = 3, kSessionLog = 7, kStatus = 1, kStart = 1;
  record(event(0, kFileVersion, "brain.Event:2"));
  record(event(first, kSessionLog, field(kStatus, Wire::Varint, varint(kStart))));
}

void EventFile::add(int64_t step, const std::vector<Scalar>& scalars) {
  constexpr uint64_t kSummary = 5, kValue = 1, kTag = 1, kSimpleValue = 2;
  std::string summary;
  for (const Scalar& s : scalars)
    summary += field(kValue, Wire::Bytes,
                     field(kTag, Wire::Bytes, s.tag) +
                         field(kSimpleValue, Wire::Fixed32, little_endian(std::bit_cast<uint32_t>(s.value))));
  record(event(step, kSummary, summary));
}

void EventFile::record(const std::string& bytes) {
  const std::string length = little_endian(static_cast<uint64_t>(bytes.size()));
  file_ << length << little_endian(masked_crc(length)) << bytes << little_endian(masked_crc(bytes));
  TENON_CHECK(Internal, file_.flush().good(), path_.string()) << "cannot be written: " << system_reason(errno);
}

}  // namespace tenon::train
