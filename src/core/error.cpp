#include "tenon/core/error.h"

#include <utility>

namespace tenon {

Error::Error(ErrorKind kind, std::string where, std::string what, std::string hint)
    : kind_(kind), where_(std::move(where)), hint_(std::move(hint)) {
  text_ = where_.empty() ? std::move(what) : "[" + where_ + "] " + what;
  if (!hint_.empty()) text_ += " (" + hint_ + ")";
}

}  // namespace tenon
