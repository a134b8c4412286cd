// Where NVIDIA's libraries may be. Wheels have two layouts: nvidia/cuda_nvrtc/lib (a folder per wheel, CUDA 12) and
// nvidia/cu13/lib (a folder per toolkit).
#include <dlfcn.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tenon/backend/cuda/driver/libraries.h"
#include "tenon/core/options.h"

namespace tenon::cuda {
namespace fs = std::filesystem;
namespace {

// Sub-folders whose names start with `begins`, in descending order: newer versions first. Empty for an unreadable
// folder.
std::vector<fs::path> subfolders(const fs::path& folder, const std::string& begins = {}) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().filename().string().starts_with(begins) && it->is_directory(ignored)) found.push_back(it->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ':');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

class Folders {
 public:
  void system() { add({}); }
  void folder(const fs::path& path) {
    std::error_code ignored;
    if (!path.empty() && fs::is_directory(path, ignored)) add(path);
  }
  void toolkit(const fs::path& root) {
    if (root.empty()) return;
    folder(root / "lib64");
    folder(root / "lib");
    for (const fs::path& target : subfolders(root / "targets")) folder(target / "lib");
  }
  void wheels(const fs::path& site_packages) {
    for (const fs::path& wheel : subfolders(site_packages / "nvidia")) folder(wheel / "lib");
  }
  // A Python installation or environment: the folder that holds lib/python3.x.
  void python(const fs::path& prefix) {
    if (prefix.empty()) return;
    for (const char* lib : {"lib", "lib64", "local/lib"})
      for (const fs::path& version : subfolders(prefix / lib, "python3"))
        for (const char* packages : {"site-packages", "dist-packages"}) wheels(version / packages);
  }
  // TENON_CUDA_PATH names a folder of libraries, a toolkit, a Python environment or a site-packages folder.
  void anything(const fs::path& path) {
    folder(path);
    toolkit(path);
    python(path);
    wheels(path);
  }
  std::vector<fs::path> take() { return std::move(folders_); }

 private:
  void add(const fs::path& path) {
    if (seen_.insert(path.string()).second) folders_.push_back(path);
  }

  std::vector<fs::path> folders_;
  std::set<std::string> seen_;
};

// The environment and installation of the first python3 on PATH. pyenv's python3 is a script in "shims", next to
// "versions".
void add_python_of_path(const std::string& path, Folders& folders) {
  for (const fs::path folder : split(path)) {
    const fs::path python = folder / "python3";
    std::error_code error;
    if (!fs::exists(python, error)) continue;
    folders.python(folder.parent_path());
    const fs::path real = fs::canonical(python, error);
    if (!error) folders.python(real.parent_path().parent_path());
    if (folder.filename() == "shims")
      for (const fs::path& version : subfolders(folder.parent_path() / "versions")) folders.python(version);
    return;
  }
}

// In a wheel this library is in site-packages/tenon/lib.
fs::path site_packages_around() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&site_packages_around), &info) || !info.dli_fname) return {};
  std::error_code failed;  // if there is no working directory
  const fs::path package = fs::absolute(info.dli_fname, failed).parent_path().parent_path();
  return package.filename() == "tenon" ? package.parent_path() : fs::path();
}

}  // namespace

SearchSettings SearchSettings::from_environment() {
  return {.cuda_path = option(Option::CudaPath),
          .cuda_home = option(Option::CudaHome),
          .virtual_env = option(Option::VirtualEnv),
          .conda_prefix = option(Option::CondaPrefix),
          .path = option(Option::Path),
          .home = option(Option::Home),
          .own_environment = cached("cuda-env"),
          .site_packages = site_packages_around()};
}

std::vector<fs::path> library_folders(const SearchSettings& settings) {
  Folders folders;
  for (const std::string& path : split(settings.cuda_path)) folders.anything(path);
  if (!settings.site_packages.empty()) folders.wheels(settings.site_packages);
  if (settings.system_loader) folders.system();
  folders.toolkit(settings.cuda_home);
  folders.toolkit(settings.toolkits / "cuda");
  for (const fs::path& toolkit : subfolders(settings.toolkits, "cuda-")) folders.toolkit(toolkit);
  folders.python(settings.virtual_env);
  folders.python(settings.conda_prefix);
  if (!settings.conda_prefix.empty()) folders.folder(fs::path(settings.conda_prefix) / "lib");
  add_python_of_path(settings.path, folders);
  if (!settings.home.empty()) folders.python(fs::path(settings.home) / ".local");
  folders.python(settings.own_environment);
  // Where drivers are mounted in containers, WSL and NixOS.
  for (const char* driver : {"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"})
    if (settings.system_loader) folders.folder(driver);
  return folders.take();
}

}  // namespace tenon::cuda
