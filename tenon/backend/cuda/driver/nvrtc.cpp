#include "tenon/backend/cuda/driver/nvrtc.h"

#include <csignal>
#include <sstream>

#include "tenon/backend/cuda/driver/cubin.h"
#include "tenon/backend/cuda/driver/embedded_texts.h"
#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

// NVRTC calls this in place of signal(). Otherwise it would handle SIGINT and SIGTERM for the whole process whenever it
// compiles, by calling exit(4) from the handler.
using SignalHandler = void (*)(int);
SignalHandler leave_signals_alone(int, SignalHandler) { return SIG_IGN; }

}  // namespace

std::vector<std::string> compile_options(const KernelSource& source, const std::string& arch) {
  // One flag per assembler option: NVRTC does not accept the list form.
  std::vector<std::string> options = {"--gpu-architecture=" + arch,
                                      "--std=c++20",
                                      "--device-as-default-execution-space",  // nodes carry no annotations
                                      "-DTENON_DEVICE=",
                                      "-DNDEBUG=1",  // an assert left in the code makes the assembler serialize wgmma
                                      "--no-source-include",
                                      "--ptxas-options=-v",
                                      "--ptxas-options=-O3"};
  if (source.exact) options.emplace_back("--fmad=false");
  return options;
}

std::string log_summary(const std::string& log, int lines) {
  std::istringstream in(log);
  std::string errors, first;
  int error_lines = 0, first_lines = 0;
  for (std::string line; std::getline(in, line);) {
    const bool says_most = line.find("error") != std::string::npos || line.find("(C75") != std::string::npos;
    if (says_most && error_lines++ < lines) errors += "; " + line;
    if (!line.empty() && first_lines++ < lines) first += "; " + line;
  }
  return errors.empty() ? first : errors;
}

class Nvrtc::Program {
 public:
  Program(const Api& api, const KernelSource& source) : api_(api), name_(source.name) {
    std::vector<const char*> sources, names;
    for (const EmbeddedText& header : embedded_headers()) {
      sources.push_back(header.text);
      names.push_back(header.name);
    }
    check(api_.create(&program_, source.code.c_str(), "kernel.cu", static_cast<int>(sources.size()), sources.data(),
                      names.data()),
          "create a program");
  }
  ~Program() { api_.destroy(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // The compiler's status; details are in the log.
  int compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    pointers.reserve(options.size());
    for (const std::string& option : options) pointers.push_back(option.c_str());
    return api_.compile(program_, static_cast<int>(pointers.size()), pointers.data());
  }
  std::string log() {
    size_t size = 0;
    if (api_.log_size(program_, &size) != 0 || size == 0) return {};
    std::string log(size, '\0');
    if (api_.log(program_, log.data()) != 0) return {};
    log.resize(log.find('\0') == std::string::npos ? size : log.find('\0'));
    return log;
  }
  std::vector<std::byte> cubin() {
    size_t size = 0;
    check(api_.cubin_size(program_, &size), "return the machine code");
    std::vector<std::byte> bytes(size);
    check(api_.cubin(program_, reinterpret_cast<char*>(bytes.data())), "return the machine code");
    return bytes;
  }

 private:
  void check(int status, const char* action) {
    TENON_CHECK(Device, status == 0, "kernel " + name_) << "NVRTC cannot " << action << ": " << api_.error(status);
  }

  const Api& api_;
  std::string name_;
  void* program_ = nullptr;
};

template <class Function>
void Nvrtc::bind(Function*& function, const char* name) {
  function = library_.function<Function>(name);
  TENON_CHECK(Device, function != nullptr, "nvrtc") << library_.path().string() << " has no " << name;
}

Nvrtc::Nvrtc(const SearchSettings& settings, int newest_major)
    : library_(need_library(Library::Nvrtc, "kernels cannot be compiled: ", settings, newest_major)) {
  library_.redirect_calls("signal", reinterpret_cast<void*>(&leave_signals_alone));
  int (*get_version)(int*, int*) = nullptr;
  bind(get_version, "nvrtcVersion");
  bind(api_.create, "nvrtcCreateProgram");
  bind(api_.destroy, "nvrtcDestroyProgram");
  bind(api_.compile, "nvrtcCompileProgram");
  bind(api_.cubin_size, "nvrtcGetCUBINSize");
  bind(api_.cubin, "nvrtcGetCUBIN");
  bind(api_.log_size, "nvrtcGetProgramLogSize");
  bind(api_.log, "nvrtcGetProgramLog");
  bind(api_.error, "nvrtcGetErrorString");
  get_version(&version_.first, &version_.second);
}

KernelBinary Nvrtc::compile(const KernelSource& source, const std::string& arch) const {
  Program program(api_, source);
  const int status = program.compile(compile_options(source, arch));
  KernelBinary result{.cubin = {}, .log = program.log()};
  const std::string where = "kernel " + source.name;
  TENON_CHECK(Device, status == 0, where)
      << "NVRTC " << version_.first << "." << version_.second << " cannot compile it for " << arch << ": "
      << api_.error(status) << log_summary(result.log);
  TENON_CHECK(Device, !serialises_wgmma(result.log), where)
      << "the assembler serialises wgmma for " << arch << ":" << log_summary(result.log);
  result.cubin = program.cubin();
  return result;
}

}  // namespace tenon::cuda
