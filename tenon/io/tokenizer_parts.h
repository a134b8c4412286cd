// The parts of a byte-level tokenizer.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tenon/io/added_tokens.h"
#include "tenon/io/bpe_files.h"
#include "tenon/io/pre_tokenizer.h"

namespace tenon {

/// Everything that a tokenizer is built from, whichever file it came from.
struct TokenizerParts {
  TokenIds tokens;
  MergeList merges;
  std::vector<AddedToken> added;
  PreTokenizer pre_tokenizer{WordPattern::Gpt2};
  bool nfc = false;                          ///< text is normalised to NFC
  bool whole_words = false;                  ///< a word that is a token is used without merging bytes ("ignore_merges")
  std::optional<int32_t> unknown;            ///< id of a byte without a token; without this id such bytes are left out
  std::vector<int32_t> prefix;               ///< ids to put before every text, for models that want them (Llama 3)
  std::optional<int32_t> bos, eos, pad;      ///< as the file names them
  std::map<std::string, std::string> named;  ///< texts of tokens by role ("eos_token"), for templates
  std::optional<std::string> chat_template;
};

}  // namespace tenon
