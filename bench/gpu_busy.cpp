// The fraction of a run during which a GPU executes at least one kernel, measured by CUPTI: a library that the driver
// loads into any program (CUDA_INJECTION64_PATH), see tools/gpu_busy.sh. Runs are separated by 20 us without a kernel.
// At the end it prints the most frequent kind of run (by its number of kernels), with its median time and busy
// fraction.
#include <cupti.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace {

using Interval = std::pair<uint64_t, uint64_t>;  // nanoseconds, begin and end of a kernel
constexpr uint64_t kBetweenRuns = 20000;
constexpr size_t kBufferBytes = 8 << 20;

std::mutex mutex;
std::vector<Interval> kernels;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = kBufferBytes;
  *max_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  const std::lock_guard lock(mutex);
  for (CUpti_Activity* record = nullptr; cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS;) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<CUpti_ActivityKernel9*>(record);
    const uint64_t begin = kernel->start, end = kernel->end;  // copied, because the record is packed
    kernels.emplace_back(begin, end);
  }
  std::free(buffer);
}

struct Run {
  uint64_t begin, end, busy;
  int kernels;
};

std::vector<Run> runs_of(std::vector<Interval>& sorted) {
  std::sort(sorted.begin(), sorted.end());
  std::vector<Run> runs;
  for (const auto& [begin, end] : sorted) {
    if (runs.empty() || begin > runs.back().end + kBetweenRuns) runs.push_back({begin, begin, 0, 0});
    Run& run = runs.back();
    if (end > run.end) run.busy += end - std::max(begin, run.end), run.end = end;
    ++run.kernels;
  }
  return runs;
}

void report() {
  cuptiActivityFlushAll(1);
  const std::lock_guard lock(mutex);
  std::map<int, std::vector<Run>> kinds;
  for (const Run& run : runs_of(kernels)) kinds[run.kernels].push_back(run);
  if (kinds.empty()) return void(std::fprintf(stderr, "gpu busy: no kernel ran\n"));
  auto& runs = std::max_element(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
                 return a.second.size() * static_cast<size_t>(a.first) < b.second.size() * static_cast<size_t>(b.first);
               })->second;
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.end - a.begin < b.end - b.begin; });
  const Run& median = runs[runs.size() / 2];
  const auto all = static_cast<double>(median.end - median.begin);
  std::fprintf(stderr, "gpu busy: %zu runs of %d kernels, median %.3f ms, a kernel runs in %.1f %% of it\n",
               runs.size(), median.kernels, all / 1e6, 100 * static_cast<double>(median.busy) / all);
}

}  // namespace

/// The entry point that the driver calls on loading the library. Returns 1: loaded.
extern "C" int InitializeInjection() {
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  std::atexit(report);
  return 1;
}
