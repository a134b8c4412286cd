#include "tests/cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "tenon/core/text.h"
#include "tests/fixtures/checkpoint.h"

namespace cli {
namespace fs = std::filesystem;
namespace {

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

fs::path fresh_folder(const std::string& what) {
  std::string name = (fs::temp_directory_path() / ("tenon-" + what + "-XXXXXX")).string();
  if (!mkdtemp(name.data())) throw std::runtime_error("cannot make " + name);
  return name;
}

// Written by the first test that needs it, removed when the process ends.
struct TinyModel {
  fs::path folder = fresh_folder("model");
  TinyModel() {
    fixtures::write_diffusers_folder(folder / "tiny", tenon::DType::F32);
    fixtures::write_single_file(folder / "tiny.safetensors", tenon::DType::F32);
  }
  ~TinyModel() { fs::remove_all(folder); }
};

}  // namespace

std::vector<std::string> with_new_files(const std::vector<std::string>& names) {
  std::string libraries = "LD_PRELOAD=";
  for (const std::string& name : names) libraries += NEW_FILES "/lib" + name + ".so ";
  return {libraries};
}

Process::Process(std::vector<std::string> arguments, const fs::path& folder,
                 const std::vector<std::string>& environment, const std::function<void()>& prepare,
                 const std::string& program) {
  static int number = 0;
  const std::string tag = std::to_string(getpid()) + "-" + std::to_string(number++);
  out_ = fs::temp_directory_path() / ("tenon-out-" + tag);
  err_ = fs::temp_directory_path() / ("tenon-err-" + tag);
  arguments.insert(arguments.begin(), program);
  begin_ = std::chrono::steady_clock::now();
  pid_ = fork();
  if (pid_ != 0) return;
  const auto redirect = [](const fs::path& to, int as) {
    dup2(open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), as);
  };
  redirect(out_, STDOUT_FILENO);
  redirect(err_, STDERR_FILENO);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  if (chdir(folder.c_str()) != 0) _exit(127);
  for (const std::string& e : environment)
    setenv(e.substr(0, e.find('=')).c_str(), e.substr(e.find('=') + 1).c_str(), 1);
  ::signal(SIGINT, SIG_DFL);  // a shell sets it to ignored for tests in its background
  if (prepare) prepare();
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  fs::remove(out_);
  fs::remove(err_);
}

void Process::signal(int number) const { kill(pid_, number); }

bool Process::wait_until(const std::function<bool()>& condition, double seconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

bool Process::wait_for_log(const std::string& text, double seconds) const {
  return wait_until([&] { return slurp(err_).find(text) != std::string::npos; }, seconds);
}

bool Process::wait_for_lines(const fs::path& file, int64_t count, double seconds) const {
  return wait_until([&] { return std::ranges::count(slurp(file), '\n') >= count; }, seconds);
}

Finished Process::finish() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  Finished f;
  f.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  f.out = slurp(out_);
  f.err = slurp(err_);
  f.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  return f;
}

int CliTest::killed(const std::vector<std::string>& arguments, const fs::path& log, const std::vector<int64_t>& lines,
                    double seconds) const {
  std::mt19937 random(11);
  int out = 0;
  for (const int64_t count : lines) {
    Process process(arguments, folder());
    EXPECT_TRUE(process.wait_for_lines(log, count, 60)) << "line " << count;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::uniform_real_distribution(0.0, seconds)(random)));
    process.signal(SIGKILL);
    const Finished f = process.finish();
    EXPECT_TRUE(f.code == 0 || f.code == 128 + SIGKILL) << f.err;
    out += f.code == 128 + SIGKILL;
  }
  return out;
}

void CliTest::SetUp() { folder_ = fresh_folder("test"); }
void CliTest::TearDown() { fs::remove_all(folder_); }

std::string CliTest::model() {
  static const TinyModel tiny;
  return (tiny.folder / "tiny").string();
}

Finished CliTest::tenon(std::vector<std::string> arguments, const std::vector<std::string>& environment,
                        const std::function<void()>& prepare) const {
  return Process(std::move(arguments), folder_, environment, prepare).finish();
}

std::vector<std::string> CliTest::files() const {
  std::vector<std::string> names;
  for (const fs::directory_entry& e : fs::directory_iterator(folder_)) names.push_back(e.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void CliTest::expect_error(int code, std::vector<std::string> arguments, const std::vector<std::string>& parts) const {
  const std::vector<std::string> before = files();
  arguments.emplace_back("-q");
  const Finished f = tenon(std::move(arguments));
  EXPECT_EQ(f.code, code) << f.err;
  EXPECT_EQ(f.out, "");
  EXPECT_TRUE(f.err.starts_with("tenon: error: ")) << f.err;
  EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), 1) << f.err;
  EXPECT_LE(f.err.size(), 500u) << f.err;
  EXPECT_EQ(f.err.substr(0, f.err.size() - 1), tenon::escaped(f.err.substr(0, f.err.size() - 1)));
  for (const std::string& part : parts) EXPECT_NE(f.err.find(part), std::string::npos) << part << " in: " << f.err;
  EXPECT_EQ(files(), before);
}

}  // namespace cli
