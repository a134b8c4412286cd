#include "verb.h"

#include <algorithm>
#include <charconv>

#include "tenon/core/error.h"
#include "tenon/core/options.h"

namespace tenon::cli {
namespace {
std::vector<Verb>& registry() {
  static std::vector<Verb> all;
  return all;
}

// Digits only; -1 otherwise.
int whole_number(const std::string& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}
}  // namespace

RegisterVerb::RegisterVerb(Verb verb) { registry().push_back(std::move(verb)); }

std::vector<Verb> verbs() {
  std::vector<Verb> all = registry();
  std::sort(all.begin(), all.end(), [](const Verb& a, const Verb& b) { return a.name < b.name; });
  return all;
}

BackendOptions Common::backend_options() const {
  if (threads > 0) return {threads};
  const std::string text = option(Option::Threads);
  if (text.empty()) return {};
  const int count = whole_number(text);
  TENON_CHECK(Usage, count > 0 && count <= 1024, "TENON_THREADS")
      << "expected a number from 1 to 1024, got '" << text << "'";
  return {count};
}

std::string Common::device_name() const {
  const std::vector<std::string> names = backend_names();
  const int number = whole_number(device);
  const bool known = number >= 0 && number < static_cast<int>(names.size());
  return known ? names[static_cast<size_t>(number)] : device;
}

std::shared_ptr<Backend> Common::backend() const { return make_backend(device_name(), backend_options()); }

std::string list_devices(const Common& common) {
  std::string out;
  int number = 0;
  for (const std::string& name : backend_names()) {
    out += std::to_string(number++) + "\t" + name + "\t";
    try {
      out += make_backend(name, common.backend_options())->describe() + "\n";
    } catch (const Error& e) {
      out += std::string("not usable: ") + e.what() + "\n";
    }
  }
  return out;
}

}  // namespace tenon::cli
