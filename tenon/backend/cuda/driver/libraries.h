// NVIDIA's libraries, found and loaded at run time: one build serves machines with and without a GPU.
//
// Search order: TENON_CUDA_PATH; the system loader's paths; toolkits (CUDA_HOME, /usr/local/cuda*); the nvidia-* wheels
// of Python environments (VIRTUAL_ENV, CONDA_PREFIX, the python3 on PATH, ~/.local); Tenon's own environment, <cache
// folder>/cuda-env. The search runs no programs. A library stays loaded until the process ends.
#pragma once
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tenon::cuda {

enum class Library { Driver, Nvrtc, CublasLt, Cudnn, Cupti };

/// The search's inputs; from_environment() everywhere except in tests.
struct SearchSettings {
  std::string cuda_path, cuda_home, virtual_env, conda_prefix, path, home;
  std::filesystem::path own_environment;          ///< <cache folder>/cuda-env
  std::filesystem::path toolkits = "/usr/local";  ///< holds cuda, cuda-13.0, ..
  bool system_loader = true;
  std::filesystem::path site_packages = {};  ///< the one that contains this library, if it is part of a Python package

  static SearchSettings from_environment();
};

/// The folders to search, in order, each once. An empty path stands for the system loader's own search.
std::vector<std::filesystem::path> library_folders(const SearchSettings& settings);

/// A shared library loaded into this process.
class LoadedLibrary {
 public:
  LoadedLibrary(void* handle, std::filesystem::path path) : handle_(handle), path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }
  /// The address of a symbol, or null.
  void* symbol(const char* name) const;
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  /// Makes the library call `replacement` wherever it calls the function `name` of another library. Does nothing if it
  /// calls no such function.
  void redirect_calls(const char* name, void* replacement) const;

 private:
  void* handle_;
  std::filesystem::path path_;
};

struct SearchResult {
  std::optional<LoadedLibrary> library;
  std::string problem;  ///< if not found: why what was found could not be used; empty if nothing was found
};

/// Loads the first usable library. `newest_major` limits the version if several may be installed: a driver does not
/// load the output of a newer compiler.
SearchResult load_library(Library which, const SearchSettings& settings = SearchSettings::from_environment(),
                          int newest_major = std::numeric_limits<int>::max());

/// The library, or Error(Device) with the command that installs it. `without`: what is missed without it, in front of
/// the library's name.
LoadedLibrary need_library(Library which, const std::string& without, const SearchSettings& settings,
                           int newest_major = std::numeric_limits<int>::max());

/// A library's numeric version as text: the driver's 13010 is "13.1", 91900 of cuDNN and cuBLASLt "9.19.0".
std::string version_text(Library which, size_t version);
/// The version that the library itself reports: "13.1.0"; empty if it reports none.
std::string library_version(Library which, const LoadedLibrary& library);

/// For people: "NVRTC", and the command that installs it.
std::string library_name(Library which);
std::string install_command(Library which, const SearchSettings& settings = SearchSettings::from_environment(),
                            int newest_major = std::numeric_limits<int>::max());

struct LibraryReport {
  std::string name;  ///< "driver", "nvrtc", "cublaslt", "cudnn", "cupti"
  bool found = false;
  std::string path, version;  ///< if found; the version is the library's own
  std::string problem;        ///< if not found
  std::string hint;           ///< the command that installs it, if not found
};

/// Every library, loaded if possible.
std::vector<LibraryReport> report_libraries(const SearchSettings& settings = SearchSettings::from_environment());

}  // namespace tenon::cuda
