// NVIDIA's libraries, found and loaded at run time: one build serves machines with and without a GPU.
//
// Searched in this order: TENON_CUDA_PATH; where the system's loader looks; toolkits (CUDA_HOME, /usr/local/cuda*); the
// nvidia-* wheels of Python environments (VIRTUAL_ENV, CONDA_PREFIX, the python3 on PATH, ~/.local); Tenon's own
// environment, <cache folder>/cuda-env. Nothing is run to find them. A library stays loaded until the process ends.
#pragma once
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tenon::cuda {

enum class Library { Driver, Nvrtc, CublasLt, Cudnn, Cupti };

/// What the search depends on; from_environment() for all but tests.
struct SearchSettings {
  std::string cuda_path, cuda_home, virtual_env, conda_prefix, path, home;
  std::filesystem::path own_environment;          ///< <cache folder>/cuda-env
  std::filesystem::path toolkits = "/usr/local";  ///< holds cuda, cuda-13.0, ..
  bool system_loader = true;
  std::filesystem::path site_packages = {};  ///< that holds this library as a part of a Python package

  static SearchSettings from_environment();
};

/// The folders to look into, in order, each once. An empty path stands for the system loader's own search.
std::vector<std::filesystem::path> library_folders(const SearchSettings& settings);

/// A shared library in this process.
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

 private:
  void* handle_;
  std::filesystem::path path_;
};

struct SearchResult {
  std::optional<LoadedLibrary> library;
  std::string problem;  ///< if not found: why what was there could not be used; empty if there was nothing
};

/// Loads the first usable one. `newest_major` bounds the version where several may be installed: a driver does not load
/// what a later compiler made.
SearchResult load_library(Library which, const SearchSettings& settings = SearchSettings::from_environment(),
                          int newest_major = std::numeric_limits<int>::max());

/// A version as the library counts them: the driver's 13010 is "13.1", 91900 of cuDNN and cuBLASLt "9.19.0".
std::string version_text(Library which, size_t version);
/// As the library itself says it: "13.1.0"; empty if it does not.
std::string library_version(Library which, const LoadedLibrary& library);

/// For people: "NVRTC" and the command that installs it.
std::string library_name(Library which);
std::string install_command(Library which, const SearchSettings& settings = SearchSettings::from_environment(),
                            int newest_major = std::numeric_limits<int>::max());

struct LibraryReport {
  std::string name;  ///< "driver", "nvrtc", "cublaslt", "cudnn", "cupti"
  bool found = false;
  std::string path, version;  ///< where found; version as the library itself says
  std::string problem;        ///< where not
  std::string hint;           ///< the command that installs it, where not found
};

/// Every library, loaded if it can be.
std::vector<LibraryReport> report_libraries(const SearchSettings& settings = SearchSettings::from_environment());

}  // namespace tenon::cuda
