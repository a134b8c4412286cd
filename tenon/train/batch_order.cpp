#include "tenon/train/batch_order.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/core/philox.h"

namespace tenon::train {
namespace {

constexpr uint64_t kCycleSeed = 0x6275636b657473;  // separate from the order within sizes

// `key` and `round` determine the order; different values of `first` give independent draws.
template <class T>
void shuffle(std::vector<T>& all, uint64_t key, uint64_t round, uint64_t first) {
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[philox(key, round, first + i)[0] % i]);
}

}  // namespace

BatchOrder::BatchOrder(const PictureSet& pictures, int64_t batch, uint64_t seed) : batch_(batch), seed_(seed) {
  TENON_CHECK(Usage, !pictures.pictures.empty() && batch > 0, "pictures")
      << "batches of " << batch << " from " << pictures.pictures.size() << " pictures: expected 1 or more of both";
  for (const EncodedPicture& p : pictures.pictures) sizes_.push_back(p.size);
  std::ranges::sort(sizes_);
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  pictures_.resize(sizes_.size());
  for (size_t i = 0; i < pictures.pictures.size(); ++i)
    pictures_[static_cast<size_t>(std::ranges::find(sizes_, pictures.pictures[i].size) - sizes_.begin())].push_back(i);
}

BatchOrder::Batch BatchOrder::at(int64_t n) const {
  TENON_CHECK(Usage, n >= 0, "pictures") << "there is no batch " << n;
  std::vector<size_t> cycle;
  for (size_t size = 0; size < sizes_.size(); ++size) cycle.insert(cycle.end(), pictures_[size].size(), size);
  const int64_t number = n / std::ssize(cycle), place = n % std::ssize(cycle);
  shuffle(cycle, seed_ ^ kCycleSeed, static_cast<uint64_t>(number), 0);
  Batch out;
  out.size = cycle[static_cast<size_t>(place)];
  const std::vector<size_t>& all = pictures_[out.size];
  const auto before = std::count(cycle.begin(), cycle.begin() + place, out.size) + number * std::ssize(all);
  for (int64_t k = before * batch_; k < (before + 1) * batch_; ++k) {
    std::vector<size_t> order = all;
    shuffle(order, seed_, static_cast<uint64_t>(k / std::ssize(all)), static_cast<uint64_t>(out.size) << 32);
    out.pictures.push_back(order[static_cast<size_t>(k % std::ssize(all))]);
  }
  return out;
}

}  // namespace tenon::train
