// How generated source reads and writes through views: in a single access only if the elements are contiguous and
// aligned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/backend/cuda/codegen/access_source.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {
namespace {

using testing::HasSubstr;
using testing::Not;

struct AccessTexts : testing::Test {
  Graph g;
  Expr x = input(g, "x", DType::BF16, {6, 64});

  static std::string load(const Expr& view, int width = 8) {
    Params params;
    return AccessSource("a", view, {view.shape(), view.shape().rank() - 1}, false, params).load("v", width);
  }
  static std::string store(const Expr& view) {
    Params params;
    return AccessSource("a", view, {view.shape(), view.shape().rank() - 1}, true, params).store("v", 8);
  }
};

TEST_F(AccessTexts, RearrangedFragmentsMoveAtOnce) {
  for (const Expr& e : {pair_swap(x), flip(x, 1), flip(pair_swap(x), 0), pair_swap(slice(x, 1, 8, 64))}) {
    EXPECT_THAT(load(e), HasSubstr("to_floats(load<")) << print(e);
    EXPECT_THAT(store(e), HasSubstr("device::store<")) << print(e);
  }
  EXPECT_THAT(load(pair_swap(x), 2), HasSubstr("v.v[0] = whole.v[1]; v.v[1] = whole.v[0];"));
}

TEST_F(AccessTexts, FragmentsThatAreNotAlignedMoveByElements) {
  const Expr narrow = input(g, "narrow", DType::BF16, {64, 4});  // rows of 8 bytes
  for (const Expr& e : {pair_swap(slice(x, 1, 2, 34)), pair_swap(slice(x, 1, 1, 33)), flip(slice(x, 1, 1, 57), 1),
                        pair_swap(reshape(slice(narrow, 1, 0, 2), {16, 8})), transpose(x)}) {
    EXPECT_THAT(load(e, 4), Not(HasSubstr("load<"))) << print(e);
    EXPECT_THAT(load(e), Not(HasSubstr("load<"))) << print(e);
    EXPECT_THAT(store(e), Not(HasSubstr("store<"))) << print(e);
  }
}

}  // namespace
}  // namespace tenon::cuda
