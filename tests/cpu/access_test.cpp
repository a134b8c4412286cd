// Chains of views, loaded through accesses, must match the oracle exactly.
#include "tests/cpu/tape_fixture.h"

namespace tenon::cpu {
namespace {

struct Views : testing::Test {
  Graph g;
  Expr x = input(g, "x", DType::F32, {2, 6, 8, 40});
  bool affine(const Expr& e) {
    LeafTable leaves;
    const Access a(e, e.shape(), std::max(e.shape().rank() - 1, 0), leaves);
    return !a.pieces().empty();
  }
};

TEST_F(Views, Identity) {
  expect_oracle(x, 0);
  EXPECT_TRUE(affine(x));
}

TEST_F(Views, EveryStorageType) {
  for (DType t : {DType::F32, DType::BF16, DType::F16, DType::E4M3, DType::F64, DType::I32, DType::I64, DType::I16,
                  DType::I8, DType::U8, DType::Bool})
    for (int64_t cols : {1, 4, 16, 40, 77})
      expect_oracle(input(g, numbered(std::string(name_of(t)), cols), t, {5, cols}), t == DType::F64 ? 1e-7 : 0);
}

TEST_F(Views, PermutedHeads) {
  // [B,S,H*D] as [B,H,S,D] and back.
  const Expr q = permute(reshape(input(g, "q", DType::BF16, {2, 9, 48}), {2, 9, 3, 16}), {0, 2, 1, 3});
  expect_oracle(q, 0);
  EXPECT_TRUE(affine(q));
  const Expr o = reshape(permute(input(g, "o", DType::F32, {2, 3, 9, 40}), {0, 2, 1, 3}), {18, 120});
  expect_oracle(o, 0);
  EXPECT_TRUE(affine(o));
}

TEST_F(Views, TransposedColumns) {
  const Expr nchw = permute(input(g, "n", DType::F16, {2, 20, 6, 8}), {0, 2, 3, 1});
  expect_oracle(nchw, 0);
  EXPECT_TRUE(affine(nchw));
  expect_oracle(transpose(input(g, "t", DType::E4M3, {33, 50})), 0);
}

TEST_F(Views, BroadcastOverRowsAndColumns) {
  expect_oracle(broadcast(input(g, "bias", DType::BF16, {40}), {2, 6, 8, 40}), 0);
  expect_oracle(broadcast(input(g, "scale", DType::F32, {2, 1, 1, 40}), {2, 6, 8, 40}), 0);
  expect_oracle(broadcast(input(g, "row", DType::F32, {2, 6, 8, 1}), {2, 6, 8, 40}), 0);
  expect_oracle(broadcast(input(g, "one", DType::F32, {1}), {7, 33}), 0);
  expect_oracle(broadcast(scalar(g, "s"), {7, 33}), 0);
  expect_oracle(broadcast(reshape(input(g, "group", DType::F32, {2, 4, 1}), {2, 1, 1, 4, 1}), {2, 3, 5, 4, 10}), 0);
}

TEST_F(Views, GroupChannelsAsColumns) {
  // A value per group of ten channels, read over [B, H, W, C].
  const Expr per_channel = reshape(broadcast(input(g, "g", DType::F32, {2, 4, 1}), {2, 4, 10}), {2, 1, 1, 40});
  const Expr e = broadcast(per_channel, {2, 6, 8, 40});
  expect_oracle(e, 0);
  EXPECT_TRUE(affine(e));
}

TEST_F(Views, Upsample) {
  expect_oracle(upsample2x(x), 0);
  EXPECT_TRUE(affine(upsample2x(x)));
  expect_oracle(resize_nearest(x, 9, 5), 0);
  expect_oracle(resize_nearest(x, 3, 16), 0);
  expect_oracle(reshape(upsample2x(x), {2 * 12 * 16, 40}), 0);
}

TEST_F(Views, Concat) {
  const Expr y = input(g, "y", DType::F32, {2, 6, 8, 25});
  const Expr skip = concat({x, y, x}, -1);
  expect_oracle(skip, 0);
  EXPECT_TRUE(affine(skip));
  const Expr batch = concat({x, slice(x, 0, 1, 2)}, 0);
  expect_oracle(batch, 0);
  EXPECT_TRUE(affine(batch));
  expect_oracle(concat({x, x}, 1), 0);
  expect_oracle(upsample2x(concat({x, y}, 3)), 0);
  expect_oracle(reshape(concat({x, y}, 3), {96, 65}), 0);
  expect_oracle(permute(concat({x, y}, 3), {0, 3, 1, 2}), 0);
}

TEST_F(Views, ConcatOfReshaped) {
  const Expr a = reshape(input(g, "a", DType::F32, {12, 4, 10}), {12, 40}),
             b = transpose(input(g, "b", DType::F32, {30, 12}));
  expect_oracle(concat({a, b}, 1), 0);
  expect_oracle(concat({a, a, slice(a, 0, 3, 8)}, 0), 0);
}

TEST_F(Views, SliceAndPad) {
  expect_oracle(slice(slice(x, 3, 7, 29), 1, 2, 5), 0);
  expect_oracle(pad(x, {0, 0, 0, 0, 0, 0, 3, 6}), 0);
  expect_oracle(pad(x, {1, 1, 0, 0, 0, 0, 0, 0}), 0);
  expect_oracle(pad(x, {0, 0, 1, 2, 2, 1, 0, 0}), 0);
  expect_oracle(pad(x, {1, 0, 1, 2, 2, 1, 5, 4}), 0);
  expect_oracle(slice(pad(x, {0, 0, 0, 0, 0, 0, 3, 6}), 3, 1, 47), 0);
}

TEST_F(Views, Gather) {
  const Expr table = input(g, "table", DType::BF16, {10, 24});
  const Expr index = input(g, "index", DType::I32, {2, 7});
  expect_oracle(gather(table, index), 0, {}, 10);
  expect_oracle(gather(table, reshape(input(g, "wide", DType::I64, {3, 6}), {18})), 0, {}, 10);
  expect_oracle(reshape(gather(table, index), {2, 7, 4, 6}), 0, {}, 10);
  expect_oracle(gather(table, scalar(g, "which", DType::I32)), 0, {}, 10);
  expect_oracle(gather(table, slice(iota(g, 10), 0, 3, 8)), 0);
  Tensors bad;
  bad.emplace("index", HostTensor::from(DType::I32, {2, 7}, std::vector<double>(14, 10)));
  fill_leaves(std::array{table}, bad);
  EXPECT_THROW(run_tape(gather(table, index), bad, Isa::Avx2), Error);
  bad.emplace("far", HostTensor::from(DType::I64, {1}, std::vector<double>{4294967297}));  // 2^32 + 1
  EXPECT_THROW(run_tape(gather(table, input(g, "far", DType::I64, {1})), bad, Isa::Avx2), Error);
}

TEST_F(Views, ReshapeThatDoesNotDivide) {
  const Expr y = reshape(permute(input(g, "y", DType::F32, {6, 10}), {1, 0}), {4, 15});
  expect_oracle(y, 0);
  expect_oracle(reshape(slice(input(g, "z", DType::F32, {6, 10}), 1, 1, 8), {7, 6}), 0);
}

TEST_F(Views, FlipAndPairSwap) {
  const Expr y = input(g, "y", DType::F32, {2, 6, 8, 24});
  for (int axis : {0, 1, 2, 3}) {
    for (const Expr& e : {x, concat({x, y}, 3), concat({x, flip(x, 0)}, 0), pad(x, {1, 2, 0, 0, 0, 0, 0, 0}),
                          pad(x, {0, 0, 0, 0, 0, 0, 8, 4}), upsample2x(x)}) {
      expect_oracle(flip(e, axis), 0);
      EXPECT_TRUE(affine(flip(e, axis))) << axis << "\n" << print(e);
      expect_oracle(pair_swap(flip(e, axis)), 0);
    }
  }
  for (int64_t cols : {2, 14, 16, 40, 64}) {
    const Expr z = input(g, numbered("z", cols), DType::BF16, {5, cols});
    expect_oracle(pair_swap(z), 0);
    EXPECT_TRUE(affine(pair_swap(z)));
  }
  expect_oracle(reshape(flip(reshape(x, {2, 6, 8, 4, 10}), 4), {2, 6, 8, 40}), 0);
}

// Random chains of views: compares an access's pieces with the views one by one.
TEST_F(Views, RandomChains) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const auto view = [&](const Expr& e) -> Expr {
    const Shape& s = e.shape();
    const int axis = static_cast<int>(below(s.rank()));
    const int64_t n = s[axis], first = below(n);
    switch (below(10)) {
      case 0:
        return slice(e, axis, first, first + 1 + below(n - first));
      case 1:
        return permute(e, axis == 0 ? std::vector<int64_t>{1, 0, 2} : std::vector<int64_t>{0, 2, 1});
      case 2:
        return reshape(e, n % 2 ? Shape{1, s[0] * s[1], s[2]} : Shape{s.numel() / n, 2, n / 2});
      case 3: {
        std::vector<int64_t> counts(6, 0);
        counts[static_cast<size_t>(below(6))] = 1 + below(3);
        return pad(e, counts);
      }
      case 4:
        return concat({e, slice(e, axis, first, n), e}, axis);
      case 5:
        return reshape(upsample2x(reshape(e, {1, s[0], s[1], s[2]})), {2 * s[0], 2 * s[1], s[2]});
      case 6:
        return s[-1] % 2 ? e : pair_swap(e);
      case 7:
        return broadcast(reshape(e, {s[0] * s[1], 1, s[2]}), {s[0] * s[1], 2, s[2]});
      default:
        return flip(e, axis);
    }
  };
  int of_pieces = 0;
  for (int i = 0; i < 600; ++i) {
    Expr e = input(g, numbered("r", i), DType::F32, {1 + below(4), 2 * (1 + below(4)), 4 * (1 + below(4))});
    for (int64_t k = 1 + below(6); k > 0 && e.shape().numel() < 4000; --k) e = view(e);
    of_pieces += affine(e);
    expect_oracle(e, 0);
    if (HasFailure()) FAIL() << print(e);
  }
  EXPECT_GT(of_pieces, 200);
  EXPECT_LT(of_pieces, 550);
}

TEST_F(Views, LowRanks) {
  expect_oracle(input(g, "v", DType::F32, {50}), 0);
  expect_oracle(scalar(g, "s"), 0);
  expect_oracle(iota(g, 30), 0);
  expect_oracle(reshape(iota(g, 30), {5, 6}), 0);
  expect_oracle(broadcast(constant(g, 2.5), {3, 5}), 0);
  expect_oracle(constant(g, 2.5), 0);
}

TEST_F(Views, StepsOfHeads) {
  LeafTable leaves;
  const Expr q = permute(reshape(input(g, "q", DType::BF16, {2, 9, 48}), {2, 9, 3, 16}), {0, 2, 1, 3});
  const std::optional<Strided> s = strided(q, leaves);
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->stride[0], 9 * 48);
  EXPECT_EQ(s->stride[1], 16);
  EXPECT_EQ(s->stride[2], 48);
  EXPECT_EQ(s->stride[3], 1);
  EXPECT_FALSE(strided(upsample2x(x), leaves).has_value());
}

}  // namespace
}  // namespace tenon::cpu
