#include "tenon/backend/cpu/leaves.h"

#include <algorithm>
#include <cstring>

#include "tenon/expr/ops.h"

namespace tenon::cpu {
namespace {

std::vector<std::byte> literal_bytes(const Expr& leaf) {
  std::vector<std::byte> bytes;
  if (!leaf.is<nodes::Constant>() && !leaf.is<nodes::Iota>()) return bytes;
  const int64_t n = leaf.shape().numel();
  bytes.resize(static_cast<size_t>(std::max<int64_t>(n, 1) * size_of(leaf.dtype())));
  for (int64_t i = 0; i < n; ++i)
    store_element(leaf.dtype(), bytes.data(), i, leaf.is<nodes::Iota>() ? static_cast<double>(i) : leaf->attrs.nums[0]);
  return bytes;
}

}  // namespace

int LeafTable::add(const Expr& leaf) {
  const int known = find(leaf);
  if (known >= 0) return known;
  leaves_.push_back(leaf);
  literals_.push_back(literal_bytes(leaf));
  return size() - 1;
}

int LeafTable::find(const Expr& leaf) const {
  const auto it = std::find(leaves_.begin(), leaves_.end(), leaf);
  return it == leaves_.end() ? -1 : static_cast<int>(it - leaves_.begin());
}

const void* LeafTable::literal(int i) const {
  const std::vector<std::byte>& bytes = literals_[static_cast<size_t>(i)];
  return bytes.empty() ? nullptr : bytes.data();
}

}  // namespace tenon::cpu
