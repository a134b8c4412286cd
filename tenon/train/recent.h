// A few values by key, the most recently used ones.
#pragma once
#include <algorithm>
#include <cstddef>
#include <list>
#include <utility>

namespace tenon::train {

/// Holds at most `most` values, 1 or more; the least recently used one makes room for a new one.
template <class Key, class Value>
class Recent {
 public:
  explicit Recent(size_t most) : most_(most) {}

  /// The value of `key`, valid until the next call; `make` returns a new one if it is not held. If `make` throws,
  /// nothing is added.
  template <class Make>
  Value& get(const Key& key, const Make& make) {
    const auto held = std::ranges::find(values_, key, &std::pair<Key, Value>::first);
    if (held != values_.end()) {
      values_.splice(values_.begin(), values_, held);
    } else {
      if (values_.size() >= most_) values_.pop_back();  // before the new one takes memory
      values_.emplace_front(key, make());
    }
    return values_.front().second;
  }

 private:
  size_t most_;
  std::list<std::pair<Key, Value>> values_;  // the last used first
};

}  // namespace tenon::train
