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
    : decoder_(std::move(tokenizer), true), stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string TextStream::push(int32_t id) { return stopped_ ? "" : release(decoder_.push(id)); }

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
