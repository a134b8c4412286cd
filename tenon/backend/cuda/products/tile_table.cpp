#include "tenon/backend/cuda/products/tile_table.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <sstream>

#include "tenon/backend/cuda/driver/embedded_texts.h"
#include "tenon/backend/cuda/driver/file_descriptor.h"
#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/options.h"
#include "tenon/core/text.h"

namespace tenon::cuda {
namespace fs = std::filesystem;
namespace {

std::string file_name(const DeviceFacts& facts) {
  std::string name = facts.arch + "-" + facts.name + ".txt";
  for (char& c : name)
    if (c == ' ' || c == '/') c = '-';
  return name;
}

// The file's text, empty if there is no file.
std::string table_text(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

std::string_view measured_tiles(std::string_view arch) {
  for (const EmbeddedText& table : embedded_tiles())
    if (table.name == arch) return table.text;
  return {};
}

TileTable& TileTable::of(const DeviceFacts& facts) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<TileTable>> tables;
  const std::lock_guard lock(mutex);
  std::unique_ptr<TileTable>& table = tables[file_name(facts)];
  if (!table) table = std::make_unique<TileTable>(measured_tiles(facts.arch), cached("tiles/" + file_name(facts)));
  return *table;
}

TileTable::TileTable(std::string_view shipped, fs::path file) : file_(std::move(file)) {
  read(shipped, shipped_);
  read(table_text(file_), here_);
}

// Skips invalid lines: at worst, a bad file leaves only the estimates.
void TileTable::read(std::string_view text, std::map<std::string, Entry>& into) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const size_t comment = line.find('#'), equals = line.find('=');
    if (equals == std::string_view::npos || (comment != std::string_view::npos && comment < equals)) continue;
    const size_t choice_end = comment == std::string_view::npos ? line.size() : comment;
    const std::string_view why = comment == std::string_view::npos ? "" : trimmed(line.substr(comment + 1));
    into[std::string(trimmed(line.substr(0, equals)))] = {
        std::string(trimmed(line.substr(equals + 1, choice_end - equals - 1))), std::string(why)};
  }
}

std::optional<std::string> TileTable::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  for (const auto* entries : {&here_, &shipped_})
    if (const auto it = entries->find(key); it != entries->end()) return it->second.choice;
  return std::nullopt;
}

bool TileTable::measured_here(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return here_.contains(key);
}

void TileTable::add(const std::string& key, const std::string& choice, double microseconds, const std::string& note) {
  const std::lock_guard lock(mutex_);
  std::ostringstream comment;
  comment.precision(2);
  comment << std::fixed << microseconds << " us" << (note.empty() ? "" : ", ") << note;
  here_[key] = {choice, comment.str()};
  if (file_.empty()) return;  // no cache folder
  std::error_code error;
  fs::create_directories(file_.parent_path(), error);
  // Who reads the file and replaces it locks its folder meanwhile, as far as the file system has locks.
  const FileDescriptor folder(open(file_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (folder.fd() >= 0 && flock(folder.fd(), LOCK_EX) != 0 && errno == EINTR) {
  }
  std::map<std::string, Entry> others;  // measured by other processes in the meantime
  read(table_text(file_), others);
  here_.merge(others);
  std::ostringstream text;
  for (const auto& [name, entry] : here_) text << name << " = " << entry.choice << "  # " << entry.comment << '\n';
  std::string failed = error ? file_.string() + ": " + error.message() : "";
  try {
    const std::string bytes = text.str();
    if (!error) write_file(file_, std::as_bytes(std::span(bytes)), Overwrite::Yes);
  } catch (const Error& e) {
    failed = e.what();
  }
  if (!failed.empty() && !warned_) spdlog::warn("{}; measurements are not saved", failed);
  warned_ |= !failed.empty();
}

}  // namespace tenon::cuda
