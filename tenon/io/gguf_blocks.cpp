#include "tenon/io/gguf_blocks.h"

#include <array>
#include <cstring>

#include "tenon/core/dtype.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

constexpr std::array<FileBlockType, 33> kTypes = {
    {{0, "F32", 1, 4, true},          {1, "F16", 1, 2, true},          {2, "Q4_0", 32, 18, true},
     {3, "Q4_1", 32, 20, true},       {6, "Q5_0", 32, 22, true},       {7, "Q5_1", 32, 24, true},
     {8, "Q8_0", 32, 34, true},       {9, "Q8_1", 32, 40, false},      {10, "Q2_K", 256, 84, false},
     {11, "Q3_K", 256, 110, false},   {12, "Q4_K", 256, 144, true},    {13, "Q5_K", 256, 176, true},
     {14, "Q6_K", 256, 210, true},    {15, "Q8_K", 256, 292, false},   {16, "IQ2_XXS", 256, 66, false},
     {17, "IQ2_XS", 256, 74, false},  {18, "IQ3_XXS", 256, 98, false}, {19, "IQ1_S", 256, 50, false},
     {20, "IQ4_NL", 32, 18, false},   {21, "IQ3_S", 256, 110, false},  {22, "IQ2_S", 256, 82, false},
     {23, "IQ4_XS", 256, 136, false}, {24, "I8", 1, 1, false},         {25, "I16", 1, 2, false},
     {26, "I32", 1, 4, false},        {27, "I64", 1, 8, false},        {28, "F64", 1, 8, false},
     {29, "IQ1_M", 256, 56, false},   {30, "BF16", 1, 2, true},        {34, "TQ1_0", 256, 54, false},
     {35, "TQ2_0", 256, 66, false},   {39, "MXFP4", 32, 17, false},    {40, "NVFP4", 64, 36, false}}};

const FileBlockType& info(BlockType t) {
  for (const FileBlockType& type : kTypes)
    if (type.number == static_cast<uint32_t>(t)) return type;
  throw Error(ErrorKind::Internal, "gguf", "no such block type: " + std::to_string(static_cast<uint32_t>(t)));
}

constexpr int64_t kLargestBlock = 256;

uint16_t half_bits(const uint8_t* b) { return static_cast<uint16_t>(b[0] | (b[1] << 8)); }
float half(const uint8_t* b) { return f16_value(half_bits(b)); }

void f32_block(const uint8_t* b, float* out) { std::memcpy(out, b, sizeof(float)); }
void f16_block(const uint8_t* b, float* out) { *out = half(b); }
void bf16_block(const uint8_t* b, float* out) { *out = bf16_value(half_bits(b)); }

// 32 elements: low nibbles are the first half, high nibbles the second half.
void q4_0_block(const uint8_t* b, float* out) {
  const float d = half(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((b[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((b[2 + i] >> 4) - 8);
  }
}

void q4_1_block(const uint8_t* b, float* out) {
  const float d = half(b), m = half(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(b[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(b[4 + i] >> 4) + m;
  }
}

// The fifth bit of element i is bit i of the four bytes before the nibbles.
int fifth_bit(const uint8_t* bits, int i) { return ((bits[i / 8] >> (i % 8)) & 1) << 4; }

void q5_0_block(const uint8_t* b, float* out) {
  const float d = half(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(((b[6 + i] & 15) | fifth_bit(b + 2, i)) - 16);
    out[i + 16] = d * static_cast<float>(((b[6 + i] >> 4) | fifth_bit(b + 2, i + 16)) - 16);
  }
}

void q5_1_block(const uint8_t* b, float* out) {
  const float d = half(b), m = half(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((b[8 + i] & 15) | fifth_bit(b + 4, i)) + m;
    out[i + 16] = d * static_cast<float>((b[8 + i] >> 4) | fifth_bit(b + 4, i + 16)) + m;
  }
}

void q8_0_block(const uint8_t* b, float* out) {
  const float d = half(b);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

// Twelve bytes hold eight 6-bit scales and eight 6-bit mins. Bytes 0..3 and 4..7 hold those of groups 0..3 whole and,
// in their two high bits, the top bits of groups 4..7, whose low nibbles are in bytes 8..11.
struct GroupScale {
  int scale, min;
};
GroupScale group_scale(const uint8_t* s, int group) {
  if (group < 4) return {s[group] & 63, s[group + 4] & 63};
  const int k = group - 4;
  return {(s[8 + k] & 15) | ((s[k] >> 6) << 4), (s[8 + k] >> 4) | ((s[4 + k] >> 6) << 4)};
}

// 256 elements in groups of 32: 32 bytes of nibbles hold two groups. `high` points to fifth bits, if there are any: bit
// g of byte i belongs to element i of group g.
void k_block(const uint8_t* b, const uint8_t* high, const uint8_t* nibbles, float* out) {
  const float d = half(b), dmin = half(b + 2);
  for (int g = 0; g < 8; ++g) {
    const GroupScale s = group_scale(b + 4, g);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    const uint8_t* q = nibbles + g / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      int value = g % 2 ? q[i] >> 4 : q[i] & 15;
      if (high) value |= ((high[i] >> g) & 1) << 4;
      out[g * 32 + i] = scale * static_cast<float>(value) - min;
    }
  }
}
void q4_k_block(const uint8_t* b, float* out) { k_block(b, nullptr, b + 16, out); }
void q5_k_block(const uint8_t* b, float* out) { k_block(b, b + 16, b + 48, out); }

// Two halves of 128 elements: 64 bytes of nibbles, and 32 bytes with four pairs of high bits each. 8-bit scales, one
// per 16 elements, follow both halves.
void q6_k_block(const uint8_t* b, float* out) {
  const float d = half(b + 208);
  for (int e = 0; e < 256; ++e) {
    const int part = e / 128, row = e % 128 / 32, i = e % 32;
    const uint8_t low = b[part * 64 + row % 2 * 32 + i], high = b[128 + part * 32 + i];
    const int q = ((row < 2 ? low & 15 : low >> 4) | (((high >> (2 * row)) & 3) << 4)) - 32;
    const auto scale = static_cast<float>(static_cast<int8_t>(b[192 + e / 16]));
    out[e] = d * scale * static_cast<float>(q);
  }
}

using BlockFunction = void (*)(const uint8_t*, float*);
BlockFunction block_function(BlockType t) {
  switch (t) {
    case BlockType::F32:
      return f32_block;
    case BlockType::F16:
      return f16_block;
    case BlockType::BF16:
      return bf16_block;
    case BlockType::Q4_0:
      return q4_0_block;
    case BlockType::Q4_1:
      return q4_1_block;
    case BlockType::Q5_0:
      return q5_0_block;
    case BlockType::Q5_1:
      return q5_1_block;
    case BlockType::Q8_0:
      return q8_0_block;
    case BlockType::Q4_K:
      return q4_k_block;
    case BlockType::Q5_K:
      return q5_k_block;
    case BlockType::Q6_K:
      return q6_k_block;
  }
  throw Error(ErrorKind::Internal, "gguf", "no such block type");
}

// Calls f(block's bytes, index of its first element) for every block.
template <class F>
void each_block(BlockType t, std::span<const std::byte> in, size_t elements, const F& f) {
  const auto width = static_cast<size_t>(block_elements(t)), bytes = static_cast<size_t>(block_bytes(t));
  TENON_CHECK(Internal, elements % width == 0 && in.size() == elements / width * bytes, "gguf")
      << elements << " elements of " << name_of(t) << " do not fit " << in.size() << " bytes";
  const auto* at = reinterpret_cast<const uint8_t*>(in.data());
  for (size_t i = 0; i < elements; i += width, at += bytes) f(at, i);
}

}  // namespace

std::string_view name_of(BlockType t) { return info(t).name; }
int64_t block_elements(BlockType t) { return info(t).elements; }
int64_t block_bytes(BlockType t) { return info(t).bytes; }

std::optional<FileBlockType> file_block_type(uint32_t number) {
  for (const FileBlockType& type : kTypes)
    if (type.number == number) return type;
  return std::nullopt;
}

void dequantise(BlockType t, std::span<const std::byte> in, std::span<float> out) {
  const BlockFunction convert = block_function(t);
  each_block(t, in, out.size(), [&](const uint8_t* block, size_t i) { convert(block, &out[i]); });
}

void dequantise_bf16(BlockType t, std::span<const std::byte> in, std::span<uint16_t> out) {
  const BlockFunction convert = block_function(t);
  const auto width = static_cast<size_t>(block_elements(t));
  std::array<float, kLargestBlock> values;
  each_block(t, in, out.size(), [&](const uint8_t* block, size_t i) {
    convert(block, values.data());
    for (size_t k = 0; k < width; ++k) out[i + k] = bf16_bits(values[k]);
  });
}

}  // namespace tenon
