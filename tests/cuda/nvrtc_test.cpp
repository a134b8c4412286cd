// Compiles kernel source to machine code, for both architectures, on a machine without a GPU.
#include "tenon/backend/cuda/driver/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "tenon/backend/cuda/driver/cubin.h"
#include "tenon/core/error.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::cuda {
namespace {
using test::find_nvrtc;
using test::plain_kernel;
using testing::HasSubstr;

std::string error_of(const KernelSource& source, const std::string& arch) {
  try {
    find_nvrtc().nvrtc->compile(source, arch);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Device);
    return e.what();
  }
  return "no error";
}

TEST(Nvrtc, CompilesForBothArchitectures) {
  SKIP_WITHOUT_NVRTC();
  for (const char* arch : {"sm_89", "sm_90a"}) {
    const KernelBinary compiled = find_nvrtc().nvrtc->compile(
        plain_kernel("copy", "const float* a, float* b", "b[threadIdx.x] = a[threadIdx.x];"), arch);
    EXPECT_THAT(compiled.log, HasSubstr("registers")) << arch;
    EXPECT_GT(read_cubin_kernel(compiled.cubin, kKernelName).registers, 0) << arch;
  }
}

TEST(Nvrtc, TheVocabularyAndElements) {
  SKIP_WITHOUT_NVRTC();
  const KernelSource source{"copy of fragments", R"(
#include "tenon/backend/cuda/device/elements.h"
struct Params { const float* from; float* to; };
using namespace tenon::device;
KERNEL(128, 2, Params, p) { store(p.to + thread_index() * 4, load<float, 4>(p.from + thread_index() * 4)); })"};
  for (const char* arch : {"sm_89", "sm_90a"}) {
    const CubinKernel kernel = read_cubin_kernel(find_nvrtc().nvrtc->compile(source, arch).cubin, kKernelName);
    EXPECT_EQ(kernel.max_threads, 128);
    EXPECT_EQ(kernel.loads.bytes16, 1);
    EXPECT_EQ(kernel.stores.bytes16, 1);
  }
}

TEST(Nvrtc, AnErrorNamesTheKernelAndTheLine) {
  SKIP_WITHOUT_NVRTC();
  const std::string error = error_of(plain_kernel("rows: silly", "int* a", "*a = no_such_thing;"), "sm_89");
  EXPECT_THAT(error, HasSubstr("kernel rows: silly"));
  EXPECT_THAT(error, HasSubstr("no_such_thing"));
  EXPECT_THAT(error, HasSubstr("NVRTC"));
}

TEST(Nvrtc, AnUnknownArchitecture) {
  SKIP_WITHOUT_NVRTC();
  EXPECT_THAT(error_of(plain_kernel("copy", "int* a", "*a = 1;"), "sm_13"), HasSubstr("sm_13"));
}

// The accumulators are touched between two asynchronous products: the assembler gives up (C7511).
TEST(Nvrtc, SerialisedProductsAreAnError) {
  SKIP_WITHOUT_NVRTC();
  const std::string product =
      "asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;\" : "
      "\"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : \"l\"(x), \"l\"(y));";
  const std::string body = "float c[4] = {0, 0, 0, 0}; asm volatile(\"wgmma.fence.sync.aligned;\"); " + product +
                           "c[0] += 1.0f; " + product +
                           "asm volatile(\"wgmma.commit_group.sync.aligned;\"); c[0] += 1.0f; asm "
                           "volatile(\"wgmma.wait_group.sync.aligned 0;\"); "
                           "for (int i = 0; i < 4; ++i) out[i * 128 + threadIdx.x] = c[i];";
  const KernelSource source = plain_kernel("product", "unsigned long x, unsigned long y, float* out", body);
  EXPECT_THAT(error_of(source, "sm_90a"), HasSubstr("serialises wgmma"));
}

TEST(Nvrtc, SeveralThreads) {
  SKIP_WITHOUT_NVRTC();
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&good, i] {
      const std::string body = "*a = " + std::to_string(i) + ";";
      good += !find_nvrtc().nvrtc->compile(plain_kernel("store", "int* a", body), "sm_89").cubin.empty();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 4);
}

// A handler of the compiler's would end the process without its own clean-up.
TEST(Nvrtc, SignalsStayTheProgramsWhileItCompiles) {
  SKIP_WITHOUT_NVRTC();
  const auto handler = [](int number) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    return now.sa_handler;
  };
  std::map<int, sighandler_t> before;  // a sanitizer has handlers of its own
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT, SIGSEGV}) before[number] = handler(number);
  std::atomic<bool> done = false;
  std::thread compiling([&done] {
    EXPECT_FALSE(find_nvrtc().nvrtc->compile(plain_kernel("store", "int* a", "*a = 5;"), "sm_89").cubin.empty());
    done = true;
  });
  std::set<int> changed;
  while (!done)
    for (const auto& [number, was] : before)
      if (handler(number) != was) changed.insert(number);
  compiling.join();
  EXPECT_THAT(changed, testing::IsEmpty());
}

TEST(Nvrtc, MissingIsOneErrorWithTheCommand) {
  SearchSettings settings;
  settings.system_loader = false;
  settings.toolkits = "/nonexistent";
  settings.own_environment = "/somewhere/cuda-env";
  try {
    const Nvrtc nvrtc(settings);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Device);
    EXPECT_THAT(e.hint(), HasSubstr("'/somewhere/cuda-env/bin/pip' install nvidia-cuda-nvrtc"));
  }
}

TEST(LogSummary, ErrorsBeforeTheRest) {
  EXPECT_EQ(log_summary("remark\nkernel.cu(3): error: x\n\nmore\n"), "; kernel.cu(3): error: x");
  EXPECT_EQ(log_summary("one\n\ntwo\nthree\n", 2), "; one; two");
  EXPECT_EQ(log_summary(""), "");
}

}  // namespace
}  // namespace tenon::cuda
