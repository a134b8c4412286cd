#include "tenon/core/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "tenon/core/error.h"
#include "tenon/core/host_tensor.h"

namespace tenon {
namespace {
template <class T>
T stored(DType t, double x) {
  std::array<T, 2> to = {1, 1};
  store_element(t, to.data(), 1, x);
  EXPECT_EQ(to[0], 1);
  return to[1];
}

template <class T>
void takes_the_nearest(DType t) {
  using Limits = std::numeric_limits<T>;
  EXPECT_EQ(stored<T>(t, 2.9), 2);
  EXPECT_EQ(stored<T>(t, -1.08), Limits::is_signed ? -1 : 0);
  EXPECT_EQ(stored<T>(t, -INFINITY), Limits::min());
  EXPECT_EQ(stored<T>(t, -1e30), Limits::min());
  EXPECT_EQ(stored<T>(t, INFINITY), Limits::max());
  EXPECT_EQ(stored<T>(t, std::ldexp(1.0, Limits::digits)), Limits::max());
  EXPECT_EQ(stored<T>(t, NAN), 0);
  // A rounding point that nothing stores gives the number that would have been stored.
  for (const double x : {2.9, -1.08, -0.5, 1e30, -1e30, HUGE_VAL, -HUGE_VAL, std::nan(""), 300.0, -300.0})
    EXPECT_EQ(round_to(t, x), static_cast<double>(stored<T>(t, x))) << x;
}

TEST(Dtype, IntegersTakeTheNearestTheyCanHold) {
  takes_the_nearest<int64_t>(DType::I64);
  takes_the_nearest<int32_t>(DType::I32);
  takes_the_nearest<int16_t>(DType::I16);
  takes_the_nearest<int8_t>(DType::I8);
  takes_the_nearest<uint8_t>(DType::U8);
}

// A little more than halfway between two numbers, by less than f32 can tell.
TEST(Dtype, NumbersAreRoundedOnce) {
  for (const DType t : {DType::F16, DType::BF16, DType::E4M3})
    for (const double sign : {1, -1})
      for (const double size : {1.0, 0x1p-5, 6.0}) {
        const double step = std::exp2(std::floor(std::log2(size))) * 2 * unit_roundoff(t), half = size + step / 2;
        const double bit = size * 0x1p-45;
        EXPECT_EQ(round_to(t, sign * (half + bit)), sign * (size + step)) << name_of(t) << size;
        EXPECT_EQ(round_to(t, sign * (half + step - bit)), sign * (size + step)) << name_of(t) << size;
        EXPECT_EQ(round_to(t, sign * half), sign * size) << name_of(t) << size;  // whose last bit is even
      }
  EXPECT_EQ(stored<uint16_t>(DType::BF16, 1 + 0x1p-8 + 0x1p-40), bf16_bits(1 + 0x1p-7f));
  EXPECT_EQ(round_to(DType::F16, 0x1p-25 + 0x1p-60), 0x1p-24);
  EXPECT_EQ(round_to(DType::F16, 0x1p-25), 0);
  EXPECT_EQ(round_to(DType::F16, 65520 - 0x1p-30), 65504);
  EXPECT_EQ(round_to(DType::F16, 1e300), INFINITY);
  EXPECT_EQ(round_to(DType::BF16, -1e300), -INFINITY);
  EXPECT_EQ(round_to(DType::E4M3, -INFINITY), -448);
  EXPECT_EQ(round_to(DType::E4M3, 1e-300), 0);
  EXPECT_TRUE(std::isnan(round_to(DType::BF16, NAN)));
}

TEST(Dtype, WholeArraysAreReadAsTheirElements) {
  for (const DType t : {DType::F64, DType::F32, DType::F16, DType::BF16, DType::E4M3, DType::I64, DType::I32,
                        DType::I16, DType::I8, DType::U8, DType::Bool}) {
    std::vector<std::byte> memory(1 + static_cast<size_t>(9 * size_of(t)));  // with any alignment
    for (int i = 0; i < 9; ++i) store_element(t, memory.data() + 1, i, 3.3 * (i - 4));
    std::vector<float> read(9, -1.0f);
    load_floats(t, memory.data() + 1, read);
    for (int i = 0; i < 9; ++i)
      EXPECT_EQ(read[static_cast<size_t>(i)], static_cast<float>(load_element(t, memory.data() + 1, i)))
          << name_of(t) << " " << i;
    load_floats(t, nullptr, {});
  }
}

TEST(HostTensor, MoreBytesThanTheAddressSpaceAreRefused) {
  const int64_t n = int64_t{1} << 31;  // as many bytes as a wrapped product calls none
  EXPECT_THROW(HostTensor::zeros(DType::F64, {n, n}), Error);
  EXPECT_EQ(HostTensor::zeros(DType::F64, {0, n}).data.size(), 0u);
}
// A number that a caller cast to the type, as bindings do.
TEST(Dtype, NumbersThatAreNoTypeAreRefused) {
  std::array<double, 2> memory{};
  const auto refused = [](int number, const auto& f) {
    try {
      f();
      ADD_FAILURE() << number;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Usage);
      EXPECT_EQ(std::string(e.what()), "[dtype] no element type has the number " + std::to_string(number));
    }
  };
  for (const int number : {11, 77, 255}) {
    const auto t = static_cast<DType>(number);
    refused(number, [&] { static_cast<void>(size_of(t)); });
    refused(number, [&] { static_cast<void>(name_of(t)); });
    refused(number, [&] { static_cast<void>(is_float(t)); });
    refused(number, [&] { static_cast<void>(unit_roundoff(t)); });
    refused(number, [&] { static_cast<void>(round_to(t, 1)); });
    refused(number, [&] { static_cast<void>(load_element(t, memory.data(), 0)); });
    refused(number, [&] { store_element(t, memory.data(), 0, 1); });
    refused(number, [&] { HostTensor::zeros(t, {2}); });
  }
  EXPECT_EQ(memory[0], 0);
}

}  // namespace
}  // namespace tenon
