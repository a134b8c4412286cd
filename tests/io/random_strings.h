// Strings that a fixture's script and a test generate identically.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "tenon/core/utf8.h"
#include "tenon/io/random.h"

namespace io_test {

/// The recipe of tools/fixtures/random_text.py: the same draws from the same generator make the same strings.
class RandomStrings {
 public:
  /// `recipe`: "seed" and "pools", each a list of strings or the first and last code point of a range.
  explicit RandomStrings(const nlohmann::json& recipe)
      : generator_(recipe["seed"].get<uint64_t>()), pools_(recipe["pools"]) {}
  std::string next() {
    std::string text;
    for (uint32_t pieces = 1 + draw(12); pieces > 0; --pieces) {
      const nlohmann::json& pool = pools_[draw(pools_.size())];
      for (uint32_t n = 1 + draw(6); n > 0; --n) {
        if (pool[0].is_string())
          text += pool[draw(pool.size())].get<std::string>();
        else
          tenon::append_utf8(text, pool[0].get<uint32_t>() + draw(pool[1].get<size_t>() - pool[0].get<size_t>() + 1));
      }
    }
    return text;
  }
  uint32_t draw(size_t n) { return generator_.next() % static_cast<uint32_t>(n); }

 private:
  tenon::TorchGenerator generator_;
  nlohmann::json pools_;
};

}  // namespace io_test
