// Elements in quantised blocks, as in GGUF files, and their conversion to numbers.
//
// A block is a run of elements of one row with their scales; blocks are little endian and need no alignment. Each
// formula below rounds once (its products are exact in f32), so results are bit-identical wherever they are computed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tenon {

/// Types that can be converted, numbered as in the file.
///
///   Q4_0, Q5_0   32 elements, d (f16):                 d * (q - 8), d * (q - 16)
///   Q4_1, Q5_1   32 elements, d, m (f16):              d * q + m
///   Q8_0         32 elements, d (f16), 8-bit q:        d * q
///   Q4_K, Q5_K   256 elements in 8 groups, d, dmin (f16), 6-bit scale and min of a group:  d * scale * q - dmin * min
///   Q6_K         256 elements in 16 groups, d (f16), 8-bit scale of a group:               d * scale * (q - 32)
enum class BlockType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30
};

/// "Q4_1", ... as ggml spells it.
std::string_view name_of(BlockType t);
/// Elements per block (1 for plain types), and bytes per block.
int64_t block_elements(BlockType t);
int64_t block_bytes(BlockType t);

/// An element type that files may use, whether or not it can be converted here.
struct FileBlockType {
  uint32_t number;  ///< in the file
  std::string_view name;
  int64_t elements, bytes;  ///< of a block
  bool readable;            ///< it is a BlockType
};
/// Empty for a number that ggml does not define, or no longer defines.
std::optional<FileBlockType> file_block_type(uint32_t number);

/// Converts whole blocks: out.size() elements, a multiple of block_elements, from exactly as many blocks in `in`.
/// Error(Internal) if the sizes do not match. The second form rounds to bf16 (nearest even).
void dequantise(BlockType t, std::span<const std::byte> in, std::span<float> out);
void dequantise_bf16(BlockType t, std::span<const std::byte> in, std::span<uint16_t> out);

}  // namespace tenon
