// The host half of the vocabulary: what each function does, and that it detects the mistakes it should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tenon/core/dtype.h"
#include "tenon/core/error.h"
#include "tests/cuda/emulator.h"
#include "tests/support/close.h"

namespace tenon::cuda::test {
namespace {

size_t index(int64_t i) { return static_cast<size_t>(i); }

struct Buffers {
  const void* in;
  float* out;
};

class Vocabulary : public testing::Test {
 protected:
  static KernelSource source(const std::string& body, int threads = 64) {
    return {"probe",
            "#include \"tenon/backend/cuda/device/elements.h\"\nusing namespace tenon::device;\n"
            "struct Params { const void* in; float* out; };\nKERNEL(" +
                std::to_string(threads) + ", 1, Params, p) {\n" + body + "\n}\n"};
  }
  // One block of `threads`, `floats` results.
  std::vector<float> run(const std::string& body, const std::vector<float>& in = {}, size_t floats = 64,
                         int threads = 64, unsigned shared = 4096) {
    auto from = device.allocate(static_cast<int64_t>(in.size() * 4)),
         to = device.allocate(static_cast<int64_t>(floats * 4));
    device.copy_in(*stream, from.get(), in.data(), static_cast<int64_t>(in.size() * 4));
    const Buffers params{from.get(), static_cast<float*>(to.get())};
    device.load(source(body, threads))
        ->enqueue(*stream, {.threads = threads, .shared_bytes = shared}, std::as_bytes(std::span(&params, 1)));
    std::vector<float> out(floats);
    device.copy_out(*stream, out.data(), to.get(), static_cast<int64_t>(floats * 4));
    return out;
  }
  std::string error_of(const std::string& body, int threads = 64) {
    try {
      run(body, std::vector<float>(64), 64, threads);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Device);
      return e.what();
    }
    return "no error";
  }
  // A device whose first kernel runs as late as possible, and 256 floats of it.
  struct Late {
    void put(const KernelSource& kernel, const CallShape& shape) {
      const Buffers params{nullptr, x};
      device.load(kernel)->enqueue(*stream, shape, std::as_bytes(std::span(&params, 1)));
    }
    Emulator device{[] {
      EmulatorOptions options;
      options.late = 0;
      return options;
    }()};
    std::shared_ptr<Stream> stream = device.make_stream();
    std::shared_ptr<void> memory = device.allocate(1024);
    float* x = static_cast<float*>(memory.get());
  };
  Emulator device;
  std::shared_ptr<Stream> stream = device.make_stream();
};

TEST_F(Vocabulary, ThreadsOfABlockMeetAndExchange) {
  const auto out = run(R"(
    float* s = reinterpret_cast<float*>(shared_memory());
    const int t = thread_index();
    s[t] = t * 2.0f;
    sync_block();
    p.out[t] = shuffle_xor(s[63 - t], 1) + (ballot(lane() == 3) == 8u ? 1000.0f : 0.0f) + shuffle_up(float(lane()), 31);)");
  for (int t = 0; t < 64; ++t)
    EXPECT_EQ(out[static_cast<size_t>(t)], 2.0f * (63 - (t ^ 1)) + 1000 + (t % 32 == 31 ? 0 : t % 32)) << t;
}

TEST_F(Vocabulary, ConversionsAgreeWithTheHostsToTheBit) {
  std::vector<float> in;
  std::mt19937 random(7);
  for (int i = 0; i < 4096; ++i) in.push_back(std::ldexp(std::normal_distribution<float>()(random), i % 40 - 28));
  in.insert(in.end(),
            {0.0f, -0.0f, INFINITY, -INFINITY, 65504.0f, 65520.0f, 448.0f, 465.0f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f});
  const auto n = static_cast<int>(in.size());
  const auto out = run("for (int i = thread_index(); i < " + std::to_string(n) + R"(; i += 64) {
      const float x = static_cast<const float*>(p.in)[i];
      p.out[3 * i] = to_float(from_float<BF16>(x));
      p.out[3 * i + 1] = to_float(from_float<F16>(x));
      p.out[3 * i + 2] = to_float(from_float<E4M3>(x));
    })",
                       in, in.size() * 3);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(out[3 * i], bf16_value(bf16_bits(in[i]))) << in[i];
    EXPECT_EQ(out[3 * i + 1], f16_value(f16_bits(in[i]))) << in[i];
    EXPECT_EQ(out[3 * i + 2], e4m3_value(e4m3_bits(in[i]))) << in[i];
  }
}

TEST_F(Vocabulary, IntegersSaturate) {
  const std::vector<float> in = {NAN,   INFINITY, -INFINITY, 1e20f, -1e20f, 3e9f, -3e9f,
                                 40000, -40000,   300,       -300,  1.9f,   -1.9f};
  const auto n = static_cast<int>(in.size());
  const auto out = run("for (int i = thread_index(); i < " + std::to_string(n) + R"(; i += 64) {
      const float x = static_cast<const float*>(p.in)[i];
      p.out[5 * i] = round_to<int64_t>(x);
      p.out[5 * i + 1] = round_to<int32_t>(x);
      p.out[5 * i + 2] = round_to<int16_t>(x);
      p.out[5 * i + 3] = round_to<int8_t>(x);
      p.out[5 * i + 4] = round_to<uint8_t>(x);
    })",
                       in, in.size() * 5);
  constexpr std::array kTypes = {DType::I64, DType::I32, DType::I16, DType::I8, DType::U8};
  for (size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(out[i], static_cast<float>(round_to(kTypes[i % 5], static_cast<double>(in[i / 5]))))
        << name_of(kTypes[i % 5]) << " of " << in[i / 5];
}

TEST_F(Vocabulary, SharedMemoryStartsAsNaNAndCopiesComeAtTheirWait) {
  const std::string copy = R"(
    float* s = reinterpret_cast<float*>(shared_memory());
    const int t = thread_index();
    p.out[t] = s[4 * t];
    s[4 * t] = 5.0f;
    cp_async16(shared_address(s + 4 * t), static_cast<const float*>(p.in) + t / 4 * 4, t % 2 == 0 ? 16 : 0);
    cp_async_commit();
    p.out[64 + t] = s[4 * t];
    cp_async_wait<0>();
    p.out[128 + t] = s[4 * t];)";
  const auto out = run(copy, std::vector<float>(64, 7.0f), 192);
  for (size_t t = 0; t < 64; ++t) {
    EXPECT_TRUE(std::isnan(out[t]));
    EXPECT_TRUE(std::isnan(out[64 + t]));
    EXPECT_EQ(out[128 + t], t % 2 == 0 ? 7.0f : 0.0f);
  }
}

// a[16, k] b[k, 8] through ldmatrix of row-major a and b transposed, and again with b given as [k][8] (16 bits only).
class MmaTest : public Vocabulary, public testing::WithParamInterface<DType> {};
TEST_P(MmaTest, MultipliesWhatLdmatrixReads) {
  const DType type = GetParam();
  const int k = type == DType::E4M3 ? 32 : 16;
  std::vector<float> in(256);  // 16 rows of a, 8 of b, 32 bytes each; b as [k][8]
  std::vector<double> a, b;
  std::mt19937 random(3);
  for (int i = 0; i < 24 * k; ++i) {
    store_element(type, in.data(), i, std::normal_distribution<double>()(random));
    (i < 16 * k ? a : b).push_back(load_element(type, in.data(), i));
  }
  if (k == 16)
    for (int i = 0; i < 128; ++i) store_element(type, in.data() + 192, i / 8 * 8 + i % 8, b[index(i % 8 * 16 + i / 8)]);
  const std::string name = type == DType::E4M3 ? "e4m3" : type == DType::F16 ? "f16" : "bf16";
  const auto out = run(R"(
    unsigned char* s = shared_memory();
    for (int i = lane(); i < 1024; i += 32) s[i] = static_cast<const unsigned char*>(p.in)[i];
    sync_warp();
    uint32_t a[4], b[2], two[4];
    float d[4] = {100.0f, 100.0f, 100.0f, 100.0f};
    const uint32_t at = shared_address(s);
    ldmatrix_x4(a, at + lane() % 16 * 32 + lane() / 16 * 16);
    const bool transposed = warp() == 1 && )" +
                           std::string(k == 16 ? "true" : "false") + R"(;
    if (transposed) ldmatrix_x2_trans(b, at + 768 + lane() % 16 * 16);
    else ldmatrix_x4(two, at + 512 + lane() % 8 * 32 + lane() / 8 % 2 * 16), b[0] = two[0], b[1] = two[1];
    mma_)" + name + R"((d, a, b);
    for (int i = 0; i < 4; ++i) p.out[warp() * 128 + (lane() / 4 + i / 2 * 8) * 8 + lane() % 4 * 2 + i % 2] = d[i];)",
                       in, 256);
  // For e4m3, 33 addends are truncated at 2^-13 of the power of two below 100.
  const double tolerance = type == DType::E4M3 ? 33 * 0x1p-13 * 64 : 1e-4;
  std::vector<double> want;
  for (int at = 0; at < 256; ++at) {
    want.push_back(100);
    for (int i = 0; i < k; ++i) want.back() += a[index(at / 8 % 16 * k + i)] * b[index(at % 8 * k + i)];
  }
  EXPECT_TRUE(close(out, want, Tolerance{tolerance}));
}
INSTANTIATE_TEST_SUITE_P(Types, MmaTest, testing::Values(DType::BF16, DType::F16, DType::E4M3),
                         [](const auto& one) { return std::string(name_of(one.param)); });

TEST_F(Vocabulary, MistakesAreFound) {
  using testing::HasSubstr;
  EXPECT_THAT(error_of("if (thread_index() < 32) sync_block();"), HasSubstr("deadlock: 32 threads wait at sync_block"));
  EXPECT_THAT(error_of("if (lane() < 5) p.out[0] = shuffle(1.0f, 0);"), HasSubstr("10 threads wait at shuffle"));
  EXPECT_THAT(error_of("if (lane() < 5) sync_warp(); else shuffle(1.0f, 0);"), HasSubstr("different instructions"));
  EXPECT_THAT(error_of("cp_async16(shared_address(shared_memory()) + 4096, p.in, 16);"),
              HasSubstr("outside shared memory"));
  EXPECT_THAT(error_of("shared_memory()[4096] = 1;"), HasSubstr("wrote behind its 4096 bytes"));
  EXPECT_THAT(error_of("griddep_launch(); griddep_wait();"), HasSubstr("before it has waited for its predecessor"));
  EXPECT_THAT(error_of("this is no code"), HasSubstr("does not compile"));
}

const char kBoxAndProduct[] = R"(
#include "tenon/backend/cuda/device/elements.h"
using namespace tenon::device;
struct Params { TensorMap map; float* out; };
KERNEL(128, 1, Params, p) {
  const uint32_t shared = shared_address(shared_memory()), barrier = shared + 8192;
  const BF16* rows = reinterpret_cast<const BF16*>(shared_memory());
  const int t = thread_index();
  if (t == 0) {
    mbarrier_init(barrier, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expecting(barrier, 8192);
    tma_load(shared, p.map, barrier, 0, -1);
    p.out[0] = to_float(rows[0]);
  }
  sync_block();
  mbarrier_wait(barrier, 0);
  if (t == 0) {
    p.out[1] = to_float(rows[0]);
    p.out[2] = to_float(rows[64 + (0 ^ 1) * 8]);  // row 1: chunk 0 lies at chunk 1
    p.out[3] = to_float(rows[3 * 64 + (2 ^ 3) * 8 + 5]);
  }
  float d[8][4] = {};
  for (int k = 0; k < 4; ++k) wgmma_bf16(d, wgmma_rows(shared) + 2 * k, wgmma_rows(shared) + 2 * k, true);
  wgmma_commit();
  if (t == 0) p.out[4] = d[0][0];
  wgmma_wait<0>();
  wgmma_settle(d);
  for (int i = 0; i < 32; ++i)
    p.out[5 + (t / 32 * 16 + lane() / 4 + i % 4 / 2 * 8) * 64 + i / 4 * 8 + lane() % 4 * 2 + i % 2] = d[i / 4][i % 4];
})";

// A box of 8 rows of 128 bytes, swizzled; a warpgroup product with the box as both operands.
TEST_F(Vocabulary, BoxesAndProductsComeAtTheirWaits) {
  constexpr int kRows = 64, kColumns = 64;
  std::vector<float> values;
  auto memory = device.allocate(kRows * kColumns * 2);
  for (int i = 0; i < kRows * kColumns; ++i) {
    store_element(DType::BF16, memory.get(), i, i % 17 - 8 + i / kColumns % 5);
    values.push_back(static_cast<float>(load_element(DType::BF16, memory.get(), i)));
  }
  struct BoxParams {
    TensorMap map;
    float* out;
  };
  auto out = device.allocate((5 + kRows * kRows) * 4);
  const auto* got = static_cast<const float*>(out.get());
  const BoxParams params{device.encode({.address = memory.get(),
                                        .element_bytes = 2,
                                        .rank = 2,
                                        .extent = {kColumns, kRows},
                                        .stride_bytes = {2, 2 * kColumns},
                                        .box = {kColumns, kRows},
                                        .swizzle_bytes = 128}),
                         static_cast<float*>(out.get())};
  device.load({"probe", kBoxAndProduct})
      ->enqueue(*stream, {.threads = 128, .shared_bytes = 8200}, std::as_bytes(std::span(&params, 1)));
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_EQ(got[1], 0.0f);  // row -1 is outside
  EXPECT_EQ(got[2], values[0]);
  EXPECT_EQ(got[3], values[2 * kColumns + 21]);
  EXPECT_TRUE(std::isnan(got[4]));
  for (int row = 1; row < kRows; ++row)
    for (int col = 1; col < kRows; ++col) {
      float want = 0;
      for (int k = 0; k < kColumns; ++k)
        want += values[index((row - 1) * kColumns + k)] * values[index((col - 1) * kColumns + k)];
      EXPECT_EQ(got[5 + row * kRows + col], want) << row << ", " << col;
    }
  EXPECT_THAT(
      error_of("const uint32_t b = shared_address(shared_memory()); if (thread_index() == 0) mbarrier_init(b, 2);\n"
               "sync_block(); if (thread_index() == 0) mbarrier_arrive(b); mbarrier_wait(b, 0);"),
      testing::HasSubstr("deadlock: 64 threads wait at mbarrier_wait"));
  EXPECT_THAT(error_of("mbarrier_wait(shared_address(shared_memory()), 0);"), testing::HasSubstr("never made"));
}

// A box of 4 rows of 128 bytes, swizzled, two rows of which lie inside the tensor; overwritten after the wait, or
// before.
TEST_F(Vocabulary, BoxesAreStoredUntilTheWait) {
  const auto stored = [&](const std::string& order) {
    auto out = device.allocate(3 * 64 * 2);
    const TensorMap map = device.encode({.address = out.get(),
                                         .element_bytes = 2,
                                         .rank = 3,
                                         .extent = {64, 3, 1},
                                         .stride_bytes = {2, 128, 384},
                                         .box = {64, 4, 1},
                                         .swizzle_bytes = 128});
    device
        .load({"probe", R"(
#include "tenon/backend/cuda/device/elements.h"
using namespace tenon::device;
struct Params { TensorMap map; };
KERNEL(32, 1, Params, p) {
  BF16* const box = reinterpret_cast<BF16*>(shared_memory());
  for (int row = 0; row < 4; ++row)
    for (int i = lane(); i < 64; i += 32) box[row * 64 + ((i / 8) ^ row) * 8 + i % 8] = from_float<BF16>(row * 64 + i);
  fence_async();
  sync_warp();
  if (lane() == 0) {
    tma_store(p.map, shared_address(shared_memory()), 0, 1, 0);
    )" + order + "\n  }\n}"})
        ->enqueue(*stream, {.threads = 32, .shared_bytes = 512}, std::as_bytes(std::span(&map, 1)));
    std::vector<double> values;
    for (int i = 0; i < 3 * 64; ++i) values.push_back(load_element(DType::BF16, out.get(), i));
    return values;
  };
  const std::vector<double> after = stored("tma_store_wait(); box[5] = from_float<BF16>(7.0f);");
  for (int i = 0; i < 3 * 64; ++i) EXPECT_EQ(after[index(i)], std::max(i - 64, 0)) << i;
  EXPECT_EQ(stored("box[5] = from_float<BF16>(7.0f); tma_store_wait();")[64 + 5], 7);
  try {
    stored("");
    ADD_FAILURE() << "a store without a wait went unnoticed";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("ends before the boxes that it stores were read"));
  }
}

// Three blocks add to one box, the last block first: the sum depends on the order.
TEST_F(Vocabulary, BlocksAddBoxesInTurn) {
  const auto summed = [&](const std::string& turn, const std::string& written) {
    auto memory = device.allocate(32 * 4 + 4);
    std::memset(memory.get(), 0, 32 * 4 + 4);
    struct {
      TensorMap map;
      uint32_t* counter;
    } params{device.encode({.address = memory.get(),
                            .element_bytes = 4,
                            .rank = 3,
                            .extent = {32, 1, 1},
                            .stride_bytes = {4, 128, 128},
                            .box = {32, 1, 1},
                            .swizzle_bytes = 128}),
             reinterpret_cast<uint32_t*>(memory.get()) + 32};
    device
        .load({"probe", R"(
#include "tenon/backend/cuda/device/elements.h"
using namespace tenon::device;
struct Params { TensorMap map; uint32_t* counter; };
KERNEL(32, 1, Params, p) {
  reinterpret_cast<float*>(shared_memory())[lane()] = block_x() == 0 ? -1e8f : block_x() == 1 ? 1.0f : 1e8f;
  fence_async();
  sync_warp();
  if (lane() != 0) return;
  counter_wait(p.counter, )" +
                            turn + R"();
  if (block_x() == 2)
    tma_store(p.map, shared_address(shared_memory()), 0, 0, 0);
  else
    tma_add(p.map, shared_address(shared_memory()), 0, 0, 0);
  )" + written + R"(
  counter_set(p.counter, *p.counter + 1);
})"})
        ->enqueue(*stream, {.grid_x = 3, .threads = 32, .shared_bytes = 128, .waits_for_blocks = true},
                  std::as_bytes(std::span(&params, 1)));
    return load_element(DType::F32, memory.get(), 31);
  };
  const std::string written = "tma_store_finish();";
  EXPECT_EQ(summed("2 - block_x()", written), 0);        // (1e8 + 1) - 1e8
  EXPECT_EQ(summed("(block_x() + 1) % 3", written), 1);  // (1e8 - 1e8) + 1
  const auto failure = [&](const std::string& turn, const std::string& waits) -> std::string {
    try {
      summed(turn, waits);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(failure("2 - block_x()", ""), testing::HasSubstr("counter_set before the boxes"));
  EXPECT_THAT(failure("3 - block_x()", written), testing::HasSubstr("wait at counter_wait"));
}

TEST_F(Vocabulary, BankConflictsAreCounted) {
  const std::string read = R"(
    uint32_t a[4];
    ldmatrix_x4(a, shared_address(shared_memory()) + lane() * STRIDE);)";
  auto conflicts = [&](const std::string& stride) {
    Emulator::statistics() = {};
    run("constexpr int STRIDE = " + stride + ";" + read, {}, 1, 32);
    return Emulator::statistics().bank_conflicts;
  };
  EXPECT_EQ(conflicts("16"), 0);
  EXPECT_EQ(conflicts("112"), 0);
  EXPECT_EQ(conflicts("32"), 4);
  EXPECT_EQ(conflicts("128"), 28);
}

TEST_F(Vocabulary, KernelCallsAreRecorded) {
  auto memory = device.allocate(1024);
  auto* x = static_cast<float*>(memory.get());
  EXPECT_EQ(x[5], 0.0f);
  const Buffers params{nullptr, x};
  auto kernel = device.load(source("p.out[thread_index()] += 1.0f;"));
  auto recording =
      device.record([&](Stream& on) { kernel->enqueue(on, {.threads = 64}, std::as_bytes(std::span(&params, 1))); });
  EXPECT_EQ(x[5], 0.0f);
  recording->run(*stream);
  recording->run(*stream);
  EXPECT_EQ(x[5], 2.0f);
}

// The preceding kernel runs when its successor waits for it; the successor has by then read what was there before.
TEST_F(Vocabulary, ALateKernelRunsWhenItIsWaitedFor) {
  Late late;
  const float* x = late.x;
  const auto put = [&](const std::string& body) { late.put(source(body), {.threads = 64, .overlaps = true}); };
  put("p.out[thread_index()] = 3.0f;");
  EXPECT_EQ(x[5], 0.0f);
  put("const float before = p.out[thread_index()]; griddep_wait();"
      "p.out[64 + thread_index()] = 10.0f * before + p.out[thread_index()];");
  EXPECT_EQ(x[5], 3.0f);
  for (int t = 0; t < 64; ++t) EXPECT_EQ(x[64 + t], 3.0f);
}

// A fragment divided by one divisor: bit-identical to division, except the last bit of subnormal results.
TEST_F(Vocabulary, QuotientsAreThoseOfDivisions) {
  std::mt19937 random(3);
  std::vector<float> in;
  const auto number = [&](int low, int high) {
    const int exponent = std::uniform_int_distribution<int>(low, high)(random);
    return std::ldexp(std::uniform_real_distribution<float>(-2, 2)(random), exponent);
  };
  for (const float divisor : {1.0f, 3.0f, -0.1f, 448.0f, 1.99999988f, 0x1p-99f, 0x1.8p99f, 0x1p-120f, 0x1p120f, 0.0f,
                              INFINITY, NAN, 2.2e-15f}) {
    in.push_back(divisor);
    for (int i = 0; i < 7; ++i) in.push_back(number(-90, 126));
  }
  for (int i = 0; i < 3000; ++i) {
    in.push_back(number(-40, 40));
    for (const float a : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, number(-90, 126), number(-20, 20)}) in.push_back(a);
  }
  const size_t fragments = in.size() / 8;
  const std::vector<float> out =
      run("const float* x = static_cast<const float*>(p.in);\n"
          "for (int i = thread_index(); i < " +
              std::to_string(fragments) +
              "; i += 64) store(p.out + 8 * i, Quotients(x[8 * i]).of<2, false>(load<float, 8>(x + 8 * i)));\n",
          in, in.size());
  // 16-bit dividends in one step; the divisor is not one.
  const std::vector<float> halves =
      run("const float* x = static_cast<const float*>(p.in);\n"
          "for (int i = thread_index(); i < " +
              std::to_string(fragments) +
              "; i += 64) store(p.out + 8 * i, Quotients(x[8 * i]).of<1, false>(round_to<BF16>(load<float, 8>(x + 8 * "
              "i))));\n",
          in, in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const float a = bf16_value(bf16_bits(in[i])), want = a / in[i / 8 * 8];
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(halves[i])) << a << " / " << in[i / 8 * 8];
    } else if (std::fpclassify(want) != FP_SUBNORMAL) {
      EXPECT_EQ(std::bit_cast<uint32_t>(halves[i]), std::bit_cast<uint32_t>(want)) << a << " / " << in[i / 8 * 8];
    }
  }
  for (size_t i = 0; i < in.size(); ++i) {
    const float want = in[i] / in[i / 8 * 8];
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(out[i])) << in[i] << " / " << in[i / 8 * 8];
    else if (std::fpclassify(want) == FP_SUBNORMAL)
      EXPECT_NEAR(out[i], want, 0x1p-149f) << in[i] << " / " << in[i / 8 * 8];
    else
      EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(want)) << in[i] << " / " << in[i / 8 * 8];
  }
}

// A kernel that lets its successor start before it has waited is late together with the kernel before it; a successor
// that reads early must say so.
TEST_F(Vocabulary, AnEarlyReaderDoesNotStartBehindAHastyKernel) {
  for (const bool says_so : {true, false}) {
    Late late;
    const float* x = late.x;
    const auto put = [&](const std::string& body, const CallShape& shape) { late.put(source(body), shape); };
    put("p.out[thread_index()] = 3.0f;", {.threads = 64, .overlaps = true});
    put("griddep_launch(); griddep_wait();", {.threads = 64, .overlaps = true, .starts_next = true});
    EXPECT_EQ(x[5], 0.0f);
    put("const float before = p.out[thread_index()]; griddep_wait(); p.out[64 + thread_index()] = before;",
        {.threads = 64, .overlaps = true, .reads_early = says_so});
    EXPECT_EQ(x[64 + 5], says_so ? 3.0f : 0.0f);
  }
}

}  // namespace
}  // namespace tenon::cuda::test
