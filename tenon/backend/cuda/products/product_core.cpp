#include "tenon/backend/cuda/products/product_core.h"

#include <algorithm>
#include <charconv>

namespace tenon::cuda {
namespace {

std::vector<const ProductCore*>& registered_cores() {
  static std::vector<const ProductCore*> cores;
  return cores;
}

}  // namespace

void register_core(const ProductCore* core) {
  register_core_name(core->name(), core->library() ? CoreOf::Library : CoreOf::Ours);
  const auto by_name = [](const ProductCore* a, const ProductCore* b) { return a->name() < b->name(); };
  std::vector<const ProductCore*>& all = registered_cores();
  all.insert(std::upper_bound(all.begin(), all.end(), core, by_name), core);
}

std::span<const ProductCore* const> product_cores() { return registered_cores(); }

std::string TileChoice::text() const {
  const std::string words = core->text(*this);
  return std::string(core->name()) + (words.empty() ? "" : " ") + words;
}

std::optional<TileChoice> TileChoice::parse(const std::string& text) {
  const size_t end = std::min(text.find(' '), text.size());
  for (const ProductCore* core : product_cores()) {
    if (core->name() != std::string_view(text).substr(0, end)) continue;
    std::optional<TileChoice> choice = core->parse(text.substr(std::min(text.size(), end + 1)));
    if (choice) choice->core = core;
    return choice && choice->text() == text ? choice : std::nullopt;
  }
  return std::nullopt;
}

std::string tile_text(std::string_view pattern, std::initializer_list<int> numbers) {
  std::string out;
  const int* next = numbers.begin();
  for (const char c : pattern) c == '#' ? out += std::to_string(*next++) : out += c;
  return out;
}

bool read_tile(std::string_view text, std::string_view pattern, std::initializer_list<int*> numbers) {
  int* const* next = numbers.begin();
  const char *at = text.data(), *const end = at + text.size();
  for (const char c : pattern) {
    if (c != '#') {
      if (at == end || *at++ != c) return false;
      continue;
    }
    const auto [rest, error] = std::from_chars(at, end, **next++);
    if (error != std::errc()) return false;
    at = rest;
  }
  return at == end;
}

}  // namespace tenon::cuda
