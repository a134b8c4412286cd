#include "tenon/train/sums.h"

#include <array>
#include <string_view>

#include "tenon/core/error.h"
#include "tenon/core/philox.h"
#include "tenon/core/text.h"

namespace tenon {
namespace {

constexpr std::array<std::string_view, 16> kNames{"Ann", "Ben",  "Cara", "Dan", "Eva", "Finn", "Gina", "Hal",
                                                  "Ida", "Jack", "Kim",  "Leo", "Mia", "Noah", "Ola",  "Paul"};
constexpr std::array<std::string_view, 16> kThings{"apples",  "balls",    "books",  "cards", "coins", "eggs",
                                                   "flowers", "marbles",  "nuts",   "pens",  "plums", "shells",
                                                   "stamps",  "stickers", "sweets", "toys"};

// Operations on the numbers a, b and c of a question.
enum class Sum : uint8_t { Plus, Minus, Times, PlusMinus, TimesPlus, TimesMinus, PlusTwice };

struct Question {
  Sum sum;
  std::string_view text;  // N and M are names, T is a thing, a b c are numbers; each is a word of its own
};
constexpr std::array<Question, 22> kQuestions{{
    {Sum::Plus, "N has a T and buys b. How many?"},
    {Sum::Plus, "N finds a T and then b more. How many?"},
    {Sum::Plus, "N has a T and M has b. How many together?"},
    {Sum::Plus, "There are a T in one box and b in another. How many?"},
    {Sum::Plus, "What is a + b?"},
    {Sum::Minus, "N has a T and gives b away. How many are left?"},
    {Sum::Minus, "N had a T and lost b. How many are left?"},
    {Sum::Minus, "N has a T and M has b. How many more has N?"},
    {Sum::Minus, "What is a - b?"},
    {Sum::Times, "N has a boxes of b T. How many?"},
    {Sum::Times, "N buys b T for each of a friends. How many?"},
    {Sum::Times, "What is a * b?"},
    {Sum::PlusMinus, "N has a T, buys b and loses c. How many are left?"},
    {Sum::PlusMinus, "N has a T and M has b. They give c away. How many are left?"},
    {Sum::PlusMinus, "What is a + b - c?"},
    {Sum::TimesPlus, "N has a boxes of b T and finds c more. How many?"},
    {Sum::TimesPlus, "M has c T. N has a bags of b. How many together?"},
    {Sum::TimesPlus, "What is a * b + c?"},
    {Sum::TimesMinus, "N buys a bags of b T and gives c to M. How many are left?"},
    {Sum::TimesMinus, "What is a * b - c?"},
    {Sum::PlusTwice, "N has a T. M has b more. How many together?"},
    {Sum::PlusTwice, "N found a T, and M found b more than N. How many together?"},
}};

// Random numbers determined by a seed and an index.
class Draws {
 public:
  Draws(uint64_t seed, int64_t index) : seed_(seed), index_(static_cast<uint64_t>(index)) {}
  // From low to high, both included.
  int between(int low, int high) {
    const uint64_t count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
    return low + static_cast<int>((philox(seed_, index_, next_++)[0] * count) >> 32);
  }
  template <class List>
  const auto& one_of(const List& list) {
    return list[static_cast<size_t>(between(0, static_cast<int>(list.size()) - 1))];
  }

 private:
  uint64_t seed_, index_, next_ = 0;
};

struct Numbers {
  int a = 0, b = 0, c = 0;
};

Numbers draw_numbers(Sum sum, Draws& draw) {
  Numbers n;
  const bool times = sum == Sum::Times || sum == Sum::TimesPlus || sum == Sum::TimesMinus;
  n.a = times ? draw.between(2, 9) : draw.between(sum == Sum::Minus ? 5 : 2, sum == Sum::Minus ? 99 : 60);
  n.b = times ? draw.between(2, 9) : draw.between(1, sum == Sum::Minus ? n.a : 40);
  if (sum == Sum::PlusMinus) n.c = draw.between(1, n.a + n.b);
  if (sum == Sum::TimesMinus) n.c = draw.between(1, n.a * n.b);
  if (sum == Sum::TimesPlus) n.c = draw.between(2, 40);
  return n;
}

// A line per step, then the result.
class Working {
 public:
  int step(int x, char sign, int y) {
    result_ = sign == '+' ? x + y : sign == '-' ? x - y : x * y;
    lines_ += std::to_string(x) + sign + std::to_string(y) + "=" + std::to_string(result_) + "\n";
    return result_;
  }
  std::string text() const { return lines_ + "#### " + std::to_string(result_); }

 private:
  std::string lines_;
  int result_ = 0;
};

std::string answer_of(Sum sum, const Numbers& n) {
  Working w;
  switch (sum) {
    case Sum::Plus:
      w.step(n.a, '+', n.b);
      break;
    case Sum::Minus:
      w.step(n.a, '-', n.b);
      break;
    case Sum::Times:
      w.step(n.a, '*', n.b);
      break;
    case Sum::PlusMinus:
      w.step(w.step(n.a, '+', n.b), '-', n.c);
      break;
    case Sum::TimesPlus:
      w.step(w.step(n.a, '*', n.b), '+', n.c);
      break;
    case Sum::TimesMinus:
      w.step(w.step(n.a, '*', n.b), '-', n.c);
      break;
    case Sum::PlusTwice:
      w.step(n.a, '+', w.step(n.a, '+', n.b));
      break;
  }
  return w.text();
}

std::string prompt_of(const Question& q, const Numbers& n, Draws& draw) {
  const int first = draw.between(0, static_cast<int>(kNames.size()) - 1);
  const int second = (first + draw.between(1, static_cast<int>(kNames.size()) - 1)) % static_cast<int>(kNames.size());
  const std::string_view thing = draw.one_of(kThings);
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::string out;
  for (size_t i = 0; i < q.text.size();) {
    size_t end = i + 1;
    while (end < q.text.size() && is_letter(q.text[i]) && is_letter(q.text[end])) ++end;
    const std::string_view word = q.text.substr(i, end - i);
    i = end;
    if (word == "N")
      out += kNames[static_cast<size_t>(first)];
    else if (word == "M")
      out += kNames[static_cast<size_t>(second)];
    else if (word == "T")
      out += thing;
    else if (word == "a")
      out += std::to_string(n.a);
    else if (word == "b")
      out += std::to_string(n.b);
    else if (word == "c")
      out += std::to_string(n.c);
    else
      out += word;
  }
  return out;
}

// FNV-1a, finalised as in MurmurHash3 so that each of its bits depends on the whole text.
uint64_t checksum(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccd;
  return h ^ (h >> 33);
}

SumsSplit split_of(std::string_view prompt) {
  return checksum(prompt) % 8 == 0 ? SumsSplit::HeldOut : SumsSplit::Train;
}

}  // namespace

Problem sums_problem(uint64_t seed, int64_t index, SumsSplit split) {
  TENON_CHECK(Usage, index >= 0, "sums") << "expected a problem index of 0 or more, got " << index;
  Draws draw(seed, index);
  for (;;) {
    const Question& q = draw.one_of(kQuestions);
    const Numbers n = draw_numbers(q.sum, draw);
    Problem p{prompt_of(q, n, draw), answer_of(q.sum, n)};
    if (split_of(p.prompt) == split) return p;
  }
}

SumsSplit parse_sums_split(const std::string& name) {
  if (name == "train") return SumsSplit::Train;
  TENON_CHECK(Usage, name == "held-out", "split") << "'" << escaped(name) << "': expected 'train' or 'held-out'";
  return SumsSplit::HeldOut;
}

}  // namespace tenon
