#include "tenon/pipelines/text_stream.h"

#include <algorithm>

namespace tenon {
namespace {

// Number of bytes at the end of `text` that begin `stop`, which does not occur in it as a whole.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (text.ends_with(stop.substr(0, n))) return n;
  return 0;
}

}  // namespace

TextStream::TextStream(ByteLevelTokenizer tokenizer, std::vector<std::string> stops)
    : tokenizer_(std::move(tokenizer)), decoder_(tokenizer_, true), stops_(std::move(stops)) {
  std::erase(stops_, "");
  for (const std::string& stop : stops_)
    if (const auto id = tokenizer_.id_of(stop); id && tokenizer_.is_special(*id)) stop_ids_.push_back(*id);
}

std::string TextStream::push(int32_t id) {
  if (stopped_) return "";
  if (!tokenizer_.is_special(id)) return release(decoder_.push(id));
  if (std::ranges::find(stop_ids_, id) == stop_ids_.end()) return std::exchange(held_, {});
  std::string out = finish();
  stopped_ = true;
  return out;
}

std::string TextStream::finish() {
  if (stopped_) return "";
  std::string out = release(decoder_.finish());
  if (!stopped_) out += std::exchange(held_, {});
  return out;
}

std::string TextStream::release(std::string_view more) {
  held_ += more;
  size_t end = held_.size(), back = 0;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    stopped_ = stopped_ || at != held_.npos;
    end = std::min(end, at);
    back = std::max(back, begun(held_, stop));
  }
  if (!stopped_) end = held_.size() - back;
  std::string out = held_.substr(0, end);
  held_.erase(0, end);
  if (stopped_) held_.clear();
  return out;
}

}  // namespace tenon
