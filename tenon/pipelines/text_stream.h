// Turns tokens that arrive one by one into text, ending where a stop string begins.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/io/byte_level_tokenizer.h"

namespace tenon {

/// Emits whole characters and never a part of a stop string; all output together is the text before the first stop
/// string. Of stop strings that end with the same token, the one that begins first counts. Control tokens have no text:
/// one that is a stop string itself ends the text, and no stop string is found across any other.
class TextStream {
 public:
  /// Empty stop strings are ignored.
  TextStream(ByteLevelTokenizer tokenizer, std::vector<std::string> stops);

  /// The text that is final now. After a stop string was found it is always empty.
  std::string push(int32_t id);
  /// The text still held back.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::string release(std::string_view more);

  ByteLevelTokenizer tokenizer_;
  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::vector<int32_t> stop_ids_;
  std::string held_;  // may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace tenon
