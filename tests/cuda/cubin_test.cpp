// Reading machine code: of kernels with a few instructions, and of invalid files.
#include "tenon/backend/cuda/driver/cubin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tenon/core/error.h"
#include "tests/cuda/nvrtc_environment.h"

namespace tenon::cuda {
namespace {
using test::find_nvrtc;
using test::plain_kernel;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

KernelBinary compiled(const std::string& parameters, const std::string& body, const char* arch, int threads = 128) {
  return find_nvrtc().nvrtc->compile(plain_kernel("probe", parameters, body, threads), arch);
}
CubinKernel probe(const std::string& parameters, const std::string& body, const char* arch = "sm_89") {
  return read_cubin_kernel(compiled(parameters, body, arch).cubin, kKernelName);
}
constexpr const char* kArchs[] = {"sm_89", "sm_90a"};

// Copies of one element per thread, one kernel per type, and a copy to shared memory.
KernelSource copies() {
  std::string text;
  const std::pair<const char*, const char*> types[] = {
      {"wide", "float4"},      {"two", "float2"},          {"one", "float"},        {"byte", "unsigned char"},
      {"signed_byte", "char"}, {"half", "unsigned short"}, {"signed_half", "short"}};
  for (const auto& [name, type] : types)
    text += "extern \"C\" __global__ void " + std::string(name) + "(const " + type + "* a, " + type +
            "* b) { b[threadIdx.x] = a[threadIdx.x]; }\n";
  text += R"(extern "C" __global__ void async(const char* a) {
    extern __shared__ char s[];
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::
                 "r"((unsigned)__cvta_generic_to_shared(s) + threadIdx.x * 16), "l"(a + threadIdx.x * 16));
  })";
  return {"copies", text};
}

TEST(Cubin, WidthsOfAccesses) {
  SKIP_WITHOUT_NVRTC();
  for (const char* arch : kArchs) {
    std::map<std::string, CubinKernel> by_name;
    for (CubinKernel& kernel : read_cubin(find_nvrtc().nvrtc->compile(copies(), arch).cubin)) {
      EXPECT_EQ(kernel.loads.total(), 1) << arch << " " << kernel.name;
      EXPECT_EQ(kernel.stores.total(), kernel.name == "async" ? 0 : 1) << arch << " " << kernel.name;
      by_name[kernel.name] = std::move(kernel);
    }
    EXPECT_EQ(by_name.size(), 8U) << arch;
    EXPECT_EQ(by_name["wide"].loads.bytes16 * 10 + by_name["wide"].stores.bytes16, 11) << arch;
    EXPECT_EQ(by_name["two"].loads.bytes8 * 10 + by_name["two"].stores.bytes8, 11) << arch;
    EXPECT_EQ(by_name["one"].loads.bytes4 * 10 + by_name["one"].stores.bytes4, 11) << arch;
    for (const char* name : {"byte", "signed_byte", "half", "signed_half"})
      EXPECT_EQ(by_name[name].loads.narrower * 10 + by_name[name].stores.narrower, 11) << arch << " " << name;
    EXPECT_EQ(by_name["async"].count(Opcode::CopyAsync), 1) << arch;
    EXPECT_EQ(by_name["async"].loads.bytes16, 1) << arch;
  }
}

TEST(Cubin, ResourcesOfAKernel) {
  SKIP_WITHOUT_NVRTC();
  for (const char* arch : kArchs) {
    const CubinKernel kernel = probe("float* a",
                                     "__shared__ float s[100]; s[threadIdx.x % 100] = a[threadIdx.x]; __syncthreads(); "
                                     "a[threadIdx.x] = s[99 - threadIdx.x % 100];",
                                     arch);
    EXPECT_EQ(kernel.static_shared_bytes, 400) << arch;
    EXPECT_EQ(kernel.max_threads, 128) << arch;
    EXPECT_EQ(kernel.barriers, 1) << arch;
    EXPECT_EQ(kernel.stack_bytes, 0) << arch;
    EXPECT_GE(kernel.registers, 8) << arch;
  }
}

TEST(Cubin, ArraysInLocalMemoryAreSeen) {
  SKIP_WITHOUT_NVRTC();
  const KernelBinary code = compiled(
      "int* a, int n", "int l[64]; for (int i = 0; i < n; ++i) l[a[i] & 63] = i; a[threadIdx.x] = l[n & 63];", "sm_89");
  const CubinKernel kernel = read_cubin_kernel(code.cubin, kKernelName);
  EXPECT_GT(kernel.stack_bytes, 0);
  const auto found = check_kernel(kernel, code.log, {});
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found[0], HasSubstr("stack frame"));
  KernelExpectations lenient;
  lenient.may_use_stack = true;
  EXPECT_THAT(check_kernel(kernel, code.log, lenient), IsEmpty());
}

std::string half_product() {
  return "unsigned x = threadIdx.x; float c[4] = {0, 0, 0, 0}; asm "
         "volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.f16."
         "f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};\" : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), "
         "\"+f\"(c[3]) : \"r\"(x)); for (int i = 0; i < 4; ++i) out[4 * x + i] = c[i];";
}

TEST(Cubin, TensorCoreInstructions) {
  SKIP_WITHOUT_NVRTC();
  for (const char* arch : kArchs) EXPECT_EQ(probe("float* out", half_product(), arch).count(Opcode::Hmma), 1) << arch;
  std::string eight_bits = half_product();
  const std::string from = "m16n8k16.row.col.f32.f16.f16.f32", to = "m16n8k32.row.col.f32.e4m3.e4m3.f32";
  eight_bits.replace(eight_bits.find(from), from.size(), to);
  const CubinKernel native = probe("float* out", eight_bits, "sm_89");
  EXPECT_EQ(native.count(Opcode::Qmma), 1);
  EXPECT_EQ(native.count(Opcode::Hmma), 0);
  const CubinKernel emulated = probe("float* out", eight_bits, "sm_90a");
  EXPECT_EQ(emulated.count(Opcode::Qmma), 0);
  EXPECT_EQ(emulated.count(Opcode::Hmma), 2);
  KernelExpectations expected;
  expected.contains = {Opcode::Qmma};
  expected.lacks = {Opcode::Hmma};
  EXPECT_THAT(check_kernel(native, "", expected), IsEmpty());
  EXPECT_THAT(check_kernel(emulated, "", expected),
              ElementsAre("it has no QMMA instruction", "it has 2 HMMA instructions"));
}

TEST(Cubin, AsynchronousProducts) {
  SKIP_WITHOUT_NVRTC();
  for (const auto& [type, opcode] :
       {std::pair{"16.f32.bf16.bf16", Opcode::Hgmma}, {"32.f32.e4m3.e4m3", Opcode::Qgmma}}) {
    const bool wide = opcode == Opcode::Hgmma;
    const CubinKernel kernel =
        probe("unsigned long x, unsigned long y, float* out",
              "float c[4] = {0, 0, 0, 0}; asm volatile(\"wgmma.fence.sync.aligned;\"); asm volatile(\"wgmma.mma_async."
              "sync.aligned.m64n8k" +
                  std::string(type) + " {%0,%1,%2,%3}, %4, %5, 1, 1, 1" + (wide ? ", 0, 0" : "") +
                  ";\" : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : \"l\"(x), \"l\"(y)); "
                  "asm volatile(\"wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\"); "
                  "for (int i = 0; i < 4; ++i) out[i * 128 + threadIdx.x] = c[i];",
              "sm_90a");
    EXPECT_EQ(kernel.count(opcode), 1) << type;
  }
}

TEST(CheckKernel, EveryRule) {
  CubinKernel kernel;
  kernel.registers = 200;
  kernel.max_threads = 256;
  kernel.static_shared_bytes = 60000;
  kernel.loads = {.bytes16 = 1, .bytes8 = 0, .bytes4 = 2, .narrower = 1};
  kernel.stores = {.bytes16 = 3, .bytes8 = 0, .bytes4 = 1, .narrower = 0};
  KernelExpectations expected;
  expected.threads = 512;
  expected.blocks = 2;
  expected.wide_loads = 0.5;
  expected.wide_stores = 0.75;
  const std::string log = "ptxas : 8 bytes stack frame, 12 bytes spill stores\n(C7510) potential\n";
  EXPECT_THAT(check_kernel(kernel, log, expected),
              ElementsAre("the compiler spills registers",
                          "it has 60000 bytes of static shared memory; at most 49152 are expected",
                          "it has 200 registers a thread; 2 blocks of 512 threads leave 64",
                          "it is called with 512 threads and declared for 256",
                          "1 of 4 global loads move 16 bytes (0 move 8, 2 move 4, 1 less); expected at least 50 %",
                          "the assembler serialises wgmma"));
  EXPECT_THAT(check_kernel(CubinKernel{}, "0 bytes stack frame, 0 bytes spill stores", {}), IsEmpty());
}

// Truncated files, and every byte changed: an error or some kernels, never a crash.
TEST(Cubin, AnyBytes) {
  SKIP_WITHOUT_NVRTC();
  std::vector<std::byte> cubin = compiled("int* a", "*a = 1;", "sm_89").cubin;
  const auto survives = [](std::span<const std::byte> bytes) {
    try {
      read_cubin(bytes);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Device);
    }
  };
  for (size_t size = 0; size < cubin.size(); size += 7) survives(std::span(cubin).first(size));
  for (size_t at = 0; at < cubin.size(); ++at) {
    const std::byte kept = cubin[at];
    cubin[at] ^= std::byte{0xff};
    survives(cubin);
    cubin[at] = kept;
  }
  EXPECT_THROW(read_cubin_kernel(cubin, "another"), Error);
}

}  // namespace
}  // namespace tenon::cuda
