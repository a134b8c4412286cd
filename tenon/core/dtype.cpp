#include "tenon/core/dtype.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "tenon/core/error.h"

namespace tenon {
namespace {
struct Info {
  std::string_view name;
  int64_t size;
  bool is_float;
  double roundoff;
};
constexpr std::array<Info, 11> kInfo = {{{"f64", 8, true, 0x1p-53},
                                         {"f32", 4, true, 0x1p-24},
                                         {"f16", 2, true, 0x1p-11},
                                         {"bf16", 2, true, 0x1p-8},
                                         {"e4m3", 1, true, 0x1p-4},
                                         {"i64", 8, false, 0},
                                         {"i32", 4, false, 0},
                                         {"i16", 2, false, 0},
                                         {"i8", 1, false, 0},
                                         {"u8", 1, false, 0},
                                         {"bool", 1, false, 0}}};

[[noreturn]] void no_type(DType t) {
  throw Error(ErrorKind::Usage, "dtype", "no element type has the number " + std::to_string(static_cast<int>(t)));
}
const Info& info(DType t) {
  if (static_cast<size_t>(t) >= kInfo.size()) no_type(t);
  return kInfo[static_cast<size_t>(t)];
}

/// x rounded to odd: rounding the result to a shorter type gives the same as rounding x.
float to_odd(double x) {
  const float f = static_cast<float>(x);
  if (std::isnan(x) || static_cast<double>(f) == x) return f;
  const bool away = std::abs(static_cast<double>(f)) > std::abs(x);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(f) - away) | 1u);
}

/// x rounded towards zero and saturated to T's range; 0 for NaN. The upper bound is exact in f64 for every T.
template <class T>
T saturated(double x) {
  if (std::isnan(x)) return 0;
  constexpr double kEnd = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
  if (x >= kEnd) return std::numeric_limits<T>::max();
  if (x <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(x);
}

template <class T>
T load_raw(const void* base, int64_t index) {
  T v;
  std::memcpy(&v, static_cast<const char*>(base) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}
template <class T>
void store_raw(void* base, int64_t index, T v) {
  std::memcpy(static_cast<char*>(base) + index * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
}
}  // namespace

int64_t size_of(DType t) { return info(t).size; }
std::string_view name_of(DType t) { return info(t).name; }
bool is_float(DType t) { return info(t).is_float; }
double unit_roundoff(DType t) { return info(t).roundoff; }

DType parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i)
    if (kInfo[i].name == name) return static_cast<DType>(i);
  if (name == "fp32" || name == "float32") return DType::F32;
  if (name == "fp16" || name == "float16") return DType::F16;
  if (name == "bfloat16") return DType::BF16;
  std::string known;
  for (const Info& i : kInfo) known += (known.empty() ? "" : ", ") + std::string(i.name);
  throw Error(ErrorKind::Usage, "dtype", "unknown element type '" + std::string(name) + "'; expected one of " + known);
}

uint16_t f16_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu;
  if (mag > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (mag >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more
  if (mag < 0x38800000u) {                                               // subnormal half: the adder rounds for us
    const float shifted = std::bit_cast<float>(mag) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((mag - 0x38000000u + 0xfffu + ((mag >> 13) & 1u)) >> 13));
}

float f16_value(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f));
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

uint8_t e4m3_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint8_t sign = static_cast<uint8_t>((u >> 24) & 0x80u);
  const uint32_t mag = u & 0x7fffffffu;
  if (mag > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (mag >= 0x43e80000u) return static_cast<uint8_t>(sign | 0x7eu);  // 464 and above, ties included: saturate at 448
  if (mag < 0x3c800000u) {                                            // below 2^-6: multiples of 2^-9
    const float steps = std::nearbyint(std::bit_cast<float>(mag) * 512.0f);
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(steps));
  }
  const uint32_t rounded = mag + 0x7ffffu + ((mag >> 20) & 1u);
  const uint32_t code = (rounded >> 20) - (120u << 3);
  return static_cast<uint8_t>(sign | (code > 0x7eu ? 0x7eu : code));
}

float e4m3_value(uint8_t bits) {
  const float sign = (bits & 0x80u) ? -1.0f : 1.0f;
  const int exponent = (bits >> 3) & 0xf, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::nanf("");
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-9f;
  return sign * std::ldexp(1.0f + static_cast<float>(mantissa) / 8.0f, exponent - 7);
}

double round_to(DType t, double x) {
  switch (t) {
    case DType::F64:
      return x;
    case DType::F32:
      return static_cast<float>(x);
    case DType::F16:
      return f16_value(f16_bits(to_odd(x)));
    case DType::BF16:
      return bf16_value(bf16_bits(to_odd(x)));
    case DType::E4M3:
      return e4m3_value(e4m3_bits(to_odd(x)));
    case DType::I64:
      return static_cast<double>(saturated<int64_t>(x));
    case DType::I32:
      return saturated<int32_t>(x);
    case DType::I16:
      return saturated<int16_t>(x);
    case DType::I8:
      return saturated<int8_t>(x);
    case DType::U8:
      return saturated<uint8_t>(x);
    case DType::Bool:
      return x != 0;
  }
  no_type(t);
}

double load_element(DType t, const void* base, int64_t index) {
  switch (t) {
    case DType::F64:
      return load_raw<double>(base, index);
    case DType::F32:
      return load_raw<float>(base, index);
    case DType::F16:
      return f16_value(load_raw<uint16_t>(base, index));
    case DType::BF16:
      return bf16_value(load_raw<uint16_t>(base, index));
    case DType::E4M3:
      return e4m3_value(load_raw<uint8_t>(base, index));
    case DType::I64:
      return static_cast<double>(load_raw<int64_t>(base, index));
    case DType::I32:
      return load_raw<int32_t>(base, index);
    case DType::I16:
      return load_raw<int16_t>(base, index);
    case DType::I8:
      return load_raw<int8_t>(base, index);
    case DType::U8:
      return load_raw<uint8_t>(base, index);
    case DType::Bool:
      return load_raw<uint8_t>(base, index) != 0;
  }
  no_type(t);
}

void load_floats(DType t, const void* base, std::span<float> out) {
  const auto count = static_cast<int64_t>(out.size());
  if (t == DType::F32 && count)
    std::memcpy(out.data(), base, out.size_bytes());
  else if (t == DType::BF16)
    for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = bf16_value(load_raw<uint16_t>(base, i));
  else
    for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = static_cast<float>(load_element(t, base, i));
}

void store_element(DType t, void* base, int64_t index, double v) {
  switch (t) {
    case DType::F64:
      return store_raw<double>(base, index, v);
    case DType::F32:
      return store_raw<float>(base, index, static_cast<float>(v));
    case DType::F16:
      return store_raw<uint16_t>(base, index, f16_bits(to_odd(v)));
    case DType::BF16:
      return store_raw<uint16_t>(base, index, bf16_bits(to_odd(v)));
    case DType::E4M3:
      return store_raw<uint8_t>(base, index, e4m3_bits(to_odd(v)));
    case DType::I64:
      return store_raw<int64_t>(base, index, saturated<int64_t>(v));
    case DType::I32:
      return store_raw<int32_t>(base, index, saturated<int32_t>(v));
    case DType::I16:
      return store_raw<int16_t>(base, index, saturated<int16_t>(v));
    case DType::I8:
      return store_raw<int8_t>(base, index, saturated<int8_t>(v));
    case DType::U8:
      return store_raw<uint8_t>(base, index, saturated<uint8_t>(v));
    case DType::Bool:
      return store_raw<uint8_t>(base, index, v != 0);
  }
  no_type(t);
}

}  // namespace tenon
