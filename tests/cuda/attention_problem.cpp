#include "tests/cuda/attention_problem.h"

namespace tenon::cuda::test {

std::vector<float> AttentionCore::run(const AttentionProblem& x) const {
  constexpr int kBehind = 64;  // floats after the result, which must stay unchanged
  const size_t floats = static_cast<size_t>(x.rows() * x.s.depth) + kBehind;
  std::vector<float> out[2];
  for (int backwards = 0; backwards < 2; ++backwards) {
    Emulator device(EmulatorOptions{.backwards = backwards == 1});
    const auto stream = device.make_stream();
    const auto y = poisoned(device, static_cast<int64_t>(floats) * 4);
    device.load(source)->enqueue(*stream, shape, params(device, x, static_cast<float*>(y.get())));
    out[backwards].resize(floats);
    device.copy_out(*stream, out[backwards].data(), y.get(), static_cast<int64_t>(floats) * 4);
  }
  EXPECT_EQ(std::memcmp(out[0].data(), out[1].data(), floats * 4), 0);
  EXPECT_TRUE(std::all_of(out[0].end() - kBehind, out[0].end(), [](float f) { return std::isnan(f); }));
  out[0].resize(floats - kBehind);
  const int64_t depth = x.s.depth;
  for (int64_t i = 0; i < x.rows() * depth; ++i)
    out[0][static_cast<size_t>(i)] -= static_cast<float>(i / depth) + 0.5f * static_cast<float>(i % depth);
  return out[0];
}

namespace {

// Row `token` of a head.
const float* row_of(const RandomTensor& x, const AttentionProblem& p, int batch, int heads, int head, int tokens,
                    int token) {
  static_cast<void>(batch);
  const int64_t row = p.tokens_first ? (static_cast<int64_t>(batch) * tokens + token) * heads + head
                                     : (static_cast<int64_t>(batch) * heads + head) * tokens + token;
  return x.values.data() + row * p.s.depth;
}

struct Expected {
  double value, square, spread;  ///< sum of w v, of (w v)^2, of v^2 / (total / largest weight)^2
};

// One row of the result.
std::vector<Expected> expected_row(const RandomTensor& q, const RandomTensor& k, const RandomTensor& v,
                                   const AttentionProblem& x, int batch, int head, int query) {
  const device::AttentionSizes& s = x.s;
  const int kv = head / (s.heads / s.kv_heads), seen = s.causal ? query + 1 + s.keys - s.queries : s.keys;
  const float* mine = row_of(q, x, batch, s.heads, head, s.queries, query);
  std::vector<double> weights(static_cast<size_t>(seen));
  double top = -INFINITY, total = 0;
  for (int j = 0; j < seen; ++j) {
    const float* key = row_of(k, x, batch, s.kv_heads, kv, s.keys, j);
    double score = 0;
    for (int d = 0; d < s.depth; ++d) score += static_cast<double>(mine[d]) * key[d];
    weights[static_cast<size_t>(j)] = score * s.scale;
    top = std::max(top, score * s.scale);
  }
  for (double& w : weights) total += w = std::exp(w - top);
  std::vector<Expected> out(static_cast<size_t>(s.depth), Expected{});
  for (int j = 0; j < seen; ++j) {
    const float* value = row_of(v, x, batch, s.kv_heads, kv, s.keys, j);
    for (int d = 0; d < s.depth; ++d) {
      const double one = weights[static_cast<size_t>(j)] / total * value[d];
      Expected& e = out[static_cast<size_t>(d)];
      e.value += one, e.square += one * one, e.spread += value[d] * value[d] / total / total;
    }
  }
  return out;
}

// The result expected of a core, and its tolerance.
struct Operands {
  Emulator memory;
  AttentionProblem x;
  RandomTensor q, k, v;
  std::vector<double> wanted, allowed;

  Operands(DType type, device::AttentionSizes s, bool tokens_first)
      : x{s, {}, {}, {}, tokens_first},
        q(memory, type, static_cast<int64_t>(s.batch) * s.heads * s.queries * s.depth, 1),
        k(memory, type, static_cast<int64_t>(s.batch) * s.kv_heads * s.keys * s.depth, 2),
        v(memory, type, static_cast<int64_t>(s.batch) * s.kv_heads * s.keys * s.depth, 3) {
    x.q = q.memory, x.k = k.memory, x.v = v.memory;
    // Each weight is rounded once: independent errors of up to half a unit, and in f16 of half the smallest number. In
    // f32 the score before it has rounding errors too, and the sums behind it.
    const double unit = type == DType::F32 ? 0x1p-20 : type == DType::BF16 ? 0x1p-9 : 0x1p-11;
    const double least = type == DType::F16 ? 0x1p-25 : 0;
    for (int64_t row = 0; row < x.rows(); ++row) {
      const int64_t head = row / s.queries;
      const auto want = expected_row(q, k, v, x, static_cast<int>(head / s.heads), static_cast<int>(head % s.heads),
                                     static_cast<int>(row % s.queries));
      for (int d = 0; d < s.depth; ++d) {
        const Expected& e = want[static_cast<size_t>(d)];
        const double added = static_cast<double>(row) + 0.5 * d;
        wanted.push_back(e.value);
        allowed.push_back(6 * (unit * std::sqrt(e.square) + least * std::sqrt(e.spread)) +
                          0x1p-22 * (added + 8 * std::sqrt(s.depth)));
      }
    }
  }
  void compare(const std::vector<float>& y) const {
    EXPECT_TRUE(close(y, wanted, [&](size_t i, double) { return allowed[i]; }));
  }
};

}  // namespace

std::vector<float> check_attention(const MakeAttentionCore& make, device::AttentionSizes s, bool tokens_first) {
  const AttentionCore core = make(s);
  SCOPED_TRACE(core.name + " " + std::to_string(s.batch) + "x" + std::to_string(s.heads) + "/" +
               std::to_string(s.kv_heads) + " " + std::to_string(s.queries) + " x " + std::to_string(s.keys) + " x " +
               std::to_string(s.depth) + (s.causal ? " causal" : ""));
  if (s.scale == 1) s.scale = 1.3f / std::sqrt(static_cast<float>(s.depth));
  const Operands operands(core.type, s, tokens_first);
  const int64_t conflicts = Emulator::statistics().bank_conflicts;
  const std::vector<float> y = core.run(operands.x);
  EXPECT_EQ(Emulator::statistics().bank_conflicts, conflicts);
  operands.compare(y);
  return y;
}

void check_faults_fail(const MakeAttentionCore& make) {
  const device::AttentionSizes s{.heads = 2, .kv_heads = 2, .queries = 20, .keys = 30, .depth = 40, .scale = 0.2f};
  const AttentionCore core = make(s);
  const Operands operands(core.type, s, false);
  expect_faults_fail(core.run(operands.x), [&](const std::vector<float>& y) { operands.compare(y); });
}

void check_nans_reach_those_who_see_them(const MakeAttentionCore& make, bool causal) {
  const device::AttentionSizes s{.queries = 150, .keys = 210, .depth = 40, .scale = 0.2f, .causal = causal};
  const AttentionCore core = make(s);
  constexpr int kQuery = 131, kKey = 133, kColumn = 17;
  for (int where = 0; where < 3; ++where) {
    SCOPED_TRACE(where);
    Emulator memory;
    const RandomTensor q(memory, core.type, 150 * 40, 1), k(memory, core.type, 210 * 40, 2),
        v(memory, core.type, 210 * 40, 3);
    const void* at[] = {q.memory.get(), k.memory.get(), v.memory.get()};
    store_element(core.type, const_cast<void*>(at[where]), (where == 0 ? kQuery : kKey) * 40 + kColumn, NAN);
    const std::vector<float> y = core.run({s, q.memory, k.memory, v.memory});
    for (int i = 0; i < 150; ++i)
      for (int d = 0; d < 40; ++d) {
        const bool sees = where == 0 ? i == kQuery : !causal || i + 60 >= kKey;
        // An unseen value of v is multiplied by 0: a NaN for all queries of a tile that reads it.
        if (where == 2 && !sees && d == kColumn) continue;
        const bool reached = sees && (where < 2 || d == kColumn);
        EXPECT_EQ(std::isnan(y[static_cast<size_t>(i * 40 + d)]), reached) << i << ", " << d;
      }
  }
}

void check_keys_that_weigh_nothing(const MakeAttentionCore& make, int keys) {
  const device::AttentionSizes s{.queries = 20, .keys = keys + 36, .depth = 40, .scale = 0.2f};
  const AttentionCore core = make(s);
  Emulator memory;
  const RandomTensor q(memory, core.type, 20 * 40, 1), k(memory, core.type, s.keys * 40, 2),
      v(memory, core.type, s.keys * 40, 3);
  for (int j = 0; j < keys; ++j) store_element(core.type, k.memory.get(), j * 40, -INFINITY);
  for (int i = 0; i < 20; ++i) store_element(core.type, q.memory.get(), i * 40, 1.0);
  AttentionProblem rest{s, q.memory, k.memory, v.memory};
  rest.s.keys -= keys;
  for (auto* x : {&rest.k, &rest.v}) *x = {*x, static_cast<char*>(x->get()) + keys * 40 * size_of(core.type)};
  EXPECT_EQ(core.run({s, q.memory, k.memory, v.memory}), make(rest.s).run(rest));
}

}  // namespace tenon::cuda::test
