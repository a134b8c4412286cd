// What a kernel's machine code reveals: registers, memory, instructions, and the widths of its accesses. We read it
// from the compiler's ELF file ourselves; no toolkit program is needed.
//
// Instructions are 16 bytes. Found by compiling one-instruction kernels (NVRTC 13.0, sm_89 and sm_90a):
//   bits 0-8    opcode (Opcode)
//   bits 73-75  width per lane in LDG, STG and LDGSTS: 0, 1: 1 byte; 2, 3: 2 bytes; 4: 4; 5: 8; 6: 16 bytes
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tenon/backend/cuda/device.h"

namespace tenon::cuda {

/// The opcodes that the checks know.
enum class Opcode : int {
  Convert = 0x03e,      ///< F2FP and similar: e4m3 mma.sync on sm_90 is twelve of these and two HMMA
  LoadMatrix = 0x03b,   ///< ldmatrix
  Hmma = 0x03c,         ///< mma.sync f16, bf16
  Qmma = 0x07a,         ///< mma.sync e4m3 (sm_89)
  LoadGlobal = 0x181,   ///< LDG
  LoadLocal = 0x183,    ///< LDL: spills and arrays in local memory
  StoreGlobal = 0x186,  ///< STG
  StoreLocal = 0x187,   ///< STL
  Barrier = 0x1a7,      ///< mbarrier
  CopyAsync = 0x1ae,    ///< LDGSTS, cp.async
  TensorLoad = 0x1b4,   ///< TMA
  Hgmma = 0x1f0,        ///< wgmma f16, bf16
  Qgmma = 0x1f3,        ///< wgmma e4m3
};

/// Instruction counts by bytes moved per lane.
struct Accesses {
  int bytes16 = 0, bytes8 = 0, bytes4 = 0, narrower = 0;
  int total() const { return bytes16 + bytes8 + bytes4 + narrower; }
};

struct CubinKernel {
  std::string name;
  int registers = 0;
  int stack_bytes = 0;          ///< local memory per thread, called functions included
  int static_shared_bytes = 0;  ///< without what the system reserves (1 KiB on sm_90)
  int max_threads = 0;          ///< per block, as declared; 0: not declared
  int argument_bytes = 0;       ///< of the parameters alone
  int parameter_bytes = 0;      ///< with alignment padding before and between them
  int barriers = 0;
  std::map<int, int> opcodes;  ///< instruction counts by their low 9 bits
  Accesses loads, stores;      ///< of global memory; loads include cp.async

  int count(Opcode opcode) const;
  KernelResources resources() const { return {registers, stack_bytes, static_shared_bytes}; }
};

/// The kernels of a cubin, by name. Accepts arbitrary bytes; throws Error(Device) that says what is wrong with them.
std::vector<CubinKernel> read_cubin(std::span<const std::byte> cubin);
/// The kernel of this name; throws Error(Device).
CubinKernel read_cubin_kernel(std::span<const std::byte> cubin, const std::string& name);

/// What good code for a kernel looks like.
struct KernelExpectations {
  int threads = 0;  ///< per block; 0: as the kernel declares
  int blocks = 1;   ///< that should be resident per multiprocessor
  bool may_use_stack = false;
  std::vector<Opcode> contains = {};  ///< tensor-core and copy instructions that must occur
  std::vector<Opcode> lacks = {};     ///< and those that must not (HMMA where QMMA was meant)
  double wide_loads = 0;              ///< least fraction of the loads that must be 16 bytes wide
  double wide_stores = 0;
  int max_shared_bytes = 48 * 1024;  ///< static shared memory
};

/// What is wrong with a kernel, a sentence for each problem; empty if nothing is. `log`: the compiler's.
std::vector<std::string> check_kernel(const CubinKernel& kernel, const std::string& log,
                                      const KernelExpectations& expected);
/// True if the log says that the assembler serializes wgmma instructions (C7508, C7510, C7511).
bool serialises_wgmma(const std::string& log);
std::string opcode_name(Opcode opcode);

}  // namespace tenon::cuda
