// The text half of CLIP's tokenizer: normalisation and word splitting. (The other half is byte-pair encoding, bpe.h.)
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tenon {

/// Normalises to NFC, replaces runs of white space (Unicode White_Space) by one blank and lower-cases each code point.
/// `text` must be well-formed UTF-8. Error(Usage) for more than 256 combining marks in a row.
std::string clip_normal_form(std::string_view text);

/// Splits normalised text into words. Immutable; safe to share between threads.
class ClipWords {
 public:
  ClipWords();
  ClipWords(ClipWords&&) noexcept;
  ClipWords& operator=(ClipWords&&) noexcept;
  ~ClipWords();
  /// Calls f with each word of `text` in order; white space between words is dropped.
  void each(std::string_view text, const std::function<void(std::string_view)>& f) const;

 private:
  struct Pattern;
  std::unique_ptr<const Pattern> pattern_;
};

}  // namespace tenon
