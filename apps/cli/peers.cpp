#include "apps/cli/peers.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <sstream>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/options.h"
#include "tenon/core/stop.h"
#include "tenon/io/json.h"
#include "tenon/io/safetensors.h"

extern char** environ;

namespace tenon::cli {
namespace {
namespace fs = std::filesystem;

// A folder that is removed with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "tenon-bench-XXXXXX").string();
    TENON_CHECK(Internal, mkdtemp(name.data()) != nullptr, name)
        << "cannot make a temporary folder: " << std::strerror(errno);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write_weights(const ModelParts& model, const std::string& part, const fs::path& path) {
  const auto weights = model.weights(part);
  std::vector<TensorData> tensors;
  for (const auto& [name, shape] : model.shapes(part)) {
    const HostView view = weights->find(name);
    const auto* bytes = static_cast<const std::byte*>(view.data);
    tensors.push_back(
        {name, view.dtype, view.shape, {bytes, static_cast<size_t>(view.shape.numel() * size_of(view.dtype))}});
  }
  write_safetensors(path, tensors);
}

// The path of a program, searched for in PATH if it is only a name; empty if there is none.
fs::path find_program(const std::string& name) {
  std::error_code ignored;  // what cannot be examined cannot be run
  const auto runs = [&](const fs::path& p) { return fs::is_regular_file(p, ignored) && access(p.c_str(), X_OK) == 0; };
  if (name.find('/') != name.npos) return runs(name) ? fs::path(name) : fs::path();
  std::istringstream folders(option(Option::Path));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (fs::path found = fs::path(folder) / name; runs(found)) return found;
  return {};
}

// Reads a pipe to its end. Asks check_stop() ten times a second.
std::string read_all(int fd) {
  constexpr int kPatience = 100;  // milliseconds
  std::string out;
  char buffer[4096];
  for (;;) {
    check_stop();
    pollfd input{fd, POLLIN, 0};
    if (poll(&input, 1, kPatience) == 0) continue;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n == 0 || (n < 0 && errno != EINTR)) return out;
    if (n > 0) out.append(buffer, static_cast<size_t>(n));
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Runs a program with our stderr, and returns its stdout.
std::string output_of(const std::vector<std::string>& arguments) {
  int ends[2];
  TENON_CHECK(Internal, pipe2(ends, 0x80000) == 0, "pipe") << std::strerror(errno);  // O_CLOEXEC
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string out;
  try {
    if (!failed) out = read_all(ends[0]);
  } catch (const Error&) {  // interrupted
    kill(child, SIGKILL);
    close(ends[0]);
    wait_for(child);
    throw;
  }
  close(ends[0]);
  TENON_CHECK(Internal, !failed, arguments[0]) << "cannot run: " << std::strerror(failed);
  const int status = wait_for(child);
  TENON_CHECK(Internal, WIFEXITED(status) && WEXITSTATUS(status) == 0, arguments[1])
      << "failed; its last lines above say why";
  return out;
}

}  // namespace

fs::path peer_python(const std::string& program) {
  const std::string asked = program.empty() ? cached("peer-env/bin/python").string() : program;
  fs::path python = find_program(asked);
  if (python.empty())
    throw Error(ErrorKind::Usage, program.empty() ? "--peer torch" : "--peer-python",
                "no program " + asked + (asked.find('/') == asked.npos ? " on PATH" : ""),
                program.empty() ? "run tools/setup.sh --peers first" : "");
  return python;
}

nlohmann::json run_torch(const ModelParts& model, const PeerRun& run) {
  const fs::path python = peer_python(run.python), script = fs::path(TENON_PEERS) / "torch_peer.py";
  std::error_code ignored;
  TENON_CHECK(Usage, fs::exists(script, ignored), "--peer torch")
      << "needs the source tree: there is no " << script.string();
  std::vector<std::string> arguments{python.string(), script.string()};
  for (std::string& a : model.peer_arguments(run.part, run.request)) arguments.push_back(std::move(a));
  const TemporaryFolder folder;
  const fs::path weights = folder.path() / "weights.safetensors";
  spdlog::info("writing the weights for PyTorch to a file");
  write_weights(model, run.part, weights);
  arguments.insert(arguments.end(), {"--dtype", std::string(name_of(run.dtype)), "--mode", run.mode, "--device",
                                     run.device, "--runs", std::to_string(run.runs), "--weights", weights.string()});
  if (run.threads > 0) arguments.insert(arguments.end(), {"--threads", std::to_string(run.threads)});
  return parse_json(output_of(arguments), "torch_peer.py", ErrorKind::Internal);
}

}  // namespace tenon::cli
