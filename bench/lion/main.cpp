// Lion on the CPU next to a triad with the same traffic (three reads and two writes per element, in place, all
// threads), in one process on the same tensors: the fraction of memory bandwidth that the update reaches. Prints one
// JSON object to stdout.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tenon/backend/backend.h"
#include "tenon/backend/stream.h"
#include "tenon/optim/lion.h"

namespace {

using Clock = std::chrono::steady_clock;

/// The parameters of GPT-2 (124 M): embeddings, 12 blocks, last norm. 148 tensors.
std::vector<int64_t> gpt2() {
  constexpr int64_t kWidth = 768;
  std::vector<int64_t> counts = {50257 * kWidth, 1024 * kWidth};
  for (int block = 0; block < 12; ++block)
    for (const int64_t n : {kWidth, kWidth, 3 * kWidth * kWidth, 3 * kWidth, kWidth * kWidth, kWidth, kWidth, kWidth,
                            4 * kWidth * kWidth, 4 * kWidth, 4 * kWidth * kWidth, kWidth})
      counts.push_back(n);
  counts.insert(counts.end(), {kWidth, kWidth});
  return counts;
}

struct Case {
  std::string name;
  std::vector<int64_t> counts;
};
std::vector<Case> cases() {
  return {{"1 x 67.1M", {int64_t{1} << 26}}, {"512 x 64K", std::vector<int64_t>(512, 65536)}, {"gpt2-124M", gpt2()}};
}

struct Vectors {
  std::vector<std::vector<float>> p, m, g;
  explicit Vectors(const std::vector<int64_t>& counts) {
    for (const int64_t n : counts) {
      p.emplace_back(static_cast<size_t>(n));
      m.emplace_back(static_cast<size_t>(n));
      g.emplace_back(static_cast<size_t>(n));
      for (size_t i = 0; i < p.back().size(); ++i) {
        g.back()[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 8 & 0xffff) - 32768) * 1e-4f;
        m.back()[i] = g.back()[i] * 0.5f;
        p.back()[i] = 1.0f;
      }
    }
  }
};

__attribute__((target_clones("avx512f", "avx2", "default"))) void triad(float* __restrict p, float* __restrict m,
                                                                        const float* __restrict g, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    p[i] = p[i] * 0.999f + g[i];
    m[i] = m[i] * 0.99f + g[i];
  }
}

/// Processes all vectors in chunks of 2^16 elements, which the threads take in turn.
void triads(Vectors& v, int threads) {
  constexpr size_t kPart = 65536;
  struct Part {
    size_t vector, begin, count;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < v.p.size(); ++i)
    for (size_t at = 0; at < v.p[i].size(); at += kPart) parts.push_back({i, at, std::min(kPart, v.p[i].size() - at)});
  std::atomic<size_t> next{0};
  const auto take = [&] {
    for (size_t i = next.fetch_add(1); i < parts.size(); i = next.fetch_add(1)) {
      const Part& part = parts[i];
      triad(v.p[part.vector].data() + part.begin, v.m[part.vector].data() + part.begin,
            v.g[part.vector].data() + part.begin, part.count);
    }
  };
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(take);
  take();
  for (std::thread& w : workers) w.join();
}

double seconds_of(const std::function<void()>& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}
double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

nlohmann::json measure(const Case& c, const std::shared_ptr<tenon::Backend>& backend, int threads, int runs) {
  Vectors v(c.counts);
  std::vector<tenon::LionTensor> tensors;
  int64_t elements = 0;
  for (size_t i = 0; i < c.counts.size(); ++i) {
    tensors.push_back({v.p[i].data(), v.m[i].data(), v.g[i].data(), nullptr, c.counts[i]});
    elements += c.counts[i];
  }
  tenon::Lion lion(backend, {});
  const std::shared_ptr<tenon::Stream> stream = backend->make_stream();
  tenon::LionOptions options;
  options.weight_decay = 0.1;
  std::vector<double> steps, triads_;
  for (int i = -1; i < runs; ++i) {  // alternate, so that a busy neighbour affects both; the first pair is a warm-up
    const double step = seconds_of([&] { lion.step(*stream, tensors, options); });
    const double other = seconds_of([&] { triads(v, threads); });
    if (i < 0) continue;
    steps.push_back(step);
    triads_.push_back(other);
  }
  const double bytes = 20.0 * static_cast<double>(elements), step = median(steps), other = median(triads_);
  const auto gigabytes = [bytes](double seconds) { return bytes / seconds * 1e-9; };
  return {{"name", c.name},
          {"tensors", c.counts.size()},
          {"elements", elements},
          {"median_ms", step * 1e3},
          {"min_ms", *std::min_element(steps.begin(), steps.end()) * 1e3},
          {"triad_ms", other * 1e3},
          {"triad_min_ms", *std::min_element(triads_.begin(), triads_.end()) * 1e3},
          {"gb_s", gigabytes(step)},
          {"triad_gb_s", gigabytes(other)},
          {"part_of_triad", other / step},
          {"part_of_triad_fastest",
           *std::min_element(triads_.begin(), triads_.end()) / *std::min_element(steps.begin(), steps.end())},
          {"runs", runs}};
}

}  // namespace

int main(int argc, char** argv) try {
  int runs = 11, threads = static_cast<int>(std::thread::hardware_concurrency());
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--runs")
      runs = std::max(std::atoi(argv[i + 1]), 1);
    else if (flag == "--threads")
      threads = std::max(std::atoi(argv[i + 1]), 1);
    else if (flag == "--case")
      only = argv[i + 1];
    else
      throw std::invalid_argument("unknown flag " + flag + "; flags: --runs N --threads N --case NAME");
  }
  tenon::BackendOptions options;
  options.threads = threads;
  const std::shared_ptr<tenon::Backend> backend = tenon::make_backend("cpu", options);
  nlohmann::json out = {{"device", backend->describe()}, {"threads", threads}, {"cases", nlohmann::json::array()}};
  for (const Case& c : cases())
    if (only.empty() || c.name == only) out["cases"].push_back(measure(c, backend, threads, runs));
  std::cout << out.dump(2) << '\n';
  return 0;
} catch (const std::exception& e) {
  std::cerr << "lion: " << e.what() << '\n';
  return 2;
}
