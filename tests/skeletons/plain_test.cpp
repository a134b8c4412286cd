// map, rows and groups.
#include "tenon/expr/precision.h"
#include "tests/skeletons/harness.h"
#include "tests/support/sanitized.h"

namespace tenon::launches {
namespace {

using Plain = LaunchTest;

constexpr DType kStored[] = {DType::F32, DType::BF16, DType::F16, DType::E4M3};

TEST_F(Plain, MapOfEveryTypeAndTail) {
  for (DType t : kStored)
    for (int64_t cols : {1, 7, 40, 64, 77}) {
      const std::string id = numbered(std::string(name_of(t)), cols);
      const Expr x = input(g, id + ".x", t, {3, 5, cols}), y = input(g, id + ".y", DType::BF16, {cols});
      expect(launch("map", {{id, cast(silu(x) * 0.5 + y, t)}}), {t});
    }
}

TEST_F(Plain, MapThroughViews) {
  const Expr x = input(g, "x", DType::BF16, {2, 6, 5, 24}), skip = input(g, "skip", DType::BF16, {2, 6, 5, 16});
  const Expr up = upsample2x(concat({x, skip}, -1));
  expect(launch("map", {{"up", cast(silu(up), DType::BF16)}}), {DType::BF16});
  expect(launch("map", {{"nchw", cast(permute(x + 1.0, {0, 3, 1, 2}), DType::F32)}}), {});
  expect(launch("map", {{"pad", pad(x, {0, 0, 1, 1, 2, 0, 0, 3})}}), {DType::BF16});
}

// Operands stored by columns: whole tiles and parts of them, joined ones, mixed with others, and a result whose rows
// are not whole fragments.
TEST_F(Plain, MapThatTransposes) {
  for (const DType t : kStored) {
    const std::string id(name_of(t));
    const Expr x = input(g, id + ".x", t, {130, 200}), y = input(g, id + ".y", t, {70, 200}),
               odd = input(g, id + ".odd", t, {77, 129}), scale = input(g, id + ".scale", DType::F32, {130, 1}),
               heads = input(g, id + ".heads", t, {2, 3, 80, 64});
    for (const DType to : {DType::F32, DType::BF16, DType::E4M3}) {
      const std::string out = id + "." + std::string(name_of(to));
      expect(launch("map", {{out, cast(transpose(x), to)}}), {to});
      expect(launch("map", {{out + ".scaled", cast(transpose(x / scale) * 0.5, to)}}), {to});
      expect(launch("map", {{out + ".joined", cast(transpose(concat({x, y}, 0)), to)}}), {to});
      expect(launch("map", {{out + ".odd", cast(silu(transpose(odd)), to)}}), {to});
      expect(launch("map", {{out + ".heads", cast(permute(heads, {0, 1, 3, 2}), to)}}), {to});
    }
  }
}

TEST_F(Plain, MapOfShortRows) {
  // Latents with four channels; guidance and a scheduler's step.
  const Expr cond = input(g, "cond", DType::BF16, {2, 64, 64, 4}),
             uncond = input(g, "uncond", DType::BF16, {2, 64, 64, 4});
  const Expr latent = state(g, "latent", DType::F32, {2, 64, 64, 4}), scale = scalar(g, "scale");
  const Expr eps = uncond + (cond - uncond) * scale;
  expect(launch("map", {{"latent", latent - eps * 0.3}, {"eps", cast(eps, DType::BF16)}}), {DType::BF16});
}

TEST_F(Plain, MapInPlaceExchange) {
  // Outputs that are each other's inputs: a block must finish reading before it writes.
  const Expr a = state(g, "a", DType::F32, {70, 64}), b = state(g, "b", DType::F32, {70, 64});
  expect(launch("map", {{"a", b}, {"b", a}}), {});
}

TEST_F(Plain, MapOfOneLongRow) {
  const Expr w = state(g, "w", DType::F32, {300001}), m = state(g, "m", DType::F32, {300001}),
             grad = input(g, "g", DType::F32, {300001});
  const Expr update = where(less(m * 0.9 + grad * 0.1, constant(g, 0)), constant(g, -1), constant(g, 1));
  expect(launch("map", {{"w", w - update * 1e-3}, {"m", m * 0.99 + grad * 0.01}}), {});
}

TEST_F(Plain, MapOfScalars) {
  const Expr t = scalar(g, "t");
  expect(launch("map", {{"s", exp(t * -0.5)}}), {});
  expect(launch("map", {{"table", sin(broadcast(t, {1, 160}) * exp(reshape(iota(g, 160), {1, 160}) * -0.05))}}), {});
}

TEST_F(Plain, MapAtFullSize) {
  const Expr x = input(g, "x", DType::BF16, {2, 64, 64, 320}), scale = input(g, "scale", DType::F32, {2, 1, 1, 320});
  expect(launch("map", {{"y", cast(silu(x * scale), DType::BF16)}}), {DType::BF16});
}

// An integer type holds no fraction and no larger number, whether the cast is stored or read in the same launch.
TEST_F(Plain, CastsToIntegersSaturateStoredOrNot) {
  const std::vector<float> values{-3.5f, 300.7f, 70000.5f, -200.9f, -70000.5f, -1e19f, NAN, 0.5f, -0.0f, 127.9f};
  for (const DType t : {DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::Bool}) {
    const std::string id(name_of(t));
    const Expr x = input(g, id + ".x", DType::F32, {2, 5});
    tensors.emplace(id + ".x", HostTensor::from(DType::F32, {2, 5}, values));
    const Expr whole = cast(x, t);
    expect(launch("map", {{id, whole}, {id + ".twice", whole * 2.0}, {id + ".round", round(x, t) + 1.0}}), {});
  }
}

TEST_F(Plain, GatherOfEmbeddings) {
  const Expr tokens = input(g, "tokens", DType::I32, {2, 77}), table = param(g, "table", DType::BF16, {1000, 768});
  std::vector<double> ids(154);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i * 37 % 1000);
  tensors.emplace("tokens", HostTensor::from(DType::I32, {2, 77}, ids));
  const Expr position = param(g, "position", DType::BF16, {77, 768});
  expect(launch("map", {{"h", cast(gather(table, tokens) + position, DType::BF16)}}), {DType::BF16});
}

// Whole fragments below a gather, and columns that do not allow whole fragments.
TEST_F(Plain, GatherThroughViews) {
  std::vector<double> ids(24);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i * 11 % 50);
  tensors.emplace("rows", HostTensor::from(DType::I64, {4, 6}, ids));
  const Expr rows = input(g, "rows", DType::I64, {4, 6}), table = input(g, "table", DType::BF16, {50, 48}),
             other = input(g, "other", DType::BF16, {50, 24});
  const Expr found = gather(table, rows);
  for (int64_t begin : {0, 8, 3}) {
    const std::string id = numbered("slice", begin);
    expect(launch("map", {{id, cast(silu(slice(found, 2, begin, begin + 40)), DType::BF16)}}), {DType::BF16});
    expect(launch("map", {{id + ".pad", pad(gather(table, rows), {0, 0, 1, 0, begin, 8})}}), {DType::BF16});
  }
  expect(launch("map", {{"joined", gather(concat({table, other}, 1), rows)}}), {DType::BF16});
  expect(launch("map", {{"heads", permute(reshape(found, {4, 6, 3, 16}), {0, 2, 1, 3})}}), {DType::BF16});
  expect(launch("map", {{"turned", permute(found, {0, 2, 1})}}), {DType::BF16});
}

TEST_F(Plain, NaNReachesEveryResult) {
  std::vector<float> values(4 * 320, 1.0f);
  values[321] = NAN;
  tensors.emplace("x", HostTensor::from(DType::BF16, {4, 320}, values));
  const Expr x = input(g, "x", DType::BF16, {4, 320});
  expect(launch("map", {{"y", cast(silu(x), DType::BF16)}}), {DType::BF16}, NaN::MayBeExpected);
  const Expr norm = (x - mean(x)) * rsqrt(mean(x * x) + 1.0);
  expect(
      launch("rows", {{"n", cast(norm, DType::F16)}, {"q", cast(x / max(absmax(x), constant(g, 1e-12)), DType::E4M3)}}),
      {DType::E4M3}, NaN::MayBeExpected);
}

TEST_F(Plain, RowsLayerNorm) {
  for (int64_t cols : {8, 77, 200, 320, 640, 1280, 5120}) {
    const std::string id = numbered("n", cols);
    const Expr x = input(g, id + ".x", DType::BF16, {2, 33, cols});
    const Expr d = x - mean(x);
    const Expr w = param(g, id + ".w", DType::BF16, {cols}), b = param(g, id + ".b", DType::F32, {cols});
    const Expr y = d * rsqrt(mean(d * d) + 1e-5) * w + b;
    expect(launch("rows", {{id, cast(y, DType::BF16)}}), {DType::BF16, DType::F32, cols});
    expect(launch("rows", {{id, y}}), {DType::F32, DType::F32, cols});
  }
}

TEST_F(Plain, RowsAtFullSize) {
  const Expr x = input(g, "x", DType::BF16, {8192, 320});
  const Expr d = x - mean(x);
  expect(launch("rows", {{"y", cast(d * rsqrt(mean(d * d) + 1e-5), DType::BF16)}}), {DType::BF16, DType::F32, 320});
}

// Two consecutive reductions and two results, one of them in place; teams of lanes and of blocks.
TEST_F(Plain, RowsResidualAndNorm) {
  for (int64_t cols : {40, 640, 1536, 3840, 4096}) {
    const std::string id = numbered("r", cols);
    const Expr x = state(g, id + ".x", DType::BF16, {9, cols}), h = input(g, id + ".h", DType::BF16, {9, cols}),
               gate = param(g, id + ".gate", DType::BF16, {cols}), s = input(g, id + ".s", DType::F32, {cols});
    const auto rms = [](const Expr& v) { return v * rsqrt(mean(v * v) + 1e-6); };
    const Expr y = x + gate * rms(h);
    expect(launch("rows", {{id + ".x", cast(y, DType::BF16)}, {id + ".n", cast(rms(y) * (1.0 + s), DType::BF16)}}),
           {DType::BF16, DType::F32, cols});
  }
}

// The maths between two layers of a transformer: factors selected by a number in memory, values that several reductions
// read, results of each stage.
TEST_F(Plain, RowsOfATransformer) {
  tensors.emplace("step", HostTensor::from(DType::I32, {}, std::vector<double>{2}));
  const Expr step = input(g, "step", DType::I32, {});
  for (int64_t cols : {64, 77, 200, 3840}) {
    const std::string id = numbered("t", cols);
    const auto of_step = [&](const std::string& name, DType t) {
      return gather(input(g, id + name, t, {4, cols}), step);
    };
    const auto rms = [](const Expr& v) { return cast(v * rsqrt(mean(v * v) + 1e-5), DType::BF16); };
    const Expr x = state(g, id + ".x", DType::BF16, {2, 17, cols}), h = input(g, id + ".h", DType::BF16, {2, 17, cols}),
               w = param(g, id + ".w", DType::BF16, {cols});
    const Expr y = cast(x + rms(h) * w * of_step(".gate", DType::F32), DType::BF16);
    const Expr n = cast(rms(y) * of_step(".factor", DType::F32) * of_step(".half", DType::BF16), DType::BF16);
    const QuantizedRows q = quantize_rows(n);
    expect(launch("rows", {{id + ".x", y}, {id + ".q", q.q}, {id + ".scale", q.scale}}), {DType::E4M3});
  }
}

// Rows of several tensors that need more registers than one or two blocks have, and more rows than blocks: the gradient
// of a norm, and rows of two halves of a tensor with one scale. In some, the last thread has no column.
TEST_F(Plain, RowsOfLongTensors) {
  for (int64_t cols : {3840, 4008}) {
    const std::string id = numbered("l", cols);
    const auto tensor = [&](const char* name, int64_t n) { return input(g, id + name, DType::BF16, {2, 11, n}); };
    const Expr dy = tensor(".dy", cols), more = tensor(".more", cols), h = tensor(".h", cols),
               rest = tensor(".rest", cols);
    const Expr y = cast(dy + more, DType::BF16) * input(g, id + ".w", DType::F32, {cols});
    const Expr size = mean(h * h) + 1e-5;
    const Expr dx = rest + y * rsqrt(size) - h * (mean(y * h) / size);
    expect(launch("rows", {{id + ".dx", cast(dx, DType::BF16)}, {id + ".size", size}}),
           {DType::BF16, DType::F32, cols});
    const Expr wide = tensor(".wide", 2 * cols), up = slice(wide, -1, cols, 2 * cols), gate = slice(wide, -1, 0, cols);
    const Expr a = cast(dy * up * sigmoid(gate), DType::BF16), b = cast(dy * silu(gate), DType::BF16);
    const Expr scale = max(max(absmax(a), absmax(b)), constant(g, 1e-12)) / 448.0;
    expect(launch("rows", {{id + ".a", cast(a / scale, DType::E4M3)}, {id + ".b", cast(b / scale, DType::E4M3)}}),
           {DType::E4M3});
  }
}

// Norms of heads, rotated by an angle per token: pairs are swapped, factors are the same for all heads.
TEST_F(Plain, RowsOfTurnedHeads) {
  constexpr int64_t kTokens = 19, kHeads = 3, kHeadWidth = 128;
  const Expr qkv = input(g, "qkv", DType::BF16, {2, kTokens, 2 * kHeads * kHeadWidth}),
             cosines = input(g, "cosines", DType::F32, {kTokens, 1, kHeadWidth}),
             sines = input(g, "sines", DType::F32, {kTokens, 1, kHeadWidth});
  const auto turned = [&](int64_t i) {
    const Expr w = param(g, numbered("w", i), DType::BF16, {kHeadWidth}),
               x = reshape(slice(qkv, -1, i * kHeads * kHeadWidth, (i + 1) * kHeads * kHeadWidth),
                           {2, kTokens, kHeads, kHeadWidth}),
               size = rsqrt(mean(x * x) + 1e-5);
    return permute(
        cast(cast(x * size, DType::BF16) * w * cosines + cast(pair_swap(x) * size, DType::BF16) * pair_swap(w) * sines,
             DType::BF16),
        {0, 2, 1, 3});
  };
  expect(launch("rows", {{"q", turned(0)}, {"k", turned(1)}}), {DType::BF16, DType::F32, kHeadWidth, 4});
}

TEST_F(Plain, RowsSoftmax) {
  const Expr x = input(g, "x", DType::F32, {3, 7, 300});
  const Expr e = exp(x - reduce_max(x));
  expect(launch("rows", {{"p", e / sum(e)}, {"top", reduce_max(x)}, {"total", sum(e)}}),
         {DType::F32, DType::F32, 300, 10});
}

// Of vocabularies: GPT-2's, whose elements are loaded one by one, and Qwen's.
TEST_F(Plain, RowsOfAVocabulary) {
  for (const int64_t words : {50257, 151936}) {
    const Expr x = input(g, numbered("x", words), words % 8 ? DType::F32 : DType::BF16, {2, words});
    const Expr e = exp(x - reduce_max(x));
    // The largest of normal numbers has some 50 times the mean probability.
    expect(launch("rows", {{numbered("p", words), e / sum(e)}}),
           {DType::F32, DType::F32, words, 50.0 / static_cast<double>(words)});
  }
}

TEST_F(Plain, RowsQuantise) {
  const Expr x = input(g, "x", DType::BF16, {65, 640});
  const QuantizedRows rows = quantize_rows(silu(x) * 3.0);
  expect(launch("rows", {{"q", rows.q}, {"scale", rows.scale}}), {DType::E4M3});
}

// Rows of zeros, of numbers near the largest and the smallest, with a NaN and an infinity: q and scale together.
TEST_F(Plain, RowsQuantiseWhatIsExtreme) {
  constexpr int64_t kRows = 9, kCols = 200;
  std::vector<double> values(kRows * kCols);
  const auto row = [&](int64_t r) { return std::span(values).subspan(static_cast<size_t>(r * kCols), kCols); };
  const auto fill = [&](int64_t r, double size) {
    for (int64_t i = 0; i < kCols; ++i)
      row(r)[static_cast<size_t>(i)] = size * std::sin(0.7 * static_cast<double>(i + 3 * r));
  };
  fill(1, 3e38);
  fill(2, 1e-30);
  fill(3, 0x1p-140);  // subnormal in f32
  for (int64_t r = 4; r < kRows; ++r) fill(r, 2);
  row(4)[7] = NAN;
  row(5)[199] = INFINITY;
  row(6)[0] = 1e6;  // all others become subnormal e4m3 numbers or zeros
  row(7)[3] = -0.0;
  tensors.emplace("x", HostTensor::from(DType::F32, {kRows, kCols}, values));
  const QuantizedRows q = quantize_rows(input(g, "x", DType::F32, {kRows, kCols}));
  const Launch l = launch("rows", {{"q", q.q}, {"scale", q.scale}});
  expect(l, {DType::E4M3}, NaN::MayBeExpected);
  for (const Runner& runner : runners()) {
    const Tensors got = runner.run(l, tensors);
    const std::vector<double> numbers = got.at("q").values(), scales = got.at("scale").values();
    for (int64_t i = 0; i < kCols; ++i) {
      EXPECT_EQ(numbers[static_cast<size_t>(i)], 0) << runner.name;
      EXPECT_TRUE(std::isnan(numbers[static_cast<size_t>(4 * kCols + i)])) << runner.name;
      EXPECT_LE(std::abs(numbers[static_cast<size_t>(kCols + i)]), 448) << runner.name;
    }
    EXPECT_GT(scales[0], 0) << runner.name;
    EXPECT_TRUE(std::isnan(scales[4])) << runner.name;
    EXPECT_TRUE(std::isinf(scales[5])) << runner.name;
    for (int64_t r = 6; r < kRows; ++r)
      EXPECT_EQ(largest_magnitude(std::vector<double>(numbers.begin() + r * kCols, numbers.begin() + (r + 1) * kCols)),
                448)
          << runner.name << ", row " << r;
  }
}

// A row with scale 1 of all midpoints between two e4m3 numbers: the one with an even last bit is taken.
TEST_F(Plain, RowsQuantiseToNearestEven) {
  std::vector<double> values = {448, -448};
  std::vector<double> want = values;
  for (int bits = 0; bits < 0x7e; ++bits) {
    const double low = e4m3_value(static_cast<uint8_t>(bits)), high = e4m3_value(static_cast<uint8_t>(bits + 1));
    for (const double sign : {1, -1}) {
      values.push_back(sign * (low + high) / 2);
      want.push_back(sign * (bits % 2 ? high : low));
    }
  }
  const auto cols = static_cast<int64_t>(values.size());
  tensors.emplace("x", HostTensor::from(DType::F32, {1, cols}, values));
  const QuantizedRows rows = quantize_rows(input(g, "x", DType::F32, {1, cols}));
  const Launch l = launch("rows", {{"q", rows.q}, {"scale", rows.scale}});
  for (const Runner& runner : runners()) {
    const Tensors got = runner.run(l, tensors);
    EXPECT_EQ(got.at("scale").values(), std::vector<double>{1}) << runner.name;
    EXPECT_EQ(got.at("q").values(), want) << runner.name;
  }
}

// Rows that take several operands and the columns that all rows share: on a GPU the teams of a block share these, with
// two buffers for each team's rows or one, if there are enough rows, which need not be a multiple of the teams.
TEST_F(Plain, LongRowsThatShareColumns) {
  const bool gpu = runners().front().name.find("NVIDIA") != std::string::npos;
  for (const int64_t rows : {gpu ? int64_t{1061} : int64_t{37}, int64_t{3}}) {
    const std::string id = numbered("r", rows);
    const auto tensor = [&](const std::string& name) { return input(g, id + name, DType::BF16, {rows, 3840}); };
    const auto column = [&](const std::string& name) { return input(g, id + name, DType::F32, {3840}); };
    const Expr dy = tensor(".dy"), more = tensor(".more"), h = tensor(".h"), rest = tensor(".rest");
    const Expr y = cast(dy + more, DType::BF16) * column(".w") * column(".gain"), size = mean(h * h) + 1e-5;
    expect(launch("rows", {{id + ".dx", cast(rest + y * rsqrt(size) - h * (mean(y * h) / size), DType::BF16)},
                           {id + ".sum", sum(y)}}),
           {DType::BF16, DType::F32, 3840, 100});
    const Expr a = dy * column(".a"), b = more * column(".b"), largest = max(absmax(a), absmax(b));
    const Expr most = max(largest, absmax(rest * column(".c"))), scale = most / 448.0;
    expect(launch("rows", {{id + ".scale", scale},
                           {id + ".qa", cast(a / scale, DType::BF16)},
                           {id + ".qb", cast(b / scale, DType::BF16)}}),
           {DType::BF16});
  }
}

// The maths between the layers of a transformer of 3840 columns, with rows that leave a tail, through the three gates
// of quantised rows: gate * norm + residual, its norm, modulated and quantised; silu(gate) * up quantised; heads joined
// and quantised.
TEST_F(Plain, QuantisedRowsPassTheGatesAtFullSize) {
  const auto rms = [](const Expr& v) { return cast(v * rsqrt(mean(v * v) + 1e-5), DType::BF16); };
  const auto check = [&](const std::string& id, std::vector<Output> outputs) {
    const Launch l = launch("rows", std::move(outputs));
    Oracle oracle(tensors);
    std::map<std::string, std::vector<double>> want;
    for (const Output& o : l.outputs) want[o.buffer] = oracle.eval(o.value);
    for (const Runner* runner : {&runners().front(), &runners().back()}) {
      const Tensors got = runner->run(l, tensors);
      QuantizedRowsComparison rows;
      const std::vector<double> scales = got.at(id + ".scale").values(), numbers = got.at(id + ".q").values();
      for (size_t i = 0; i < scales.size(); ++i) rows.add_scale(scales[i], want[id + ".scale"][i]);
      for (size_t i = 0; i < numbers.size(); ++i) rows.add(numbers[i], want[id + ".q"][i]);
      EXPECT_TRUE(rows.agrees()) << id << " by " << runner->name << ": " << rows.text();
    }
  };
  // Of a picture of 512 x 512 with its text. A GPU's emulator is slow, and so is the oracle under a sanitizer; the code
  // paths are the same.
  const int64_t full = sanitized() || runners().front().name.find("threads") == std::string::npos ? 133 : 1056;
  for (const int64_t rows : {full, int64_t{13}}) {
    const std::string id = numbered("r", rows);
    const auto leaf = [&](const std::string& name, DType t, const Shape& s) { return input(g, id + name, t, s); };
    const Expr x = leaf(".x", DType::BF16, {rows, 3840}), h = leaf(".h", DType::BF16, {rows, 3840}),
               gate = leaf(".gate", DType::F32, {3840}), factor = leaf(".factor", DType::F32, {3840});
    const Expr y = cast(x + rms(h) * param(g, id + ".w1", DType::F32, {3840}) * gate, DType::BF16);
    const QuantizedRows n =
        quantize_rows(cast(rms(y) * param(g, id + ".w2", DType::F32, {3840}) * factor, DType::BF16));
    check(id + "m", {{id + ".y", y}, {id + "m.q", n.q}, {id + "m.scale", n.scale}});
    const Expr a = leaf(".a", DType::BF16, {rows, 10240}), b = leaf(".b", DType::BF16, {rows, 10240});
    const QuantizedRows u = quantize_rows(cast(silu(a) * b, DType::BF16));
    check(id + "u", {{id + "u.q", u.q}, {id + "u.scale", u.scale}});
    const QuantizedRows o =
        quantize_rows(reshape(permute(leaf(".o", DType::BF16, {30, rows, 128}), {1, 0, 2}), {rows, 3840}));
    check(id + "o", {{id + "o.q", o.q}, {id + "o.scale", o.scale}});
  }
}

TEST_F(Plain, RowsStoredPermuted) {
  const Expr x = input(g, "x", DType::BF16, {2, 9, 4, 32});
  const Expr norm = x * rsqrt(mean(x * x) + 1e-6);
  expect(launch("rows", {{"heads", permute(cast(norm, DType::BF16), {0, 2, 1, 3})}}), {DType::BF16});
}

TEST_F(Plain, RowsPartition) {
  const Expr x = input(g, "x", DType::F32, {21, 96});
  const Expr y = cast(silu(x), DType::BF16);
  expect(launch("map", {{"a", slice(y, 1, 0, 32)}}), {DType::BF16});
  expect(launch("map", {{"b", slice(y, 1, 32, 48)}}), {DType::BF16});
  expect(launch("map", {{"c", slice(y, 1, 48, 96)}}), {DType::BF16});
}

TEST_F(Plain, GroupsOfImages) {
  for (DType t : {DType::F32, DType::BF16})
    for (int64_t channels : {4, 40, 320}) {
      const std::string id = numbered(std::string(name_of(t)), channels);
      const Expr x = input(g, id + ".x", t, {2, 13, 17, channels});
      expect(launch("groups", {{id + ".sum", sum(x, ReduceOver::Inner)}, {id + ".sq", sumsq(x, ReduceOver::Inner)}}),
             {DType::F32, DType::F32, 221, 221});
    }
  const Expr y = input(g, "y", DType::BF16, {2, 13, 17, 24}), z = input(g, "z", DType::BF16, {2, 13, 17, 16});
  expect(launch("groups", {{"s", sum(concat({y, z}, 3), ReduceOver::Inner)}}), {DType::F32, DType::F32, 221, 221});
}

TEST_F(Plain, GroupsAtFullSize) {
  const Expr x = input(g, "x", DType::BF16, {2, 64, 64, 320});
  expect(launch("groups", {{"sum", sum(x, ReduceOver::Inner)}, {"sq", sumsq(x, ReduceOver::Inner)}}),
         {DType::F32, DType::F32, 4096, 4096});
}

}  // namespace
}  // namespace tenon::launches
