// Products of bytes by VNNI. Included only by the files of instruction sets that have it, after their vec_*.h.
#pragma once

namespace tenon::cpu {
namespace {

/// One instruction multiplies and sums four bytes.
struct DotFourBytes {
  using A = I;
  using B = I;
  static A load_a(const void* p) { return i_repeat(p); }
  static B load_b(const void* p) { return i_load(p); }
  static I add(I acc, A a, B b) { return i_add_byte_products(acc, b, a); }
  static constexpr int rows(int panels) { return kRegisters == 32 ? (panels == 4 ? 3 : 6) : panels == 1 ? 3 : 0; }
};

}  // namespace
}  // namespace tenon::cpu
