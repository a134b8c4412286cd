#include "tenon/core/error.h"

#include <algorithm>
#include <utility>

namespace tenon {

Error::Error(ErrorKind kind, std::string where, std::string what, std::string hint)
    : kind_(kind), where_(std::move(where)), hint_(std::move(hint)) {
  text_ = where_.empty() ? std::move(what) : "[" + where_ + "] " + what;
  if (!hint_.empty()) text_ += " (" + hint_ + ")";
  std::replace(text_.begin(), text_.end(), '\0', ' ');  // what() would end there, in the middle of a file's name
}

}  // namespace tenon
