// Attention over a few tokens that also writes their keys and values into the caches that it reads, in one launch,
// against the oracle: contents of caches, and results.
#include "tenon/nn/rotary.h"
#include "tests/cuda/emulated_runner.h"

namespace tenon::launches {
namespace {

struct CacheCase {
  int64_t heads, key_heads, depth, tokens, capacity;
  std::vector<double> positions;  ///< per sequence, tokens already in the cache
  DType type = DType::BF16;
  int64_t page = 0;  ///< tokens per page of the caches; 0: an entry's tokens are contiguous
  int64_t of_page() const { return page ? page : capacity; }
  int64_t pages() const { return static_cast<int64_t>(positions.size()) * capacity / of_page() + (page ? 3 : 0); }
};

class CacheWrite : public LaunchTest {
 protected:
  static double place(const CacheCase& c, const std::vector<double>& numbers, int64_t entry, int64_t token) {
    const auto i = static_cast<size_t>(entry * (c.capacity / c.of_page()) + token / c.of_page());
    return numbers[i] * static_cast<double>(c.of_page()) + static_cast<double>(token % c.of_page());
  }

  // `skip`: some rows have no place, like those of a batch entry without a text. `hide`: pages after an entry's last
  // are invalid.
  Launch made(const CacheCase& c, bool skip = false, bool hide = false) {
    const auto batch = static_cast<int64_t>(c.positions.size());
    const int64_t q_width = c.heads * c.depth, k_width = c.key_heads * c.depth;
    std::vector<double> at, there, numbers;
    const int64_t of_entry = c.capacity / c.of_page();
    // Pages are assigned out of order, and some belong to nobody.
    for (int64_t i = 0; i < batch * of_entry; ++i)
      numbers.push_back(static_cast<double>(c.page ? (i * 7 + 2) % c.pages() : i));
    for (int64_t b = 0; b < batch; ++b) {
      const double position = c.positions[static_cast<size_t>(b)];
      there.push_back(position + static_cast<double>(c.tokens));
      for (int64_t t = 0; t < c.tokens; ++t)
        at.push_back(skip && b + t == 0 ? -1.0 : place(c, numbers, b, t + static_cast<int64_t>(position)));
      if (hide)
        for (int64_t i = (static_cast<int64_t>(position) + c.tokens + c.page - 1) / c.page; i < of_entry; ++i)
          numbers[static_cast<size_t>(b * of_entry + i)] = -1;
    }
    const Expr pages = input(g, "pages", DType::I32, {batch, of_entry});
    tensors.insert_or_assign("pages", HostTensor::from(DType::I32, {batch, of_entry}, numbers));
    tensors.insert_or_assign("at", HostTensor::from(DType::I32, {batch, c.tokens}, at));
    tensors.insert_or_assign("there", HostTensor::from(DType::I32, {batch}, there));
    const Expr index = input(g, "at", DType::I32, {batch, c.tokens}), keys = input(g, "there", DType::I32, {batch});
    const Expr qkv = input(g, "qkv", c.type, {batch, c.tokens, q_width + 2 * k_width});
    const nn::Rotary by{input(g, "cos", c.type, {batch, c.tokens, 1, c.depth}),
                        input(g, "sin", c.type, {batch, c.tokens, 1, c.depth})};
    const auto heads = [&](int64_t from, int64_t count) {
      return reshape(slice(qkv, -1, from, from + count * c.depth), {batch, c.tokens, count, c.depth});
    };
    const auto cache = [&](const std::string& name, const Expr& rows) {
      const Shape all{c.pages() * c.of_page(), c.key_heads, c.depth};
      return update_rows(state(g, name, c.type, all), index, rows);
    };
    const auto seen = [&](const Expr& pool) {
      const Shape by_page{c.pages(), c.page, c.key_heads, c.depth};
      const Expr all = c.page ? gather(reshape(pool, by_page), pages) : pool;
      return permute(reshape(all, {batch, c.capacity, c.key_heads, c.depth}), {0, 2, 1, 3});
    };
    const Expr k = cache("k", cast(nn::rotate(heads(q_width, c.key_heads), by), c.type));
    const Expr v = cache("v", heads(q_width + k_width, c.key_heads));
    const Expr q = permute(cast(nn::rotate(heads(0, c.heads), by), c.type), {0, 2, 1, 3});
    const double scale = 1 / std::sqrt(static_cast<double>(c.depth));
    const Expr y = cast(attention(q, seen(k), seen(v), scale, true, keys), c.type);
    return launch("attention",
                  {{"y", reshape(permute(y, {0, 2, 1, 3}), {batch, c.tokens, q_width})}, {"k", k}, {"v", v}});
  }
  void check(const CacheCase& c) {
    tensors.clear();
    const Launch l = made(c);
    ASSERT_EQ(l.form->updates.size(), 2U);
    expect(l, {c.type, c.type, c.capacity, std::sqrt(static_cast<double>(c.capacity)) / 4});
  }
};

TEST_F(CacheWrite, AToken) {
  check({14, 2, 64, 1, 300, {0}});
  check({14, 2, 64, 1, 300, {299}});
  check({14, 2, 64, 1, 600, {511}});
  check({4, 4, 128, 1, 520, {257}});
  check({16, 2, 128, 1, 300, {130}, DType::F16});
}
TEST_F(CacheWrite, ABatchWherePositionsDiffer) {
  std::vector<double> positions;
  for (int b = 0; b < 16; ++b) positions.push_back(b * 19 % 290);
  check({14, 2, 64, 1, 290, positions});
  check({9, 3, 64, 1, 530, {529, 0, 255, 256, 512}});
}
TEST_F(CacheWrite, SeveralTokensAcrossSegments) {
  check({4, 2, 64, 8, 520, {250, 0, 512}});
  check({2, 2, 32, 16, 300, {249}, DType::F16});
}
// More segments than are combined at a time.
TEST_F(CacheWrite, ManySegments) { check({7, 1, 16, 1, 17000, {16999}}); }

TEST_F(CacheWrite, CachesInPages) {
  check({14, 2, 64, 1, 384, {0}, DType::BF16, 128});
  check({14, 2, 64, 1, 384, {383}, DType::BF16, 128});
  check({4, 4, 128, 1, 512, {257, 128, 127}, DType::F16, 64});
  check({9, 3, 64, 1, 640, {639, 0, 255, 256, 512}, DType::BF16, 128});
  check({4, 2, 64, 8, 512, {250, 0, 500}, DType::BF16, 64});  // tokens of one segment in two pages
  check({2, 2, 32, 16, 384, {120}, DType::F16, 128});
  check({2, 1, 16, 1, 128, {77, 3}, DType::BF16, 128});  // one page per entry
  check({7, 1, 16, 1, 16384, {16383}, DType::BF16, 128});
}

// Without a page nothing is read or written.
TEST_F(CacheWrite, EntriesWithFewerPages) {
  for (const int64_t tokens : {1, 8}) {
    const CacheCase c{4, 2, 64, tokens, 1024, {20, 130, 700}, DType::BF16, 128};
    tensors.clear();
    const Launch l = made(c);
    const Launch hidden = [&] {
      const Tensors all = tensors;
      Launch out = made(c, false, true);
      const HostTensor pages = tensors.at("pages");
      tensors = all;
      tensors.insert_or_assign("some pages", pages);
      return out;
    }();
    for (const Runner& runner : runners()) {
      const Tensors whole = runner.run(l, tensors);
      Tensors with = tensors;
      with.insert_or_assign("pages", tensors.at("some pages"));
      const Tensors got = runner.run(hidden, with);
      for (const char* name : {"y", "k", "v"}) EXPECT_EQ(got.at(name).data, whole.at(name).data) << runner.name << name;
    }
  }
}

// A row without a place is not written.
TEST_F(CacheWrite, ARowWithoutAPlace) {
  const CacheCase c{4, 2, 64, 1, 300, {20, 30}};
  const Launch l = made(c, true);
  for (const Runner& runner : runners()) {
    const Tensors got = runner.run(l, tensors);
    const auto row = [&](const Tensors& from, int64_t r) {
      const std::vector<std::byte>& all = from.at("k").data;
      const auto bytes = static_cast<std::ptrdiff_t>(all.size() / 600);
      return std::vector<std::byte>(all.begin() + r * bytes, all.begin() + (r + 1) * bytes);
    };
    for (const int64_t r : {0, 20, 29, 299, 329}) EXPECT_EQ(row(got, r), row(tensors, r)) << runner.name << " " << r;
    EXPECT_NE(row(got, 330), row(tensors, 330)) << runner.name;
  }
}

}  // namespace
}  // namespace tenon::launches
