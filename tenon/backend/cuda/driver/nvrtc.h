// NVIDIA's run-time compiler, loaded at run time: takes a kernel's source and returns machine code for one
// architecture. Needs neither GPU nor driver.
#pragma once
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tenon/backend/cuda/device.h"
#include "tenon/backend/cuda/driver/libraries.h"

namespace tenon::cuda {

/// The name of every kernel's entry point (KERNEL in vocabulary.h).
inline constexpr const char* kKernelName = "tenon_kernel";

struct KernelBinary {
  std::vector<std::byte> cubin;
  std::string log;  ///< warnings, and the assembler's report on registers and memory
};

/// The compiler's options for a kernel and an architecture: "sm_89", "sm_90a".
std::vector<std::string> compile_options(const KernelSource& source, const std::string& arch);

/// The most informative lines of a compiler's log: errors if there are any, else its first lines.
std::string log_summary(const std::string& log, int lines = 6);

/// The compiler. Thread-safe: programs are independent of each other.
class Nvrtc {
 public:
  /// Finds and loads NVRTC; throws Error(Device) with the command that installs it. `newest_major` as in load_library.
  explicit Nvrtc(const SearchSettings& settings = SearchSettings::from_environment(),
                 int newest_major = std::numeric_limits<int>::max());

  std::pair<int, int> version() const { return version_; }
  const std::filesystem::path& path() const { return library_.path(); }

  /// Throws Error(Device) that names the kernel and quotes the log's first errors; also if the assembler had to
  /// serialize wgmma, which makes a kernel several times slower.
  KernelBinary compile(const KernelSource& source, const std::string& arch) const;

 private:
  class Program;
  struct Api {
    int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
    int (*destroy)(void**);
    int (*compile)(void*, int, const char* const*);
    int (*cubin_size)(void*, size_t*);
    int (*cubin)(void*, char*);
    int (*log_size)(void*, size_t*);
    int (*log)(void*, char*);
    const char* (*error)(int);
  };

  template <class Function>
  void bind(Function*& function, const char* name);

  LoadedLibrary library_;
  Api api_{};
  std::pair<int, int> version_;
};

}  // namespace tenon::cuda
