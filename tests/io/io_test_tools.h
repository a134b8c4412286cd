// Shared by the file tests: a folder that removes itself, errors as values, hand-made safetensors files.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/io/safetensors.h"

namespace io_test {
namespace fs = std::filesystem;

class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "tenon-io-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  size_t entries() const { return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {})); }

 private:
  fs::path path_;
};

inline fs::path fixture(const std::string& name) { return fs::path(TENON_SOURCE_DIR) / "tests/fixtures" / name; }

inline void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// The Error thrown by `f`; a test failure if it throws none.
inline tenon::Error error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const tenon::Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error was thrown";
  return tenon::Error(tenon::ErrorKind::Internal, "", "");
}

/// Expects an Error of `kind` whose text contains `part`.
inline void expect_error(tenon::ErrorKind kind, const std::string& part, const std::function<void()>& f) {
  const tenon::Error e = error_of(f);
  EXPECT_EQ(e.kind(), kind) << e.what();
  EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << "'" << e.what() << "' lacks '" << part << "'";
}

/// A safetensors file's bytes from its header and the size of its data (filled with 0, 1, 2, ...).
inline std::string safetensors_bytes(const std::string& header, size_t data_size,
                                     std::optional<uint64_t> claimed_length = {}) {
  const uint64_t length = claimed_length.value_or(header.size());
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i));
  out += header;
  for (size_t i = 0; i < data_size; ++i) out += static_cast<char>(i);
  return out;
}

/// Tensors by name and shape, F32, each filled with its position in the list.
struct NamedShape {
  std::string name;
  tenon::Shape shape;
};
inline void write_f32(const fs::path& path, const std::vector<NamedShape>& tensors) {
  fs::create_directories(path.parent_path());
  std::vector<std::vector<float>> values;
  std::vector<tenon::TensorData> data;
  for (const NamedShape& t : tensors)
    values.emplace_back(static_cast<size_t>(t.shape.numel()), static_cast<float>(values.size()));
  for (size_t i = 0; i < tensors.size(); ++i)
    data.push_back({tensors[i].name, tenon::DType::F32, tensors[i].shape, std::as_bytes(std::span(values[i]))});
  tenon::write_safetensors(path, data);
}

inline float first_value(const tenon::TensorView& view) {
  return static_cast<float>(tenon::load_element(view.dtype, view.data, 0));
}

/// 64-bit FNV-1a over bytes and 32-bit words, little endian, as tools/fixtures/hashing.py computes it.
class Fnv {
 public:
  void add(uint32_t word) {
    for (int i = 0; i < 4; ++i) add_byte((word >> (8 * i)) & 255u);
  }
  void add_byte(uint32_t byte) { state_ = (state_ ^ byte) * 0x100000001b3u; }
  std::string hex() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(state_));
    return text;
  }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

inline std::string fnv_of(std::string_view bytes) {
  Fnv hash;
  for (const char c : bytes) hash.add_byte(static_cast<unsigned char>(c));
  return hash.hex();
}

}  // namespace io_test
