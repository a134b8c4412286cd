#include "tenon/backend/cuda/driver/libraries.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <span>

#include "tenon/core/error.h"

namespace tenon::cuda {
namespace fs = std::filesystem;
namespace {

struct Soname {
  std::string name;
  int major;
};
struct Traits {
  Library id;
  const char *key, *name;
  const char *wheel, *wheel12;  ///< for CUDA 13 and for CUDA 12
  std::vector<Soname> sonames;  ///< newest first
};

const Traits& traits(Library which) {
  static const Traits all[] = {
      {Library::Driver, "driver", "NVIDIA's driver (libcuda)", "", "", {{"libcuda.so.1", 0}}},
      {Library::Nvrtc,
       "nvrtc",
       "NVRTC",
       "nvidia-cuda-nvrtc",
       "nvidia-cuda-nvrtc-cu12",
       {{"libnvrtc.so.13", 13}, {"libnvrtc.so.12", 12}}},
      {Library::CublasLt,
       "cublaslt",
       "cuBLASLt",
       "nvidia-cublas",
       "nvidia-cublas-cu12",
       {{"libcublasLt.so.13", 13}, {"libcublasLt.so.12", 12}}},
      {Library::Cudnn, "cudnn", "cuDNN", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12", {{"libcudnn.so.9", 0}}},
      {Library::Cupti,
       "cupti",
       "CUPTI",
       "nvidia-cuda-cupti",
       "nvidia-cuda-cupti-cu12",
       {{"libcupti.so.13", 13}, {"libcupti.so.12", 12}}},
  };
  return all[static_cast<int>(which)];
}

// The file from which a handle was loaded, or the given name if the loader does not know.
fs::path loaded_path(void* handle, const fs::path& given) {
  link_map* map = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name;
  return known ? fs::path(map->l_name) : given;
}

void append(std::string& text, const std::string& more) { text += (text.empty() ? "" : "; ") + more; }

std::string loader_error() {
  const char* error = dlerror();
  return error ? error : "unknown loader error";
}

std::pair<int, int> nvrtc_version(const LoadedLibrary& nvrtc) {
  int major = 0, minor = 0;
  if (auto* get = nvrtc.function<int(int*, int*)>("nvrtcVersion")) get(&major, &minor);
  return {major, minor};
}

// NVRTC loads its built-in functions by name when it first compiles. It would not find them outside the loader's path,
// so they are loaded here from NVRTC's own folder. Returns an error message, or empty.
std::string load_builtins(const LoadedLibrary& nvrtc) {
  const auto [major, minor] = nvrtc_version(nvrtc);
  const std::string name = "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
  std::error_code ignored;
  const fs::path real = fs::canonical(nvrtc.path(), ignored);
  for (const fs::path& folder : {nvrtc.path().parent_path(), real.parent_path()})
    if (fs::exists(folder / name, ignored) && dlopen((folder / name).c_str(), RTLD_NOW | RTLD_LOCAL)) return {};
  if (dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return {};
  return nvrtc.path().string() + " has no " + name + " next to it";
}

}  // namespace

void* LoadedLibrary::symbol(const char* name) const { return dlsym(handle_, name); }

// NOLINTBEGIN(performance-no-int-to-ptr): the loader has made these addresses.
// The loader keeps the addresses of imported functions in a table, which the library's dynamic section describes.
void LoadedLibrary::redirect_calls(const char* name, void* replacement) const {
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return;
  const ElfW(Rela)* entries = nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  size_t count = 0;
  for (const ElfW(Dyn)* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_JMPREL) entries = reinterpret_cast<const ElfW(Rela)*>(d->d_un.d_ptr);
    if (d->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(d->d_un.d_ptr);
    if (d->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(d->d_un.d_ptr);
    if (d->d_tag == DT_PLTRELSZ) count = d->d_un.d_val / sizeof(ElfW(Rela));
  }
  if (!entries || !symbols || !names) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const ElfW(Rela) & entry : std::span(entries, count)) {
    if (std::strcmp(names + symbols[ELF64_R_SYM(entry.r_info)].st_name, name) != 0) continue;
    const uintptr_t slot = map->l_addr + entry.r_offset;
    // Some libraries are linked so that the loader write-protects the table.
    if (mprotect(reinterpret_cast<void*>(slot & ~(page - 1)), page, PROT_READ | PROT_WRITE) != 0) return;
    *reinterpret_cast<void**>(slot) = replacement;
  }
}
// NOLINTEND(performance-no-int-to-ptr)

SearchResult load_library(Library which, const SearchSettings& settings, int newest_major) {
  SearchResult result;
  for (const fs::path& folder : library_folders(settings)) {
    for (const Soname& soname : traits(which).sonames) {
      const fs::path file = folder / soname.name;
      std::error_code ignored;
      if (!folder.empty() && !fs::exists(file, ignored)) continue;
      if (soname.major > newest_major) {
        if (!folder.empty()) append(result.problem, file.string() + " is newer than the driver");
        continue;
      }
      void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!handle) {
        const std::string error = loader_error();
        if (!folder.empty()) append(result.problem, error);
        continue;
      }
      LoadedLibrary library(handle, loaded_path(handle, file));
      const std::string missing = which == Library::Nvrtc ? load_builtins(library) : "";
      if (missing.empty()) return {std::move(library), {}};
      append(result.problem, missing);
    }
  }
  return result;
}

LoadedLibrary need_library(Library which, const std::string& without, const SearchSettings& settings,
                           int newest_major) {
  SearchResult found = load_library(which, settings, newest_major);
  if (found.library) return *std::move(found.library);
  throw Error(ErrorKind::Device, traits(which).key,
              without + library_name(which) + " " + (found.problem.empty() ? "not found" : found.problem),
              "install it: " + install_command(which, settings, newest_major));
}

std::string version_text(Library which, size_t version) {
  const bool driver = which == Library::Driver;
  const size_t major_unit = driver ? 1000 : 10000, minor_unit = driver ? 10 : 100;
  std::string text = std::to_string(version / major_unit);
  (text += '.') += std::to_string(version % major_unit / minor_unit);
  if (!driver) (text += '.') += std::to_string(version % minor_unit);
  return text;
}

std::string library_version(Library which, const LoadedLibrary& library) {
  if (which == Library::Nvrtc) {
    const auto [major, minor] = nvrtc_version(library);
    return std::to_string(major) + "." + std::to_string(minor);
  }
  if (which == Library::Driver) {
    auto* get = library.function<int(int*)>("cuDriverGetVersion");
    int version = 0;
    return get && get(&version) == 0 ? version_text(which, static_cast<size_t>(version)) : "";
  }
  if (which == Library::Cupti) {
    auto* get = library.function<int(uint32_t*)>("cuptiGetVersion");
    uint32_t version = 0;
    return get && get(&version) == 0 ? version_text(which, version) : "";
  }
  auto* get = library.function<size_t()>(which == Library::Cudnn ? "cudnnGetVersion" : "cublasLtGetVersion");
  return get ? version_text(which, get()) : "";
}

std::string library_name(Library which) { return traits(which).name; }

std::string install_command(Library which, const SearchSettings& settings, int newest_major) {
  if (which == Library::Driver) return "sudo apt-get install nvidia-driver";
  const std::string wheel = newest_major < 13 ? traits(which).wheel12 : traits(which).wheel;
  const std::string environment = settings.own_environment.string();
  if (environment.empty()) return "python3 -m pip install " + wheel;  // no cache folder: python3's own packages
  return "python3 -m venv '" + environment + "' && '" + environment + "/bin/pip' install " + wheel;
}

std::vector<LibraryReport> report_libraries(const SearchSettings& settings) {
  std::vector<LibraryReport> reports;
  for (Library which : {Library::Driver, Library::Nvrtc, Library::CublasLt, Library::Cudnn, Library::Cupti}) {
    LibraryReport& report = reports.emplace_back();
    report.name = traits(which).key;
    const SearchResult result = load_library(which, settings);
    report.found = result.library.has_value();
    if (report.found) {
      report.path = result.library->path().string();
      report.version = library_version(which, *result.library);
    } else {
      report.problem = result.problem;
      report.hint = install_command(which, settings);
    }
  }
  return reports;
}

}  // namespace tenon::cuda
