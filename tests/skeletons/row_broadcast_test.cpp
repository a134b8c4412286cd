// Which views of a row reduction, broadcast back over its rows, leave every row where it is.
#include "tenon/kernels/row_broadcast.h"

#include <gtest/gtest.h>

#include "tenon/expr/ops.h"

namespace tenon {
namespace {

class RowBroadcast : public testing::Test {
 protected:
  bool kept(const Expr& e) const { return keeps_rows(e, rows); }
  const Shape heads{3, 4, 8}, pairs{3, 4, 4, 2}, joined{3, 32};
  Graph g;
  const Expr rows = broadcast(mean(input(g, "x", DType::F32, heads)), heads);
};

TEST_F(RowBroadcast, KeepsRowsThatAreSplitAndJoinedAgain) {
  EXPECT_TRUE(kept(pair_swap(rows)));
  EXPECT_TRUE(kept(flip(rows, 2)));
  const Expr split = reshape(rows, pairs);
  EXPECT_TRUE(kept(reshape(permute(permute(split, {0, 1, 3, 2}), {0, 1, 3, 2}), heads)));
  EXPECT_TRUE(kept(reshape(broadcast(slice(split, 3, 1, 2), pairs), heads)));
  EXPECT_TRUE(kept(reshape(pair_swap(reshape(rows, joined)), heads)));
  EXPECT_TRUE(kept(permute(pair_swap(permute(rows, {1, 0, 2})), {1, 0, 2})));
}

TEST_F(RowBroadcast, KeepsLookUps) {
  const Expr last = input(g, "last", DType::I32, {8}), at = input(g, "at", DType::I32, {3});
  EXPECT_FALSE(kept(permute(gather(permute(rows, {2, 0, 1}), last), {1, 2, 0}))) << "an index may be out of range";
  EXPECT_FALSE(kept(gather(reshape(slice(rows, 1, 0, 0), {0, 4, 8}), at))) << "every index is, in an empty table";
}

TEST_F(RowBroadcast, TellsWhenRowsMove) {
  EXPECT_FALSE(kept(flip(rows, 1)));
  EXPECT_FALSE(kept(reshape(rows, joined))) << "another shape";
  EXPECT_FALSE(kept(permute(pair_swap(permute(rows, {0, 2, 1})), {0, 2, 1})));
  EXPECT_FALSE(kept(broadcast(slice(rows, 1, 0, 1), heads)));
  EXPECT_FALSE(kept(reshape(permute(reshape(rows, {4, 3, 8}), {1, 0, 2}), heads)));
  EXPECT_FALSE(kept(reshape(permute(reshape(rows, {2, 6, 8}), {1, 0, 2}), heads)));
  EXPECT_FALSE(kept(reshape(flip(reshape(rows, {3, 4, 8, 1}), 0), heads)));
  EXPECT_FALSE(kept(gather(rows, input(g, "at", DType::I32, {3}))));
  EXPECT_FALSE(kept(reshape(permute(reshape(rows, {6, 16}), {1, 0}), heads)));
}

}  // namespace
}  // namespace tenon
