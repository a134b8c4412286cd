// Which of some known names a misspelled one was meant to be.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace tenon {

/// Insertions, deletions, substitutions and swaps of neighbouring letters that turn `a` into `b`, at least (the
/// Damerau-Levenshtein distance in its restricted form). Upper and lower case ASCII letters count as equal.
int edit_distance(std::string_view a, std::string_view b);

/// The name of `known` nearest to `word`: at most one edit for every three letters of `word`, the first of several
/// equally near; or else the name that begins with `word` (three letters or more) and that all others which do begin
/// with too. Empty if there is none.
std::string closest(std::string_view word, std::span<const std::string> known);

/// closest() as the hint of an Error: "did you mean 'euler'?", or `otherwise` where nothing is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> known, std::string otherwise = {});

}  // namespace tenon
