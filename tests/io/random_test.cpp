// Random numbers bit-identical to PyTorch's.
#include "tenon/io/random.h"

#include <bit>
#include <set>

#include "tenon/io/json.h"
#include "tests/io/io_test_tools.h"

namespace {
using namespace io_test;
using namespace tenon;

std::string hash_hex(const std::vector<float>& values) {
  Fnv hash;
  for (float v : values) hash.add(std::bit_cast<uint32_t>(v));
  return hash.hex();
}

TEST(TorchGenerator, BitEqualToTorch) {
  const auto recorded = read_json(fixture("io/torch_randn.json"));
  ASSERT_GE(recorded["cases"].size(), 300u);
  for (const auto& c : recorded["cases"]) {
    TorchGenerator generator(std::stoull(c[0].get<std::string>()));
    std::vector<float> values;
    for (const auto& n : c[1]) {
      std::vector<float> part(n.get<size_t>());
      generator.randn(part);
      values.insert(values.end(), part.begin(), part.end());
    }
    for (size_t i = 0; i < c[2].size(); ++i) EXPECT_EQ(values[i], c[2][i].get<float>()) << c[0] << c[1];
    EXPECT_EQ(hash_hex(values), c[3].get<std::string>()) << "seed " << c[0] << " sizes " << c[1];
  }
}

// Reference output of Matsumoto and Nishimura's mt19937ar for init_genrand(5489): the 1st and the 10000th number.
TEST(TorchGenerator, MersenneTwister) {
  TorchGenerator generator(5489);
  EXPECT_EQ(generator.next(), 3499211612u);
  uint32_t last = 0;
  for (int i = 1; i < 10000; ++i) last = generator.next();
  EXPECT_EQ(last, 4123659995u);
}

TEST(TorchGenerator, NormalsHaveTheirMoments) {
  TorchGenerator generator(3);
  std::vector<float> values(200000);
  generator.randn(values);
  double sum = 0, squares = 0;
  for (float v : values) sum += v, squares += static_cast<double>(v) * v;
  EXPECT_LE(std::abs(sum / 200000), 0.01);
  EXPECT_LE(std::abs(squares / 200000 - 1), 0.02);
}

TEST(TorchGenerator, UniformsAreInRange) {
  TorchGenerator generator(9);
  std::vector<float> values(10000);
  generator.rand(values);
  for (float v : values) EXPECT_TRUE(v >= 0 && v < 1);
}

TEST(DrawSeed, IsThirtyTwoBitsAndVaries) {
  std::set<uint64_t> seeds;
  for (int i = 0; i < 8; ++i) seeds.insert(draw_seed());
  EXPECT_GE(seeds.size(), 7u);
  EXPECT_LE(*seeds.rbegin(), 0xffffffffu);
}

}  // namespace
