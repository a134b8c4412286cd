// Pointwise maths, rounding points and row reductions on a tape, against the oracle.
#include "tests/cpu/tape_fixture.h"

namespace tenon::cpu {
namespace {

struct TapeMaths : testing::Test {
  Graph g;
  Expr x = input(g, "x", DType::F32, {9, 77}), y = input(g, "y", DType::BF16, {9, 77});
};

TEST_F(TapeMaths, EveryPointwiseNode) {
  for (const NodeType* t : node_types()) {
    if (t->family != Family::Pointwise || t->round) continue;
    // Arguments from about 0.5 to 2, where every function is smooth.
    std::vector<Expr> in;
    for (int i = 0; i < t->arity; ++i) in.push_back(exp(input(g, numbered("p", i), DType::F32, {5, 40}) * 0.3));
    Attrs attrs;
    for (int i = 0; i < t->num_params; ++i) attrs.nums.push_back(0.4 + i);
    expect_oracle(g.make(*t, in, attrs), 2e-5);
    // The same with operands that have one value per row.
    for (size_t mask = 1; mask < (1u << t->arity); ++mask) {
      std::vector<Expr> mixed = in;
      for (size_t i = 0; i < mixed.size(); ++i)
        if (mask >> i & 1)
          mixed[i] =
              exp(broadcast(input(g, numbered("u", static_cast<int64_t>(i)), DType::F32, {5, 1}) * 0.3, {5, 40}));
      expect_oracle(g.make(*t, mixed, attrs), 2e-5);
    }
  }
}

TEST_F(TapeMaths, NaNGoesThrough) {
  Tensors t;
  std::vector<float> values(9 * 77, 0.5f);
  values[3 * 77 + 76] = NAN;
  values[5] = INFINITY;
  values[6] = -INFINITY;
  t.emplace("x", HostTensor::from(DType::F32, {9, 77}, values));
  for (const Expr& e :
       {silu(x), gelu(x), gelu_tanh(x), quick_gelu(x), sigmoid(x), tanh(x), exp(x), relu(x), max(x, constant(g, 0)),
        min(x, constant(g, 0)), clamp(x, -1, 1), cast(x, DType::BF16), cast(x, DType::F16), x + x})
    expect_oracle(e, 1e-5, t);
  for (const Expr& e : {sum(x), reduce_max(x), absmax(x), mean(x), sumsq(x)}) expect_oracle(e, 1e-5, t);
  expect_oracle(cast(x, DType::E4M3), 1e-5, t);
}

// Each view is used twice by the next one: walking every path would never end.
TEST_F(TapeMaths, LongChainsOfSharedViews) {
  constexpr int kTurns = 40;
  const Expr start = input(g, "start", DType::F32, {64, 5});
  Expr turned = start;
  for (int i = 0; i < kTurns; ++i) turned = concat({slice(turned, 0, 1, 64), slice(turned, 0, 0, 1)}, 0);
  Tensors tensors;
  fill_leaves(std::array{start}, tensors);
  const std::vector<double> from = tensors.at("start").values();
  for (Isa isa : isas()) {
    const std::vector<float> got = run_tape(turned * 2.0, tensors, isa);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 2 * from[(i + kTurns * 5) % from.size()]);
  }
}

TEST_F(TapeMaths, RoundingPoints) {
  for (DType t : {DType::BF16, DType::F16, DType::E4M3, DType::F32}) {
    const Expr wide = x * exp(x * 6.0);  // spans subnormals to overflow
    Tensors tensors;
    fill_leaves(std::array{x}, tensors);
    Oracle oracle(tensors);
    // Exact, given the same f32 argument.
    for (Isa isa : isas()) {
      const std::vector<float> before = run_tape(wide, tensors, isa), after = run_tape(round(wide, t), tensors, isa);
      for (size_t i = 0; i < before.size(); ++i)
        ASSERT_EQ(static_cast<double>(after[i]), round_to(t, static_cast<double>(before[i])));
    }
  }
  expect_oracle(round(round(x, DType::BF16) + 1.0, DType::BF16), 0);
  expect_oracle(cast(x * 3.0, DType::I32), 0);
  expect_oracle(cast(x * 3.0, DType::Bool), 0);
}

TEST_F(TapeMaths, IntegersInRegistersAreThoseThatWouldBeStored) {
  const std::vector<float> values = {NAN, INFINITY, -INFINITY, 1e20f, -1e20f, 300, -300, 40000, -40000, 1.9f, -1.9f};
  const auto n = static_cast<int64_t>(values.size());
  const Expr v = input(g, "v", DType::F32, {1, n});
  Tensors t = {{"v", HostTensor::from(DType::F32, {1, n}, values)}};
  for (DType type : {DType::I64, DType::I32, DType::I16, DType::I8, DType::U8, DType::Bool})
    for (Isa isa : isas()) {
      const std::vector<float> got = run_tape(cast(v, type) + 0.5, t, isa);
      for (size_t i = 0; i < values.size(); ++i) {
        alignas(8) std::array<std::byte, 8> memory{};
        store_element(type, memory.data(), 0, static_cast<double>(values[i]));
        EXPECT_EQ(got[i], static_cast<float>(load_element(type, memory.data(), 0)) + 0.5f)
            << name_of(type) << values[i];
      }
    }
}

TEST_F(TapeMaths, Reductions) {
  for (int64_t cols : {1, 3, 16, 63, 64, 65, 320, 1280, 10240}) {
    const Expr r = input(g, numbered("r", cols), DType::F32, {3, cols});
    const double tolerance = 2e-6 * std::sqrt(static_cast<double>(cols));
    expect_oracle(sum(r), tolerance / 4);
    expect_oracle(mean(r), 2e-6);
    expect_oracle(sumsq(r), 2e-6);
    expect_oracle(reduce_max(r), 0);
    expect_oracle(absmax(r), 0);
  }
}

TEST_F(TapeMaths, LayerNorm) {
  const Expr h = input(g, "h", DType::BF16, {11, 320});
  const Expr centred = h - mean(h);
  const Expr norm = centred * rsqrt(mean(centred * centred) + 1e-5);
  const Expr w = broadcast(input(g, "w", DType::BF16, {320}), {11, 320}),
             b = broadcast(input(g, "b", DType::F32, {320}), {11, 320});
  expect_oracle(norm * w + b, 1e-5);
}

TEST_F(TapeMaths, Softmax) {
  const Expr e = exp(x - reduce_max(x));
  expect_oracle(e / sum(e), 1e-6);
}

TEST_F(TapeMaths, UniformMathsAndLiterals) {
  const Expr row = broadcast(input(g, "row", DType::F32, {9, 1}), {9, 77});
  const Expr s = broadcast(scalar(g, "s"), {9, 77});
  expect_oracle(x * (row * s + 2.0) - y / (s * s + 1.0), 1e-6);
  expect_oracle(row + s, 1e-6);
  expect_oracle(sum(row * s), 1e-5);
  expect_oracle(s, 0);
  expect_oracle(broadcast(constant(g, 3), {9, 77}) + broadcast(constant(g, 4), {9, 77}), 0);
}

TEST_F(TapeMaths, LoadsOverTheSameRow) {
  // Operands that are the same in all rows, and values computed from them, are computed once per block.
  const Expr bias = broadcast(input(g, "bias", DType::BF16, {77}), {9, 77});
  expect_oracle(silu(bias) * x + bias, 1e-6);
  expect_oracle(silu(bias), 1e-6);
  expect_oracle(sum(bias) + x, 1e-5);
}

// Rows that are adjacent in memory are read in squares; blocks of seven rows and 48 columns cut them anywhere.
TEST_F(TapeMaths, LoadsTurned) {
  for (const DType type : {DType::F32, DType::BF16, DType::F16, DType::E4M3, DType::F64, DType::I32})
    for (const auto& [k, n] : {std::pair<int64_t, int64_t>{77, 9}, {1, 40}, {40, 1}, {130, 33}}) {
      const Expr a = input(g, "a", type, {k, n + 3}), turned = transpose(slice(a, 1, 2, n + 2));
      expect_oracle(cast(turned, DType::F32) * 2.0, 0);
    }
  const Expr parts = concat(std::array{input(g, "p", DType::F32, {50, 20}), input(g, "q", DType::F32, {50, 13})}, 1);
  expect_oracle(transpose(parts) * 2.0, 0);
  expect_oracle(sum(transpose(parts)), 1e-6);
}

TEST_F(TapeMaths, StoresEveryTypeThroughViews) {
  for (DType t : {DType::F32, DType::BF16, DType::F16, DType::E4M3, DType::F64, DType::I32, DType::U8}) {
    for (const Isa isa : isas()) {
      Tensors tensors;
      LeafTable leaves;
      const Expr z = input(g, "z", DType::F32, {2, 5, 3, 40});
      const Expr value = cast(abs(z) * 16.0, t);
      fill_leaves(std::array{z}, tensors);
      const std::string name = std::string(name_of(t)) + ".out";
      // Stored as [B, H, S, D] from a domain [B, S, H, D], transposed, and unchanged.
      const Expr heads = permute(input(g, name + "0", t, {2, 3, 5, 40}), {0, 2, 1, 3});
      const Expr turned = permute(input(g, name + "1", t, {2, 40, 5, 3}), {0, 2, 3, 1});
      const Expr plain = reshape(input(g, name + "2", t, {30, 40}), {2, 5, 3, 40});
      std::vector<TapeOutput> outputs;
      for (const Expr& place : {heads, turned, plain}) {
        outputs.push_back({value, place, t});
        const Expr leaf = topological(std::array{place})[0];
        tensors.emplace(leaf->attrs.text, HostTensor::zeros(t, leaf.shape()));
      }
      const Tape tape(outputs, z.shape(), leaves, vec_ops(isa));
      ASSERT_NO_FATAL_FAILURE(run_stores(tape, leaves, tensors));
      Oracle oracle(tensors);
      const std::vector<double> want = oracle.eval(value);
      for (const TapeOutput& o : outputs) EXPECT_EQ(Oracle(tensors).eval(o.place), want) << print(o.place);
    }
  }
}

// Rows adjacent in memory, in whole squares and remainders; also after a reduction of whole rows.
TEST_F(TapeMaths, StoresTurned) {
  for (const DType t : {DType::F32, DType::BF16})
    for (const Isa isa : isas())
      for (const bool reduces : {false, true}) {
        Tensors tensors;
        LeafTable leaves;
        const Expr z = input(g, "z", DType::F32, {53, 45});
        const Expr value = cast(reduces ? max(z * 2.0, reduce_max(z) * 0.25) : z * 2.0, t);
        fill_leaves(std::array{z}, tensors);
        const std::string name = std::string(name_of(t)) + ".turned";
        const TapeOutput out{value, permute(input(g, name, t, {45, 53}), {1, 0}), t};
        tensors.emplace(name, HostTensor::zeros(t, {45, 53}));
        const Tape tape(std::array{out}, z.shape(), leaves, vec_ops(isa));
        EXPECT_EQ(tape.rows_at_once(), 16);
        ASSERT_NO_FATAL_FAILURE(run_stores(tape, leaves, tensors));
        EXPECT_EQ(Oracle(tensors).eval(out.place), Oracle(tensors).eval(value)) << name << " " << reduces;
      }
}

TEST_F(TapeMaths, RefusesWhatIsNotInForm) {
  LeafTable leaves;
  const Expr bad = reshape(x + x, {77, 9});
  EXPECT_THROW(Tape(std::array{TapeOutput{bad, Expr(), DType::F32}}, bad.shape(), leaves, vec_ops(Isa::Avx2)), Error);
  const Expr inner = sum(input(g, "z", DType::F32, {2, 3, 4}), ReduceOver::Inner);
  EXPECT_THROW(Tape(std::array{TapeOutput{inner, Expr(), DType::F32}}, {2, 3, 4}, leaves, vec_ops(Isa::Avx2)), Error);
}

}  // namespace
}  // namespace tenon::cpu
