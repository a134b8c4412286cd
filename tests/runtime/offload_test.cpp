// Which weights are offloaded, and that no copy overwrites what is still to be read. Needs no device.
#include "tenon/backend/staging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tenon::staging_test {
namespace {

constexpr int64_t kMiB = 1 << 20;

struct Network {
  std::vector<WeightRead> reads;
  int64_t all = 0;  // bytes of every weight on the device, and of everything besides them
};

// `launches` launches in two phases, the first of which runs once; some weights are read several times.
Network random_network(uint32_t seed, size_t launches) {
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return random() % n; };
  Network out;
  out.all = 3 * kMiB;
  std::map<std::string, int64_t> weights;
  size_t part = 0;
  for (size_t l = 0; l < launches; ++l) {
    const bool once = l < launches / 4;
    for (uint32_t n = below(3); n > 0; --n) {
      const std::string key = "w" + std::to_string(below(8) ? part : below(static_cast<uint32_t>(part + 1)));
      const auto [it, fresh] = weights.emplace(key, 1000 + below(below(2) ? 200'000 : 5'000'000));
      if (fresh) out.all += it->second;
      out.reads.push_back({l, part++, once ? 0 : launches / 4, once, key, it->second, {}});
    }
  }
  return out;
}

int64_t bytes_on_device(const Network& n, const StagingPlan& plan) {
  std::map<std::string, int64_t> host;
  for (const WeightRead& r : n.reads)
    if (plan.offloaded.contains(r.key)) host[r.key] = r.bytes;
  int64_t out = n.all + plan.bytes;
  for (const auto& [key, bytes] : host) out -= bytes;
  return out;
}

// Goes through the launches like an executable; each place holds the key of the weight copied to it.
void expect_each_finds_its_weights(const Network& n, const StagingPlan& plan) {
  struct Held {
    int64_t begin, end;
    std::string key;
  };
  std::vector<Held> places;
  std::map<size_t, std::string> key_of;
  for (const WeightRead& r : n.reads) key_of[r.part] = r.key;
  const auto copy = [&](const auto& copies, size_t launch) {
    const auto it = copies.find(launch);
    if (it == copies.end()) return;
    for (const StagingPlan::Copy& c : it->second) {
      ASSERT_GE(c.at, 0);
      ASSERT_EQ(c.at % 256, 0);
      ASSERT_LE(c.at + c.bytes, plan.bytes);
      std::erase_if(places, [&](const Held& h) { return h.begin < c.at + c.bytes && c.at < h.end; });
      places.push_back({c.at, c.at + c.bytes, key_of.at(c.part)});
    }
  };
  size_t last = 0;
  for (const WeightRead& r : n.reads) last = std::max(last, r.launch);
  for (size_t l = 0; l <= last; ++l) {
    copy(plan.before, l);
    for (const WeightRead& r : n.reads) {
      if (r.launch != l) continue;
      const auto place = plan.places.find({l, r.part});
      ASSERT_EQ(place != plan.places.end(), plan.offloaded.contains(r.key));
      if (place == plan.places.end()) continue;
      EXPECT_TRUE(
          std::ranges::any_of(places, [&](const Held& h) { return h.begin == place->second && h.key == r.key; }))
          << "launch " << l << " does not find " << r.key;
    }
    copy(plan.behind, l);
  }
}

TEST(Staging, EveryLaunchFindsItsWeights) {
  int tried = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Network n = random_network(seed, 12 + seed % 40);
    const StagingPlan least = plan_staging(n.reads, {.bytes = 0}, n.all);
    if (least.least == n.all) continue;  // places would take all the memory that offloading saves
    ++tried;
    ASSERT_LT(least.least, n.all);
    for (const int64_t bytes : {n.all, n.all - 1, (n.all + least.least) / 2, least.least}) {
      const StagingPlan plan = plan_staging(n.reads, {.bytes = bytes}, n.all);
      EXPECT_EQ(plan.least, least.least);
      EXPECT_LE(bytes_on_device(n, plan), bytes);
      EXPECT_EQ(plan.offloaded.empty(), bytes == n.all) << "as much as fits stays";
      expect_each_finds_its_weights(n, plan);
    }
    EXPECT_GT(bytes_on_device(n, plan_staging(n.reads, {.bytes = least.least - 1}, n.all)), least.least - 1);
    EXPECT_EQ(bytes_on_device(n, plan_staging(n.reads, {.bytes = n.all, .all = true}, n.all)), least.least);
  }
  EXPECT_GT(tried, 150);
}

// Forty equal layers, a quarter of which is offloaded: hardly more than necessary, and never two in a row.
TEST(Staging, WhatLeavesIsSpreadOut) {
  Network n;
  for (size_t l = 0; l < 40; ++l) n.reads.push_back({l, l, 0, false, "w" + std::to_string(l), kMiB, {}});
  n.all = 40 * kMiB;
  const StagingPlan plan = plan_staging(n.reads, {.bytes = 32 * kMiB}, n.all);
  EXPECT_EQ(plan.offloaded.size(), 10U) << "eight, and two for the places";
  EXPECT_EQ(plan.bytes, 2 * kMiB);
  EXPECT_EQ(plan.least, 2 * kMiB);
  for (size_t l = 0; l + 1 < 40; ++l)
    EXPECT_FALSE(plan.offloaded.contains(n.reads[l].key) && plan.offloaded.contains(n.reads[l + 1].key)) << l;
  expect_each_finds_its_weights(n, plan);
}

TEST(Staging, WhatRunsOnceLeavesFirstAndTheLargestStays) {
  Network n;
  n.reads = {{0, 0, 0, true, "table", 100 * kMiB, {}}, {1, 1, 0, true, "once", kMiB, {}},
             {2, 2, 2, false, "a", kMiB, {}},          {3, 3, 2, false, "b", kMiB, {}},
             {4, 4, 2, false, "c", kMiB, {}},          {5, 5, 2, false, "small", kMinOffloaded - 1, {}}};
  n.all = 104 * kMiB + kMinOffloaded - 1;
  EXPECT_EQ(plan_staging(n.reads, {.bytes = n.all - 1}, n.all).offloaded.count("once"), 1U);
  const StagingPlan least = plan_staging(n.reads, {.bytes = 0}, n.all);
  EXPECT_EQ(least.least, 102 * kMiB + kMinOffloaded - 1) << "the places of the table would take more than it saves";
  EXPECT_EQ(plan_staging(n.reads, {.bytes = least.least}, n.all).offloaded,
            (std::set<std::string>{"once", "a", "b", "c"}));
}

// Weights that are already placed stay where they are.
TEST(Staging, WhatIsThereStaysWhereItIs) {
  Network n;
  for (size_t l = 0; l < 8; ++l)
    n.reads.push_back(
        {l, l, 0, false, "w" + std::to_string(l), kMiB, l < 4 ? std::optional(l % 2 == 0) : std::nullopt});
  n.all = 8 * kMiB;
  EXPECT_EQ(plan_staging(n.reads, {.bytes = 8 * kMiB}, n.all).offloaded, (std::set<std::string>{"w0", "w2"}));
  const StagingPlan least = plan_staging(n.reads, {.bytes = 0}, n.all);
  EXPECT_EQ(least.offloaded, (std::set<std::string>{"w0", "w2", "w4", "w5", "w6", "w7"}));
  EXPECT_EQ(least.least, 4 * kMiB);
}

}  // namespace
}  // namespace tenon::staging_test
