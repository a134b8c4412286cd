#include "tenon/backend/cuda/driver/included_headers.h"

#include <utility>

namespace tenon::cuda {

std::vector<std::string> included_names(std::string_view text) {
  constexpr std::string_view kInclude = "#include \"";
  std::vector<std::string> names;
  for (size_t at = text.find(kInclude); at != std::string_view::npos; at = text.find(kInclude, at)) {
    at += kInclude.size();
    names.emplace_back(text.substr(at, text.find('"', at) - at));
  }
  return names;
}

std::set<std::string> all_included(std::string_view text,
                                   FunctionRef<const std::vector<std::string>*(const std::string& name)> known) {
  std::set<std::string> all;
  std::vector<std::string> left = included_names(text);
  while (!left.empty()) {
    const std::string name = std::move(left.back());
    left.pop_back();
    if (all.contains(name)) continue;
    const std::vector<std::string>* further = known(name);
    if (further == nullptr) continue;
    all.insert(name);
    left.insert(left.end(), further->begin(), further->end());
  }
  return all;
}

}  // namespace tenon::cuda
