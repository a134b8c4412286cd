// Evaluates expressions with a tape, in blocks of awkward sizes, next to the oracle.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "tenon/backend/cpu/tape/tape.h"
#include "tenon/core/host_tensor.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/oracle/oracle.h"
#include "tests/support/close.h"

namespace tenon::cpu {

/// Memory by leaf name, 64-byte aligned so that sanitizers see its exact end.
using Tensors = std::map<std::string, HostTensor>;

/// prefix followed by a number.
inline std::string numbered(std::string prefix, int64_t number) { return prefix += std::to_string(number); }

/// Numbers around 0 with spread 1, rounded to the tensor's type.
inline HostTensor random_tensor(DType t, const Shape& shape, unsigned seed) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) v = normal(gen);
  return HostTensor::from(t, shape, values);
}

/// Random tensors for all memory leaves below `roots` that have none yet; integers are below `index_limit`.
inline void fill_leaves(std::span<const Expr> roots, Tensors& tensors, int64_t index_limit = 4) {
  unsigned seed = 1;
  for (const Expr& e : topological(roots)) {
    if (!is_memory_leaf(e) || tensors.contains(e->attrs.text)) continue;
    if (is_float(e.dtype())) {
      tensors.emplace(e->attrs.text, random_tensor(e.dtype(), e.shape(), seed++));
      continue;
    }
    std::vector<double> indices(static_cast<size_t>(e.shape().numel()));
    for (size_t i = 0; i < indices.size(); ++i)
      indices[i] = static_cast<double>((i * 7 + seed) % static_cast<size_t>(index_limit));
    tensors.emplace(e->attrs.text, HostTensor::from(e.dtype(), e.shape(), indices));
  }
}

/// Addresses for a leaf table.
inline std::vector<const void*> bases_of(const LeafTable& leaves, Tensors& tensors) {
  std::vector<const void*> bases;
  for (int i = 0; i < leaves.size(); ++i)
    bases.push_back(leaves.literal(i) ? leaves.literal(i) : tensors.at(leaves.leaf(i)->attrs.text).data.data());
  return bases;
}

inline std::vector<Isa> isas() {
  std::vector<Isa> out = {Isa::Avx2};
  if (tile_ops().isa >= Isa::Avx512) out.push_back(Isa::Avx512);
  return out;
}

/// Runs a tape whose results go to the tensors, in one call.
inline void run_stores(const Tape& tape, const LeafTable& leaves, Tensors& tensors) {
  const std::vector<const void*> bases = bases_of(leaves, tensors);
  alignas(64) static std::byte workspace[1 << 20];
  ASSERT_LE(tape.workspace_bytes(), static_cast<int64_t>(sizeof(workspace)));
  TapeCall call;
  call.block = {0, tape.rows(), 0, tape.cols()};
  call.bases = bases.data();
  call.workspace = workspace;
  tape.run(call);
}

/// The value of `root` over its domain as f32 rows, evaluated in blocks of `step` rows (and 48 columns where whole rows
/// are not needed).
inline std::vector<float> run_tape(const Expr& root, Tensors& tensors, Isa isa, int64_t step = 7) {
  LeafTable leaves;
  const TapeOutput out{root, Expr(), DType::F32};
  const Tape tape(std::array{out}, domain_of(root), leaves, vec_ops(isa));
  const std::vector<const void*> bases = bases_of(leaves, tensors);
  const int64_t ld = round_up(tape.cols(), 16);
  auto aligned = [](std::vector<std::byte>& v) {
    return reinterpret_cast<std::byte*>(round_up(reinterpret_cast<int64_t>(v.data()), 64));
  };
  std::vector<std::byte> workspace(static_cast<size_t>(tape.workspace_bytes() + 64), std::byte{0xff});
  std::vector<float> rows(static_cast<size_t>(step * ld + 16));
  std::vector<float> values(static_cast<size_t>(tape.rows() * tape.cols()), NAN);
  const int64_t width = tape.reduces_rows() ? tape.cols() : 48;
  for (int64_t r = 0; r < tape.rows(); r += step)
    for (int64_t c = 0; c < tape.cols(); c += width) {
      TapeCall call;
      call.block = {r, std::min(step, tape.rows() - r), c, std::min(width, tape.cols() - c)};
      call.bases = bases.data();
      call.workspace = aligned(workspace);
      call.rows = rows.data();
      call.rows_ld = round_up(call.block.cols, 16);
      std::fill(rows.begin(), rows.end(), NAN);
      tape.run(call);
      for (int64_t i = 0; i < call.block.rows; ++i)
        std::copy_n(rows.data() + i * call.rows_ld, call.block.cols, values.data() + (r + i) * tape.cols() + c);
    }
  return values;
}

/// EXPECTs the tape to agree with the oracle to `tolerance` relative to 1 + |expected|, on every instruction set.
inline void expect_oracle(const Expr& root, double tolerance, Tensors tensors = {}, int64_t index_limit = 4) {
  fill_leaves(std::array{root}, tensors, index_limit);
  Oracle oracle(tensors);
  const Shape domain = domain_of(root);
  const Expr whole = root.shape() == domain ? root : broadcast(root, domain);
  const std::vector<double> want = oracle.eval(whole);
  for (Isa isa : isas()) {
    const std::vector<float> got = run_tape(root, tensors, isa);
    EXPECT_TRUE(close(got, want, Tolerance{tolerance, tolerance}, NaN::MayBeExpected))
        << print(root) << "\non " << vec_ops(isa).name;
  }
}

}  // namespace tenon::cpu
