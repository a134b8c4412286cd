#include "apps/cli/version.h"

#include <sched.h>

#include <ctime>
#include <fstream>

#include "tenon_commit.h"

namespace tenon::cli {

std::string version() { return TENON_VERSION; }
std::string commit() { return TENON_COMMIT; }
std::string build_type() { return TENON_BUILD_TYPE; }

std::string compiler() {
#if defined(__clang__)
  return "clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__);
#else
  return "gcc " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__);
#endif
}

std::string version_text() {
  return "tenon " + version() + " (" + commit() + ", " + compiler() + ", " + build_type() + ")";
}

std::string machine() {
  std::string name = "unknown processor", line;
  std::ifstream info("/proc/cpuinfo");
  while (std::getline(info, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) name = line.substr(colon + 2);
    break;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  const int processors = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return name + ", " + std::to_string(processors) + (processors == 1 ? " processor" : " processors");
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

}  // namespace tenon::cli
