#include "tenon/backend/cuda/libraries/matmul_library.h"

#include <algorithm>
#include <sstream>

namespace tenon::cuda {

std::string MatmulAlgorithm::text() const {
  size_t used = words.size();
  while (used > 1 && words[used - 1] == 0) --used;
  std::ostringstream out;
  out << version << std::hex;
  for (size_t i = 0; i < used; ++i) out << (i ? '-' : ' ') << words[i];
  return out.str();
}

std::optional<MatmulAlgorithm> MatmulAlgorithm::parse(const std::string& text) {
  std::istringstream in(text);
  MatmulAlgorithm a;
  in >> a.version >> std::hex;
  for (size_t i = 0; i < a.words.size(); ++i) {
    char dash = '-';
    if (i > 0 && !(in >> dash)) break;
    if (dash != '-' || !(in >> a.words[i])) return std::nullopt;
  }
  if (a.version.empty() || a.text() != text) return std::nullopt;
  return a;
}

}  // namespace tenon::cuda
