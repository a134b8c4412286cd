#include "tenon/backend/cuda/driver/included_headers.h"

#include <utility>

namespace tenon::cuda {

std::vector<std::string> included_names(std::string_view source) {
  constexpr std::string_view kInclude = "#include \"";
  std::vector<std::string> names;
  for (size_t at = source.find(kInclude); at != std::string_view::npos; at = source.find(kInclude, at)) {
    at += kInclude.size();
    names.emplace_back(source.substr(at, source.find('"', at) - at));
  }
  return names;
}

std::set<std::string> all_included(std::string_view source,
                                   FunctionRef<const std::vector<std::string>*(const std::string& name)> known) {
  std::set<std::string> all;
  std::vector<std::string> left = included_names(source);
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
