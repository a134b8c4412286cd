// Element types and their conversions. Bit layouts are known nowhere else.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tenon {

enum class DType : uint8_t { F64, F32, F16, BF16, E4M3, I64, I32, I16, I8, U8, Bool };

/// Bytes of one element.
int64_t size_of(DType t);
/// Lower-case name, as in plans: "f32", "bf16", "e4m3", ...
std::string_view name_of(DType t);
/// Inverse of name_of; for anything else throws Error(Usage) that lists the names.
DType parse_dtype(std::string_view name);
/// True for f64, f32, f16, bf16, e4m3.
bool is_float(DType t);
/// Unit roundoff (half an ulp at 1): 2^-24 for f32, 2^-11 for f16, 2^-8 for bf16 (7 stored bits), 2^-4 for e4m3; 0 for
/// integers.
double unit_roundoff(DType t);

/// The bf16 bits of x, rounded to nearest even; NaN stays NaN.
inline uint16_t bf16_bits(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
inline float bf16_value(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// The f16 (IEEE binary16) bits of x, rounded to nearest even; overflows to infinity.
uint16_t f16_bits(float x);
float f16_value(uint16_t bits);

/// The e4m3 ("fn": no infinities, max 448) bits of x, rounded to nearest even, saturating; NaN -> 0x7f.
uint8_t e4m3_bits(float x);
float e4m3_value(uint8_t bits);

/// x as an element of type `t` holds it: rounded to nearest even; to an integer, towards zero, saturated to the type's
/// range, 0 for NaN; to bool, 1 unless x is 0.
double round_to(DType t, double x);

/// Reads / writes one element of an array of type `t` at `index`. Writing rounds as round_to does.
double load_element(DType t, const void* base, int64_t index);
void store_element(DType t, void* base, int64_t index, double value);
/// Reads the first elements of such an array, as many as `out` has. Fast for f32 and bf16, as whole models are.
void load_floats(DType t, const void* base, std::span<float> out);

}  // namespace tenon
