#include "tenon/core/error.h"

#include <utility>

#include "tenon/core/text.h"

namespace tenon {
namespace {
constexpr size_t kWhereBytes = 160, kHintBytes = 200;
}

// Text in a message may come from anywhere: make it safe for a terminal, whatever its length.
Error::Error(ErrorKind kind, std::string where, std::string what, const std::string& hint)
    : kind_(kind), where_(std::move(where)), what_(std::move(what)), hint_(shown(hint, kHintBytes)) {
  std::string advice;
  if (!where_.empty()) text_.append("[").append(shown(where_, kWhereBytes)).append("] ");
  if (!hint_.empty()) advice.append(" (").append(hint_).append(")");
  text_.append(shown(what_, kMessageBytes - text_.size() - advice.size())).append(advice);
}

Error Error::with_kind(ErrorKind kind) const { return {kind, where_, what_, hint_}; }
Error Error::with_where(std::string where) const { return {kind_, std::move(where), what_, hint_}; }

}  // namespace tenon
