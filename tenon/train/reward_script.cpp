#include "tenon/train/reward_script.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"

namespace tenon::train {
namespace {
using nlohmann::json;

constexpr size_t kMaxReply = size_t{64} << 20;
constexpr double kImportSeconds = 60;  // at least, because Python itself may start slowly
constexpr double kFarewell = 1;        // seconds that the process gets to end by itself
constexpr int kPatience = 100;         // milliseconds between checks whether to stop

// One line of JSON in, one out, over the original stdin and stdout. When its parent is gone it ends, even while the
// script is busy, together with what the script started. The script's functions can be pickled: its module has its
// file's name, unless that is taken.
constexpr const char* kDriver = R"py(
import atexit, importlib.util, json, os, signal, sys, threading, time

script, own, parent = sys.argv[1], os.getpid(), os.getppid()
requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)
sys.stdout.reconfigure(line_buffering=True)


def end_if_alone():
    if os.getpid() == own and os.getppid() != parent:
        if os.getpgrp() == own:
            os.killpg(own, signal.SIGKILL)
        os._exit(1)


def watch():
    while True:
        time.sleep(0.5)
        end_if_alone()


atexit.register(end_if_alone)
threading.Thread(target=watch, daemon=True).start()


def answer(**what):
    if os.getpid() != own:  # a child that the script forked and that came back into this loop
        os._exit(0)
    answers.write(json.dumps(what).encode() + b"\n")
    answers.flush()


def attempt(what):
    try:
        return what()
    except BaseException as e:
        line, at = None, e.__traceback__
        while at is not None:
            if os.path.abspath(at.tb_frame.f_code.co_filename) == os.path.abspath(script):
                line = at.tb_lineno
            at = at.tb_next
        what = f"{type(e).__name__}: {e}".removesuffix(": ")
        answer(error=what[:400].encode(errors="replace").decode(), line=line)


def load():
    name = os.path.splitext(os.path.basename(script))[0]
    if not name.isidentifier() or name in sys.modules:
        name = "tenon_reward"
    spec = importlib.util.spec_from_file_location(name, script)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    spec.loader.exec_module(module)
    found = getattr(module, "reward", None)
    answer(ready=callable(found))
    return found


def listed(values):
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not hasattr(values, "__iter__"):
        raise TypeError(f"reward returned an object of type {type(values).__name__}, expected a list of numbers")
    return [plain(v) for v in values]


def plain(value):
    if value is None:
        return None
    if isinstance(value, (str, bytes)):
        raise TypeError(f"reward returned an object of type {type(value).__name__} in its list, expected numbers")
    try:
        number = float(value)
    except OverflowError:
        return "too large for a float"
    return number if number - number == 0 else str(number)


reward = attempt(load)
for text in requests:
    request = json.loads(text)
    attempt(lambda: answer(values=listed(reward(**request))))
)py";

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

json request_of(std::span<const Judged> rows, std::set<std::string> names) {
  json prompts = json::array(), completions = json::array(), columns = json::object();
  std::vector<json> of_rows;
  names.insert("answer");
  for (const Judged& j : rows) {
    prompts.push_back(as_utf8(j.prompt));
    completions.push_back(as_utf8(j.text));
    json row = j.columns.empty() ? json::object() : parse_json(j.columns, "data", ErrorKind::Usage);
    row["answer"] = as_utf8(j.gold);
    for (const auto& [name, value] : row.items()) names.insert(name);
    of_rows.push_back(std::move(row));
  }
  for (const std::string& name : names)
    for (const json& row : of_rows) columns[name].push_back(row.contains(name) ? row.at(name) : json());
  columns["prompts"] = std::move(prompts);  // by keyword, as in TRL, so the script may order its parameters freely
  columns["completions"] = std::move(completions);
  return columns;
}

}  // namespace

void check_reward_seconds(double seconds) {
  TENON_CHECK(Usage, seconds > 0 && std::isfinite(seconds), "reward timeout")
      << seconds << " seconds: expected a finite number above 0";
}

RewardScript::RewardScript(std::filesystem::path file, double seconds) : file_(std::move(file)), seconds_(seconds) {
  check_reward_seconds(seconds);
  const std::string text = read_argument_file(file_);
  hash_ = sha256_hex(std::as_bytes(std::span(text)));
  start();
  try {
    const double patience = std::max(seconds_, kImportSeconds);
    const json ready = reply({patience, now() + patience}, "being imported");
    fail_if_told(ready);
    TENON_CHECK(Usage, ready.value("ready", false), file_.string())
        << "defines no function reward(prompts, completions, **columns)";
  } catch (const Error& e) {
    end();
    if (e.kind() == ErrorKind::Internal) throw e.with_kind(ErrorKind::Usage);
    throw;
  }
}

RewardScript::~RewardScript() {
  if (channel_ >= 0) close(channel_);  // makes the process end, after its exit handlers
  channel_ = -1;
  for (double left = kFarewell; left > 0 && process_ > 0; left -= 0.01) {
    siginfo_t ended{};  // of a process that stays a zombie, so that its group's number is not another's yet
    if (waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != 0)
      break;
    usleep(10'000);
  }
  end();  // also what the script started
}

// In its own process group: an interrupt at the terminal is for us to handle, and what the script starts ends with it.
void RewardScript::start() {
  std::array<int, 2> ends{};
  TENON_CHECK(Internal, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "socket")
      << system_reason(errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);  // the script inherits no files
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  sigset_t defaults;
  sigfillset(&defaults);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  std::string python = "python3", flag = "-c", driver = kDriver, script = file_.string();
  const std::array<char*, 5> argv{python.data(), flag.data(), driver.data(), script.data(), nullptr};
  const int error = posix_spawnp(&process_, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ends[1]);
  channel_ = ends[0];
  if (error != 0) {
    process_ = -1;
    end();
    throw Error(ErrorKind::Usage, file_.string(), "needs python3: " + system_reason(error));
  }
}

void RewardScript::end() {
  if (channel_ >= 0) close(channel_);
  channel_ = -1;
  if (process_ <= 0) return;
  kill(-process_, SIGKILL);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

void RewardScript::fail(const std::string& what) {
  end();
  throw Error(ErrorKind::Internal, file_.string(), what);
}

void RewardScript::fail_if_told(const json& answer) {
  if (!answer.contains("error")) return;
  const json line = answer.value("line", json());
  fail((line.is_number() ? "line " + line.dump() + ": " : "") + answer.at("error").get<std::string>());
}

void RewardScript::wait(short events, const Limit& limit, const std::string& doing) {
  for (;;) {
    check_stop("reward");
    pollfd ready{channel_, events, 0};
    const int found = poll(&ready, 1, kPatience);
    if (now() > limit.end) fail("took longer than " + number_text(limit.seconds) + " seconds " + doing);
    if (found > 0) return;
  }
}

void RewardScript::send(std::string_view text, const Limit& limit, const std::string& doing) {
  while (!text.empty()) {
    wait(POLLOUT, limit, doing);
    const ssize_t n = ::send(channel_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) fail("its process ended");
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

std::string RewardScript::receive(const Limit& limit, const std::string& doing) {
  std::string out;
  std::array<char, 65536> buffer{};
  while (!out.ends_with('\n')) {
    wait(POLLIN, limit, doing);
    const ssize_t n = recv(channel_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) fail("its process ended while " + doing);
    if (n > 0) out.append(buffer.data(), static_cast<size_t>(n));
    if (out.size() > kMaxReply) fail("its answer is longer than 64 MiB");
  }
  return out;
}

json RewardScript::call(const json& request, const std::string& doing) {
  TENON_CHECK(Internal, channel_ >= 0, file_.string()) << "has failed before";
  const Limit limit{seconds_, now() + seconds_};
  send(request.dump() + "\n", limit, doing);
  return reply(limit, doing);
}

// Refuses anything on the reply channel that the script itself wrote.
json RewardScript::reply(const Limit& limit, const std::string& doing) {
  json out = parse_json(receive(limit, doing), file_.string(), ErrorKind::Internal);
  const auto is = [&](const char* key, auto good) { return out.contains(key) && (out.at(key).*good)(); };
  const bool known = out.is_object() &&
                     (is("error", &json::is_string) || is("ready", &json::is_boolean) || is("values", &json::is_array));
  if (!known) fail("answered " + shown_json(out) + " while " + doing);
  return out;
}

std::vector<double> RewardScript::operator()(std::span<const Judged> rows, const std::set<std::string>& columns) {
  const json answer = call(request_of(rows, columns), "judging " + std::to_string(rows.size()) + " completions");
  fail_if_told(answer);
  const json values = answer.value("values", json::array());
  if (values.size() != rows.size())
    fail("gave " + std::to_string(values.size()) + " rewards for " + std::to_string(rows.size()) + " completions");
  std::vector<double> out;
  for (const json& v : values) {
    if (v.is_string()) {
      end();
      throw Error(ErrorKind::Numeric, file_.string(),
                  "the reward of completion " + std::to_string(out.size()) + " is " + v.get<std::string>());
    }
    if (!v.is_null() && !v.is_number())
      fail("the reward of completion " + std::to_string(out.size()) + " is not a number");
    out.push_back(v.is_null() ? 0 : v.get<double>());
  }
  return out;
}

}  // namespace tenon::train
