// States that outlive runs and are shared, attention over the valid keys, and a decoder that runs on its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/core/error.h"
#include "tenon/core/host_tensor.h"
#include "tenon/expr/ops.h"
#include "tenon/oracle/oracle.h"
#include "tenon/runtime/executable.h"
#include "tests/runtime/places.h"
#include "tests/support/close.h"

namespace tenon {
namespace {
using places::Place;
using places::places;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

HostView state_view(const HostTensor& t) { return {t.dtype, t.shape, t.data.data()}; }

Plan counter_plan() {
  Graph g;
  const Expr count = state(g, "count", DType::I32, {1}), by = input(g, "by", DType::F32, {1});
  return make_plan(std::array{Result{"before", count + 0.0},
                              Result{"count", update_rows(count, iota(g, 1), cast(count + by, DType::I32))}});
}

TEST(State, OutlivesRunsAndExecutables) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const auto states = std::make_shared<Buffers>(place.backend);
    {
      Executable e(counter_plan(), place.backend, HostWeights(), {}, nullptr, states);
      EXPECT_EQ(e.allocated().states, 4);
      e.set("by", std::vector<float>{1});
      for (int run = 0; run < 3; ++run) {
        e.run();
        EXPECT_THAT(e.get("before"), ElementsAre(run));
        EXPECT_THAT(e.get("count"), ElementsAre(run + 1));
      }
      e.enqueue(Rate::Step, 7);
      e.wait();
      EXPECT_THAT(e.get("count"), ElementsAre(10));
    }
    Executable other(counter_plan(), place.backend, HostWeights(), {}, nullptr, states);
    EXPECT_EQ(other.allocated().shared, 4);
    Executable alone(counter_plan(), place.backend, HostWeights());
    for (Executable* e : {&other, &alone}) {
      e->set("by", std::vector<float>{5});
      e->run();
    }
    EXPECT_THAT(other.get("count"), ElementsAre(15));
    EXPECT_THAT(alone.get("count"), ElementsAre(5)) << "zero when it is made";
    other.set("count", std::vector<float>{100});
    other.run();
    EXPECT_THAT(other.get("before"), ElementsAre(100));
  }
}

TEST(State, SharedStatesAreOfOneKind) {
  const std::shared_ptr<Backend> backend = make_backend("cpu", {1});
  const auto states = std::make_shared<Buffers>(backend);
  const Executable e(counter_plan(), backend, HostWeights(), {}, nullptr, states);
  Graph g;
  const Expr count = state(g, "count", DType::F32, {1});
  const Plan other = make_plan(std::array{Result{"y", count + 1.0}});
  try {
    Executable(other, backend, HostWeights(), {}, nullptr, states);
    ADD_FAILURE() << "another type was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the state is i32[1], but the plan expects f32[1]"));
  }
}

// ---- a decoder ----------------------------------------------------------------------------------------------------

constexpr int64_t kTokens = 20, kCapacity = 24, kWidth = 32, kHeads = 4, kKeyHeads = 2, kDepth = 8, kWords = 40;

struct ToyDecoder {
  Graph& g;
  DType act;

  Expr weight(const std::string& name, int64_t rows, int64_t cols) const { return param(g, name, act, {rows, cols}); }
  Expr product(const Expr& x, const std::string& name, int64_t outputs) const {
    return linear(cast(x, act), weight(name, outputs, x.shape()[-1]));
  }
  static Expr norm(const Expr& x) { return x * rsqrt(mean(x * x) + 1e-5); }
  // Heads [n, H, D] rotated by the angles of their positions.
  Expr turned(const Expr& x, const Expr& position) const {
    const auto table = [&](const char* name) {
      const Expr rows = gather(param(g, name, DType::F32, {kCapacity, kDepth}), position);
      return reshape(rows, {x.shape()[0], 1, kDepth});
    };
    return cast(x * table("cos") + pair_swap(x) * table("sin"), act);
  }
  static Expr heads(const Expr& x) {
    const Shape& s = x.shape();
    return permute(reshape(x, {1, s[0], s[1], s[2]}), {0, 2, 1, 3});
  }
  // Rows of keys or values: without a cache those of this run, with one all that it holds.
  Expr cached(const std::string& name, const Expr& rows, const Expr& position, bool cache,
              std::vector<Result>& out) const {
    if (!cache) return heads(rows);
    const Expr all = update_rows(state(g, name, act, {kCapacity, kKeyHeads, kDepth}), position, rows);
    out.push_back({name, all});
    return heads(all);
  }
  Expr layer(const std::string& name, const Expr& x, const Expr& position, const Expr& keys,
             std::vector<Result>& out) const {
    const int64_t n = x.shape()[0];
    const Expr y = norm(x);
    const auto split = [&](const char* part, int64_t count) {
      return reshape(product(y, name + part, count * kDepth), {n, count, kDepth});
    };
    const bool cache = static_cast<bool>(keys);
    const Expr k = cached(name + "k", turned(split(".wk", kKeyHeads), position), position, cache, out),
               v = cached(name + "v", cast(split(".wv", kKeyHeads), act), position, cache, out),
               q = heads(turned(split(".wq", kHeads), position));
    const Expr mixed = cast(attention(q, k, v, 1 / std::sqrt(8.0), true, keys), act);
    const Expr h = x + product(reshape(permute(mixed, {0, 2, 1, 3}), {n, kWidth}), name + ".wo", kWidth);
    return h + product(silu(product(norm(h), name + ".w1", 2 * kWidth)), name + ".w2", kWidth);
  }
  // Logits of the tokens at `position`; `keys`: number of tokens in the cache including these, or empty without a
  // cache.
  Expr logits(const Expr& tokens, const Expr& position, const Expr& keys, std::vector<Result>& out) const {
    Expr x = gather(param(g, "words", DType::F32, {kWords, kWidth}), tokens);
    for (const char* name : {"one", "two"}) x = layer(name, x, position, keys, out);
    return product(norm(x), "out", kWords);
  }
};

// The weights of a plan, and the ids of the tokens.
class DecoderTensors {
 public:
  explicit DecoderTensors(DType act) : act_(act) {
    for (const char* layer : {"one", "two"})
      for (const auto& [name, rows, cols] : {std::tuple{".wk", kKeyHeads * kDepth, kWidth},
                                             {".wv", kKeyHeads * kDepth, kWidth},
                                             {".wq", kHeads * kDepth, kWidth},
                                             {".wo", kWidth, kWidth},
                                             {".w1", 2 * kWidth, kWidth},
                                             {".w2", kWidth, 2 * kWidth}})
        add(std::string(layer) + name, act_, {rows, cols}, 1.5);
    add("out", act_, {kWords, kWidth}, 1.5);
    add("words", DType::F32, {kWords, kWidth}, 4);
    std::vector<double> cos, sin, tokens;
    for (int64_t p = 0; p < kCapacity; ++p)
      for (int64_t d = 0; d < kDepth; ++d) {
        const double angle = static_cast<double>(p) * std::pow(50.0, -static_cast<double>(d / 2) / 4);
        cos.push_back(std::cos(angle));
        sin.push_back((d % 2 ? 1 : -1) * std::sin(angle));
      }
    for (int64_t i = 0; i < kTokens; ++i) tokens.push_back(static_cast<double>((7 * i * i + 3) % kWords));
    tensors["cos"] = HostTensor::from(DType::F32, {kCapacity, kDepth}, cos);
    tensors["sin"] = HostTensor::from(DType::F32, {kCapacity, kDepth}, sin);
    tensors["text"] = HostTensor::from(DType::I32, {kTokens}, tokens);
  }
  HostWeights weights() const {
    HostWeights out;
    for (const auto& [name, t] : tensors) out.add(name, state_view(t));
    return out;
  }
  std::map<std::string, HostTensor> tensors;

 private:
  void add(const std::string& name, DType t, const Shape& shape, double size) {
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    for (double& v : values) {
      seed_ = seed_ * 1664525u + 1013904223u;
      v = size * (static_cast<double>(seed_ >> 8) / 8388608.0 - 1) / std::sqrt(static_cast<double>(shape[-1]));
    }
    tensors[name] = HostTensor::from(t, shape, values);
  }
  DType act_;
  uint32_t seed_ = 12;
};

// All tokens at once, without a cache.
std::vector<double> without_cache(const DecoderTensors& t, DType act) {
  Graph g;
  std::vector<Result> none;
  return Oracle(t.tensors).eval(
      ToyDecoder{g, act}.logits(input(g, "text", DType::I32, {kTokens}), iota(g, kTokens), {}, none));
}

// `n` tokens at a time, with positions given by the host.
Plan told_plan(int64_t n, DType act) {
  Graph g;
  std::vector<Result> results;
  const Expr y = ToyDecoder{g, act}.logits(input(g, "tokens", DType::I32, {n}), input(g, "position", DType::I32, {n}),
                                           input(g, "keys", DType::I32, {}), results);
  results.push_back({"logits", y});
  return make_plan(results);
}

// One token per run; its position, what is read and where its logits go are states that each run updates.
Plan free_plan(DType act) {
  Graph g;
  std::vector<Result> results;
  const Expr position = state(g, "position", DType::I32, {1}), next = cast(position + 1.0, DType::I32);
  results.push_back({"position", update_rows(position, iota(g, 1), next)});
  const Expr token = gather(param(g, "text", DType::I32, {kTokens}), position);
  const Expr y = ToyDecoder{g, act}.logits(token, position, reshape(next, {}), results);
  results.push_back({"all", update_rows(state(g, "all", DType::F32, {kTokens, kWords}), position, y)});
  return make_plan(results);
}

void expect_logits(const std::vector<float>& got, const std::vector<double>& want, int64_t first, DType act) {
  const auto from = static_cast<size_t>(first * kWords);
  ASSERT_LE(from + got.size(), want.size());
  // A rounding of each of about forty stored values on the way, to bf16 or f32.
  const double tolerance = act == DType::F32 ? 40 * 0x1p-22 : 40 * 0x1p-10;
  EXPECT_TRUE(close_to_largest(got, std::span(want).subspan(from, got.size()), tolerance)) << "from token " << first;
}

std::vector<DType> types_of(const Place& place) {
  return place.compiles ? std::vector{DType::BF16, DType::F32} : std::vector{DType::F32, DType::BF16};
}

void tell(Executable& e, const DecoderTensors& t, int64_t first, int64_t n) {
  std::vector<float> tokens, position;
  for (int64_t i = first; i < first + n; ++i) {
    tokens.push_back(static_cast<float>(load_element(DType::I32, t.tensors.at("text").data.data(), i)));
    position.push_back(static_cast<float>(i));
  }
  e.set("tokens", tokens);
  e.set("position", position);
  e.set_scalar("keys", static_cast<double>(first + n));
}

TEST(State, ADecoderWithACacheSaysWhatOneWithoutDoes) {
  for (const Place& place : places())
    for (const DType act : types_of(place)) {
      SCOPED_TRACE(place.name + " " + std::string(name_of(act)));
      const DecoderTensors t(act);
      const std::vector<double> want = without_cache(t, act);
      const auto states = std::make_shared<Buffers>(place.backend);
      const HostWeights weights = t.weights();
      Executable prompt(told_plan(7, act), place.backend, weights, {}, nullptr, states);
      Executable token(told_plan(1, act), place.backend, weights, {}, nullptr, states);
      EXPECT_EQ(token.allocated().shared, 4 * kCapacity * kKeyHeads * kDepth * size_of(act));
      tell(prompt, t, 0, 7);
      prompt.run_all();
      expect_logits(prompt.get("logits"), want, 0, act);
      for (int64_t i = 7; i < kTokens; ++i) {
        tell(token, t, i, 1);
        if (i == 7) {
          token.run_all();
        } else {
          token.enqueue(Rate::Step);  // recorded if the device records
          token.wait();
        }
        expect_logits(token.get("logits"), want, i, act);
      }
      if (place.compiles) {
        EXPECT_GT(place.recordings(), 0);
      }
    }
}

TEST(State, ADecoderRunsTwentyTokensByItself) {
  for (const Place& place : places())
    for (const DType act : types_of(place)) {
      SCOPED_TRACE(place.name + " " + std::string(name_of(act)));
      const DecoderTensors t(act);
      const HostWeights weights = t.weights();
      Executable e(free_plan(act), place.backend, weights);
      e.run_all();
      e.enqueue(Rate::Step, kTokens - 1);
      e.wait();
      EXPECT_THAT(e.get("position"), ElementsAre(kTokens));
      expect_logits(e.get("all"), without_cache(t, act), 0, act);
      Executable checked(free_plan(act), make_backend("null"), weights);
      for (int run = 0; run < 3; ++run) checked.run_all();
    }
}

}  // namespace
}  // namespace tenon
