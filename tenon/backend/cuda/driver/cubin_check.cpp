// Checks a kernel's machine code against expectations.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "tenon/backend/cuda/driver/cubin.h"

namespace tenon::cuda {
namespace {

constexpr int kRegistersOfMultiprocessor = 65536, kMaxRegisters = 255, kWarp = 32;

// Most registers per thread: they are allocated per warp, in units of 8 per thread.
int register_limit(int threads, int blocks) {
  const int warps = (std::max(threads, 1) + kWarp - 1) / kWarp * std::max(blocks, 1);
  return std::min(kRegistersOfMultiprocessor / (warps * kWarp) / 8 * 8, kMaxRegisters);
}

class Violations {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    list_.push_back(out.str());
  }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

void check_width(const Accesses& accesses, double least, const char* what, Violations& found) {
  if (least <= 0) return;
  const int total = accesses.total();
  if (total == 0) return;  // everything goes through TMA
  if (accesses.bytes16 >= least * total) return;
  found.add(accesses.bytes16, " of ", total, " global ", what, " move 16 bytes (", accesses.bytes8, " move 8, ",
            accesses.bytes4, " move 4, ", accesses.narrower, " less); expected at least ", std::lround(least * 100),
            " %");
}

void check_memory(const CubinKernel& kernel, const std::string& log, const KernelExpectations& expected,
                  Violations& found) {
  if (!expected.may_use_stack && kernel.stack_bytes > 0)
    found.add("it has a stack frame of ", kernel.stack_bytes, " bytes");
  const int local = kernel.count(Opcode::LoadLocal) + kernel.count(Opcode::StoreLocal);
  if (!expected.may_use_stack && local > 0) found.add(local, " instructions reach local memory: registers are spilled");
  // The log reports this for every function, with "0 bytes" for those that do not spill.
  for (size_t at = log.find("bytes spill stores"); at != std::string::npos;
       at = log.find("bytes spill stores", at + 1)) {
    const bool none = at >= 3 && log.compare(at - 3, 3, " 0 ") == 0;
    if (!none && !expected.may_use_stack) found.add("the compiler spills registers");
    if (!none) break;
  }
  if (kernel.static_shared_bytes > expected.max_shared_bytes)
    found.add("it has ", kernel.static_shared_bytes, " bytes of static shared memory; at most ",
              expected.max_shared_bytes, " are expected");
}

}  // namespace

bool serialises_wgmma(const std::string& log) {
  for (const char* sign : {"(C7508)", "(C7510)", "(C7511)", "instructions are serialized"})
    if (log.find(sign) != std::string::npos) return true;
  return false;
}

std::string opcode_name(Opcode opcode) {
  static constexpr std::pair<Opcode, const char*> kNames[] = {
      {Opcode::Convert, "F2FP"},     {Opcode::LoadMatrix, "LDSM"},    {Opcode::Hmma, "HMMA"},
      {Opcode::Qmma, "QMMA"},        {Opcode::LoadGlobal, "LDG"},     {Opcode::LoadLocal, "LDL"},
      {Opcode::StoreGlobal, "STG"},  {Opcode::StoreLocal, "STL"},     {Opcode::Barrier, "SYNCS"},
      {Opcode::CopyAsync, "LDGSTS"}, {Opcode::TensorLoad, "UTMALDG"}, {Opcode::Hgmma, "HGMMA"},
      {Opcode::Qgmma, "QGMMA"}};
  const auto* const found = std::ranges::find(kNames, opcode, &std::pair<Opcode, const char*>::first);
  return found == std::end(kNames) ? "?" : found->second;
}

std::vector<std::string> check_kernel(const CubinKernel& kernel, const std::string& log,
                                      const KernelExpectations& expected) {
  Violations found;
  check_memory(kernel, log, expected, found);
  const int threads = expected.threads > 0 ? expected.threads : kernel.max_threads;
  const int limit = register_limit(threads, expected.blocks);
  if (kernel.registers > limit)
    found.add("it has ", kernel.registers, " registers a thread; ", expected.blocks, " blocks of ", threads,
              " threads leave ", limit);
  if (expected.threads > 0 && kernel.max_threads > 0 && expected.threads > kernel.max_threads)
    found.add("it is called with ", expected.threads, " threads and declared for ", kernel.max_threads);
  for (Opcode opcode : expected.contains)
    if (kernel.count(opcode) == 0) found.add("it has no ", opcode_name(opcode), " instruction");
  for (Opcode opcode : expected.lacks)
    if (kernel.count(opcode) > 0) found.add("it has ", kernel.count(opcode), " ", opcode_name(opcode), " instructions");
  check_width(kernel.loads, expected.wide_loads, "loads", found);
  check_width(kernel.stores, expected.wide_stores, "stores", found);
  if (serialises_wgmma(log)) found.add("the assembler serialises wgmma");
  if (log.find("(C7517)") != std::string::npos) found.add("the assembler adds waits between wgmma instructions");
  return found.take();
}

}  // namespace tenon::cuda
