// Convolutions of pictures and latents, whose few channels are computed where they are read.
#include <gmock/gmock.h>

#include <array>

#include "tests/cuda/emulated_runner.h"
#include "tests/cuda/emulator.h"

namespace tenon::launches {
namespace {

using testing::HasSubstr;
using testing::Not;

class FewChannels : public LaunchTest {
 protected:
  void expect_computed(const Launch& l, const Rounding& rounding, NaN nan = NaN::Differs) {
    expect(l, rounding, nan);
    std::string calls;
    run_on(std::make_shared<cuda::test::Emulator>(), l, tensors, &calls);
    EXPECT_THAT(calls, HasSubstr("MmaTile<"));
    EXPECT_THAT(calls, Not(HasSubstr("hole.0"))) << "no kernel writes padded channels";
  }
  Launch conv(const Expr& x, DType t, int64_t stride) {
    const Expr w = weight(numbered("w", x.shape()[3]), t, {72, x.shape()[3], 3, 3});
    return launch("conv2d", {{"y", cast(conv2d(x, w, stride, {1, 1, 1, 1}), t)}});
  }
};

TEST_F(FewChannels, OfEveryNumberTypeAndStride) {
  for (const DType t : {DType::F16, DType::BF16})
    for (const int64_t channels : {1, 3, 4, 7})
      for (const DType stored : {DType::F32, t}) {
        tensors.clear();
        const Expr x = input(g, numbered("x", channels) + std::string(name_of(stored)), stored, {2, 9, 11, channels});
        for (const int64_t stride : {1, 2}) expect_computed(conv(cast(x, t), t, stride), {t, t, 9 * channels, 4});
      }
}

// Channels first, a batch of one that is repeated, and a picture at twice its size.
TEST_F(FewChannels, ThroughViews) {
  const Rounding rounding{DType::F16, DType::F16, 36, 4};
  const Expr planes = input(g, "planes", DType::F32, {2, 4, 9, 11});
  expect_computed(conv(cast(permute(planes, {0, 2, 3, 1}), DType::F16), DType::F16, 1), rounding);
  const Expr one = input(g, "one", DType::F32, {1, 9, 11, 4});
  expect_computed(conv(cast(broadcast(one, {2, 9, 11, 4}), DType::F16), DType::F16, 1), rounding);
}

TEST_F(FewChannels, NaNStaysWhereTheFilterReaches) {
  HostTensor x = HostTensor::zeros(DType::F32, {1, 8, 8, 4});
  reinterpret_cast<float*>(x.data.data())[(3 * 8 + 5) * 4 + 2] = NAN;
  tensors.insert_or_assign("x", std::move(x));
  const Expr read = cast(input(g, "x", DType::F32, {1, 8, 8, 4}), DType::F16);
  expect_computed(conv(read, DType::F16, 1), {DType::F16, DType::F16, 36, 4}, NaN::MayBeExpected);
}

}  // namespace
}  // namespace tenon::launches
