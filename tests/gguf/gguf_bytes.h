// Hand-made GGUF files, valid and invalid.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/io/gguf.h"

namespace gguf_test {

/// Appends the parts of a file one after the other; the header's claims are given separately.
class GgufBytes {
 public:
  template <class T>
  GgufBytes& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& text(std::string_view value) {
    number<uint64_t>(value.size());
    bytes_ += value;
    return *this;
  }
  GgufBytes& raw(std::string_view value) {
    bytes_ += value;
    return *this;
  }
  GgufBytes& header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    return raw("GGUF").number(version).number(tensors).number(keys);
  }
  GgufBytes& key(std::string_view name, tenon::GgufType type) { return text(name).number(static_cast<uint32_t>(type)); }
  GgufBytes& string_key(std::string_view name, std::string_view value) {
    return key(name, tenon::GgufType::String).text(value);
  }
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& innermost_first, uint32_t type,
                    uint64_t offset) {
    text(name).number(static_cast<uint32_t>(innermost_first.size()));
    for (const uint64_t extent : innermost_first) number(extent);
    return number(type).number(offset);
  }
  /// Zeros up to a multiple of `alignment`, then so many bytes of data.
  GgufBytes& data(size_t size, size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    bytes_.resize(bytes_.size() + size, '\x01');
    return *this;
  }
  const std::string& bytes() const { return bytes_; }
  /// Valid as long as this object.
  tenon::GgufFile read() const { return tenon::GgufFile::from_bytes(std::as_bytes(std::span(bytes_)), "test.gguf"); }

 private:
  std::string bytes_;
};

}  // namespace gguf_test
