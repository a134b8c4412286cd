// Finds the known name that a misspelled one was probably meant to be.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace tenon {

/// The fewest insertions, deletions, substitutions and swaps of neighbouring letters that turn `a` into `b` (the
/// restricted Damerau-Levenshtein distance). ASCII letters are compared without case.
int edit_distance(std::string_view a, std::string_view b);

/// The name in `known` nearest to `word`, with at most one edit per three letters of `word`; the first of equally near
/// ones. Otherwise the name that begins with `word` (three letters or more) and is a prefix of all others that do.
/// Empty if there is none.
std::string closest(std::string_view word, std::span<const std::string> known);

/// closest() as the hint of an Error: "did you mean 'euler'?", or `otherwise` if there is no near name.
std::string did_you_mean(std::string_view word, std::span<const std::string> known, std::string otherwise = {});

}  // namespace tenon
