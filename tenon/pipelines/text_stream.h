// Text of tokens that come one by one, cut where a stop string begins.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tenon/io/byte_level_tokenizer.h"

namespace tenon {

/// What it gives out is whole characters, never a part of a stop string, and together the text in front of the first
/// one: of strings that end with the same token the one that begins first.
class TextStream {
 public:
  /// Control tokens have no text. Empty stop strings are left out.
  TextStream(ByteLevelTokenizer tokenizer, std::vector<std::string> stops);

  /// The text that is certain now. After a stop string was found, nothing comes any more.
  std::string push(int32_t id);
  /// What was held back.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::string release(std::string_view more);

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;  // may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace tenon
