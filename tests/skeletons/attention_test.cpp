// The attention skeleton.
#include "tests/skeletons/harness.h"

namespace tenon::launches {
namespace {

using Heads = LaunchTest;

// Probabilities may be rounded to the operands' type for the second product.
Rounding tolerance(DType stored, DType arithmetic, int64_t keys) {
  return {stored == DType::F32 ? arithmetic : stored, arithmetic, keys,
          arithmetic == DType::F32 ? 8.0 : std::sqrt(static_cast<double>(keys)) / 4};
}

Expr split_heads(const Expr& x, int64_t heads) {
  const Shape& s = x.shape();
  return permute(reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}
Expr merge_heads(const Expr& o) {
  const Shape& s = o.shape();
  return reshape(permute(o, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

TEST_F(Heads, ShapesAndTypes) {
  struct Case {
    int64_t heads, kv, sq, sk, d;
    bool causal;
  };
  for (DType t : {DType::F32, DType::BF16, DType::F16})
    for (const Case& c : {Case{2, 2, 70, 70, 40, false},
                          {4, 2, 33, 65, 64, true},
                          {1, 1, 1, 300, 80, false},
                          {3, 1, 77, 77, 16, true}}) {
      const std::string id = numbered(numbered(std::string(name_of(t)), c.sq), c.sk);
      const Expr q = input(g, id + ".q", t, {2, c.heads, c.sq, c.d});
      const Expr k = input(g, id + ".k", t, {2, c.kv, c.sk, c.d}), v = input(g, id + ".v", t, {2, c.kv, c.sk, c.d});
      const Expr o = attention(q, k, v, 1 / std::sqrt(static_cast<double>(c.d)), c.causal);
      expect(launch("attention", {{id, cast(o, t)}}), tolerance(t, t, c.sk));
    }
}

TEST_F(Heads, HeadsSplitInTheHolesAndMergedInTheResult) {
  const Expr qkv = input(g, "qkv", DType::BF16, {2, 90, 3 * 160});
  std::vector<Expr> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(split_heads(slice(qkv, -1, i * 160, i * 160 + 160), 4));
  const Expr o = cast(attention(parts[0], parts[1], parts[2], 0.16), DType::BF16);
  expect(launch("attention", {{"o", merge_heads(o)}}), tolerance(DType::BF16, DType::BF16, 90));
}

TEST_F(Heads, MathsInTheHoles) {
  // Norms of heads, a rounding point, a scale before the product.
  const Expr q = input(g, "q", DType::BF16, {1, 3, 50, 32}), k = input(g, "k", DType::BF16, {1, 3, 60, 32}),
             v = input(g, "v", DType::BF16, {1, 3, 60, 32});
  const auto norm = [](const Expr& x) { return cast(x * rsqrt(mean(x * x) + 1e-6), DType::BF16); };
  const Expr o = attention(norm(q), norm(k), cast(silu(v), DType::BF16), 0.2);
  expect(launch("attention", {{"o", o * 2.0}}), tolerance(DType::BF16, DType::BF16, 60));
  const Expr f = attention(q * 0.5, k * 2.0, v * 1.5, 0.2);
  expect(launch("attention", {{"f", f}}), tolerance(DType::F32, DType::F32, 60));
}

// The core for few queries computes maths in front of them, but reduces no rows.
TEST_F(Heads, NormsOfFewQueries) {
  const Expr q = input(g, "q", DType::BF16, {2, 4, 1, 64}), k = input(g, "k", DType::BF16, {2, 2, 60, 64}),
             v = input(g, "v", DType::BF16, {2, 2, 60, 64});
  const Expr normed = cast(q * rsqrt(mean(q * q) + 1e-6), DType::BF16);
  expect(launch("attention", {{"o", attention(normed, k, v, 0.2)}}), tolerance(DType::BF16, DType::BF16, 60));
}

TEST_F(Heads, KeysFromE4m3) {
  const Expr q = input(g, "q", DType::F32, {1, 2, 20, 32}), k = input(g, "k", DType::E4M3, {1, 2, 40, 32}),
             v = input(g, "v", DType::E4M3, {1, 2, 40, 32});
  expect(launch("attention", {{"o", attention(q, k, v, 0.2)}}), tolerance(DType::F32, DType::F32, 40));
}

// Keys after the valid ones are not read: they may be NaN.
TEST_F(Heads, AsManyKeysAsANumberSays) {
  for (DType t : {DType::F32, DType::BF16})
    for (const bool causal : {false, true})
      for (const int64_t depth : {40, 192}) {  // the second in blocks of columns
        const std::string id = numbered(std::string(name_of(t)) + (causal ? ".causal" : ""), depth);
        const auto there = [&](int64_t b) { return b == 0 ? 70 : 9; };
        const auto cache = [&](const std::string& name) {
          HostTensor x = random_tensor(t, {2, 2, 300, depth}, 7);
          for (int64_t b = 0; b < 2; ++b)
            for (int64_t i = 0; i < 600; ++i)
              if (i % 300 >= there(b))
                for (int64_t d = 0; d < depth; ++d) store_element(t, x.data.data(), (b * 600 + i) * depth + d, NAN);
          tensors.emplace(id + name, x);
          return input(g, id + name, t, {2, 2, 300, depth});
        };
        const Expr q = input(g, id + ".q", t, {2, 4, 3, depth}), k = cache(".k"), v = cache(".v");
        tensors.emplace(id + ".n", HostTensor::from(DType::I32, {2}, std::vector<double>{70, 9}));
        tensors.emplace(id + ".one", HostTensor::from(DType::I32, {}, std::vector<double>{9}));
        const double scale = 1 / std::sqrt(static_cast<double>(depth));
        const Expr of_each = attention(q, k, v, scale, causal, input(g, id + ".n", DType::I32, {2}));
        expect(launch("attention", {{id, cast(of_each, t)}}), tolerance(t, t, 70));
        const Expr n = input(g, id + ".one", DType::I32, {});
        expect(launch("attention", {{id + ".few", cast(attention(q, k, v, scale, causal, n), t)}}), tolerance(t, t, 9));
      }
}

// Whole tiles of keys, parts of them, and one, with many queries: a padded text next to a picture.
TEST_F(Heads, AsManyKeysAsNumbersSayForManyQueries) {
  constexpr int64_t kCapacity = 300;
  for (DType t : {DType::F32, DType::BF16, DType::F16})
    for (const bool causal : {false, true}) {
      const std::vector<double> there = {causal ? 70.0 : 1.0, 77, 256, 300, 299};
      const std::string id = std::string(name_of(t)) + (causal ? ".causal" : "");
      const auto batch = static_cast<int64_t>(there.size());
      const auto behind_nan = [&](const std::string& name) {
        HostTensor x = random_tensor(t, {batch, 2, kCapacity, 40}, 7);
        for (int64_t row = 0; row < batch * 2 * kCapacity; ++row)
          if (row % kCapacity >= static_cast<int64_t>(there[static_cast<size_t>(row / kCapacity / 2)]))
            for (int64_t d = 0; d < 40; ++d) store_element(t, x.data.data(), row * 40 + d, NAN);
        tensors.emplace(id + name, x);
        return input(g, id + name, t, {batch, 2, kCapacity, 40});
      };
      tensors.emplace(id + ".n", HostTensor::from(DType::I32, {batch}, there));
      const Expr q = input(g, id + ".q", t, {batch, 2, 70, 40}), n = input(g, id + ".n", DType::I32, {batch});
      const Expr y = attention(q, behind_nan(".k"), behind_nan(".v"), 0.16, causal, n);
      expect(launch("attention", {{id, cast(y, t)}}), tolerance(t, t, kCapacity));
    }
}

// Keys and values in pages of a pool, out of order, as in a cache that texts share: bit-identical to contiguous keys.
// Keys after the valid ones are not read.
TEST_F(Heads, KeysInPages) {
  constexpr int64_t kCapacity = 384, kHeads = 2;
  const std::vector<double> there = {70, 384, 130};
  const auto batch = static_cast<int64_t>(there.size());
  struct Case {
    DType type;
    int64_t page, queries, depth;
  };
  for (const Case& c : {Case{DType::F32, 128, 1, 40},
                        {DType::F32, 32, 70, 40},
                        {DType::BF16, 128, 1, 64},
                        {DType::BF16, 64, 3, 128},
                        {DType::BF16, 128, 70, 64},
                        {DType::BF16, 64, 70, 80},
                        {DType::F16, 128, 66, 128},
                        {DType::BF16, 128, 20, 192},
                        {DType::BF16, 32, 3, 64}}) {
    const auto t = c.type;
    const auto page = c.page, queries = c.queries, depth = c.depth;
    const std::string id = numbered(numbered(numbered(std::string(name_of(t)), page), queries), depth);
    SCOPED_TRACE(id);
    const int64_t of_entry = kCapacity / page, pages = batch * of_entry + 2, row = kHeads * depth;
    std::vector<double> numbers;
    for (int64_t i = 0; i < batch * of_entry; ++i) numbers.push_back(static_cast<double>((i * 7 + 3) % pages));
    tensors.insert_or_assign(id + ".pages", HostTensor::from(DType::I32, {batch, of_entry}, numbers));
    tensors.insert_or_assign(id + ".n", HostTensor::from(DType::I32, {batch}, there));
    const Expr table = input(g, id + ".pages", DType::I32, {batch, of_entry}),
               n = input(g, id + ".n", DType::I32, {batch});
    const auto heads = [&](const Expr& x) {
      return permute(reshape(x, {batch, kCapacity, kHeads, depth}), {0, 2, 1, 3});
    };
    const auto paged = [&](const std::string& name) {
      HostTensor pool = random_tensor(t, {pages, page, kHeads, depth}, 7);
      HostTensor own = random_tensor(t, {batch, kCapacity, kHeads, depth}, 7);
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t i = 0; i < kCapacity; ++i) {
          const auto of = static_cast<int64_t>(numbers[static_cast<size_t>(b * of_entry + i / page)]);
          const int64_t at = (of * page + i % page) * row;
          for (int64_t d = 0; d < row; ++d) {
            if (i >= static_cast<int64_t>(there[static_cast<size_t>(b)]))
              store_element(t, pool.data.data(), at + d, NAN);
            store_element(t, own.data.data(), (b * kCapacity + i) * row + d, load_element(t, pool.data.data(), at + d));
          }
        }
      tensors.insert_or_assign(id + name, pool);
      tensors.insert_or_assign(id + name + ".own", own);
      return std::pair{heads(gather(input(g, id + name, t, {pages, page, kHeads, depth}), table)),
                       heads(input(g, id + name + ".own", t, {batch, kCapacity, kHeads, depth}))};
    };
    const Expr q = input(g, id + ".q", t, {batch, 2 * kHeads, queries, depth});
    const auto [k, own_k] = paged(".k");
    const auto [v, own_v] = paged(".v");
    const Launch in_pages = launch("attention", {{"y", cast(attention(q, k, v, 0.12, true, n), t)}});
    expect(in_pages, tolerance(t, t, kCapacity));
    const Launch own = launch("attention", {{"y", cast(attention(q, own_k, own_v, 0.12, true, n), t)}});
    if (page < 128 && queries > 16) continue;  // larger tiles of keys may be taken, if contiguous
    for (const Runner& runner : runners())
      EXPECT_EQ(runner.run(in_pages, tensors).at("y").data, runner.run(own, tensors).at("y").data) << runner.name;
  }
}

// Also scales that turn the order of scores around, make all equal or nearly so.
TEST_F(Heads, AnyScale) {
  for (const DType t : {DType::F32, DType::BF16})
    for (const int64_t queries : {1, 9}) {
      const std::string id = std::to_string(queries) + std::string(name_of(t));
      const Expr q = input(g, "q" + id, t, {1, 2, queries, 16}), k = input(g, "k" + id, t, {1, 2, 20, 16});
      for (const double scale : {-0.3, 0.0, 1e-30, -1e-28, 1e-46}) {
        const Expr y = attention(q, k, k, scale, queries == 9);
        expect(launch("attention", {{"y", y}, {"lse", attention_lse(y)}}), tolerance(DType::F32, t, 20));
      }
    }
}

// Of several heads, with one query each: not rows of one page.
TEST_F(Heads, QueriesByNumber) {
  for (const int64_t queries : {1, 3}) {
    const std::string id = std::to_string(queries);
    std::vector<double> numbers;
    for (int i = 0; i < 16; ++i) numbers.push_back(i * 5 % 6);
    tensors.insert_or_assign("i" + id, HostTensor::from(DType::I32, {4, 4}, numbers));
    const Expr q = gather(input(g, "x" + id, DType::F32, {6, queries, 32}), input(g, "i" + id, DType::I32, {4, 4}));
    const Expr k = input(g, "k" + id, DType::F32, {4, 1, 15, 32});
    expect(launch("attention", {{"y" + id, attention(q, k, k, 0.25)}}), tolerance(DType::F32, DType::F32, 15));
  }
}

// Rows that are not whole 16-byte fragments, which no tensor-core kernel takes: padded, or in pages read as they are.
TEST_F(Heads, AnyNumberOfColumns) {
  const std::vector<double> numbers = {5, 2, 7, 0, 1, 4, 6, 8};
  for (DType t : {DType::F32, DType::BF16})
    for (const int64_t depth : {18, 33, 130}) {
      const std::string id = numbered(std::string(name_of(t)), depth);
      const Expr q = input(g, id + ".q", t, {2, 4, 5, depth}), k = input(g, id + ".k", t, {2, 2, 64, depth}),
                 v = input(g, id + ".v", t, {2, 2, 64, depth});
      expect(launch("attention", {{id, cast(attention(q, k, v, 0.2, true), t)}}), tolerance(t, t, 64));
      tensors.insert_or_assign(id + ".pages", HostTensor::from(DType::I32, {2, 4}, numbers));
      const Expr table = input(g, id + ".pages", DType::I32, {2, 4});
      const auto paged = [&](const std::string& name) {
        const Expr pool = input(g, id + name + ".pool", t, {9, 16, 2, depth});
        return permute(reshape(gather(pool, table), {2, 64, 2, depth}), {0, 2, 1, 3});
      };
      const Expr y = attention(q, paged(".k"), paged(".v"), 0.2);
      expect(launch("attention", {{id + ".paged", cast(y, t)}}), tolerance(t, t, 64));
    }
}

TEST_F(Heads, LogsOfSumsLeaveWithTheResult) {
  for (DType t : {DType::F32, DType::BF16})
    for (const bool causal : {false, true})
      for (const int64_t depth : {40, 192}) {
        const std::string id = numbered(std::string(name_of(t)) + (causal ? ".causal" : ""), depth);
        const Expr q = input(g, id + ".q", t, {2, 4, 33, depth}), k = input(g, id + ".k", t, {2, 2, 300, depth});
        const Expr y = attention(q, k, k, 1 / std::sqrt(static_cast<double>(depth)), causal);
        expect(launch("attention", {{id, cast(y, t)}, {id + ".lse", attention_lse(y)}}), tolerance(t, t, 300));
      }
}

TEST_F(Heads, NaNInOneQuery) {
  tensors.emplace("q", random_tensor(DType::BF16, {1, 2, 40, 32}, 3));
  store_element(DType::BF16, tensors.at("q").data.data(), 45 * 32 + 3, NAN);
  const Expr q = input(g, "q", DType::BF16, {1, 2, 40, 32}), k = input(g, "k", DType::BF16, {1, 2, 40, 32});
  expect(launch("attention", {{"o", attention(q, k, k, 0.2)}}), tolerance(DType::F32, DType::BF16, 40),
         NaN::MayBeExpected);
}

// All keys of a head at once, as in transformers for pictures.
TEST_F(Heads, FewKeys) {
  const Expr qkv = input(g, "qkv", DType::F16, {2, 140, 3 * 128});
  std::vector<Expr> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(split_heads(slice(qkv, -1, i * 128, i * 128 + 128), 2));
  const Expr o = cast(attention(parts[0], parts[1], parts[2], 0.125), DType::F16);
  expect(launch("attention", {{"o", merge_heads(o)}}), tolerance(DType::F16, DType::F16, 140));
}

// The single head of an image decoder.
TEST_F(Heads, DeepHead) {
  const Expr qkv = input(g, "qkv", DType::F16, {1, 520, 3 * 512});
  std::vector<Expr> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(split_heads(slice(qkv, -1, i * 512, i * 512 + 512), 1));
  const Expr o = cast(attention(parts[0], parts[1], parts[2], 1 / std::sqrt(512.0)), DType::F16);
  expect(launch("attention", {{"o", merge_heads(o)}}), tolerance(DType::F16, DType::F16, 520));
}

TEST_F(Heads, FullSize) {
  const Expr qkv = input(g, "qkv", DType::BF16, {1, 1024, 3 * 320});
  std::vector<Expr> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(split_heads(slice(qkv, -1, i * 320, i * 320 + 320), 8));
  const Expr o = cast(attention(parts[0], parts[1], parts[2], 1 / std::sqrt(40.0)), DType::BF16);
  expect(launch("attention", {{"o", merge_heads(o)}}), tolerance(DType::BF16, DType::BF16, 1024));
}

}  // namespace
}  // namespace tenon::launches
