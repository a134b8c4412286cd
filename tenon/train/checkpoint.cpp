#include "tenon/train/checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/io/safetensors.h"

namespace tenon::train {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "checkpoint-", kUnfinished = ".unfinished-";
constexpr const char *kMoments = "optimizer.safetensors", *kAverages = "ema.safetensors", *kTrainer = "trainer.json";

// Only of names that checkpoints are given: "checkpoint-07" is not one.
std::optional<int64_t> step_of(const fs::path& entry) {
  const std::string name = entry.filename().string();
  if (!name.starts_with(kPrefix)) return {};
  const std::string number = name.substr(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), step);
  const bool good = error == std::errc() && step >= 0 && std::to_string(step) == number;
  return good ? std::optional(step) : std::nullopt;
}

void check_moments(const Parameters& parameters, const Optimizer& optimizer) {
  for (const Parameter& p : parameters.all())
    for (size_t m = 0; m < optimizer.moments().size(); ++m)
      TENON_CHECK(Usage, p.moments[m], p.name) << "has no memory for the optimizer's " << optimizer.moments()[m]
                                               << "; it needs " << optimizer.moments().size() << " moments";
}

void sync_folder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool done = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  TENON_CHECK(Internal, done, folder.string()) << "cannot be synced: " << system_reason(error);
}

void write_text(const fs::path& path, const std::string& text) {
  write_file(path, std::as_bytes(std::span(text)), Overwrite::Yes);
}

// f32 tensors of the device as a safetensors file. Only device memory is copied: another copy of the moments, twice the
// size of the parameters, may not fit into the host's memory.
class HostCopies {
 public:
  std::span<const float> add(const Parameters& from, const std::string& name, const Shape& shape,
                             const std::shared_ptr<void>& memory) {
    std::span<const float> values;
    if (from.backend()->offloads()) {
      values = held_.emplace_back(from.values(memory, shape.numel()));
    } else {
      from.stream()->synchronize();
      values = {static_cast<const float*>(memory.get()), static_cast<size_t>(shape.numel())};
    }
    tensors_.push_back({name, DType::F32, shape, std::as_bytes(std::span(values))});
    return values;
  }
  void write(const fs::path& path, const std::map<std::string, std::string>& metadata = {{"format", "pt"}}) const {
    write_safetensors(path, tensors_, metadata);
  }

 private:
  std::vector<std::vector<float>> held_;  // moving a vector leaves its elements in place
  std::vector<TensorData> tensors_;
};

const TensorView& tensor_of(const SafetensorsFile& file, const std::string& name, const Shape& shape) {
  const TensorView& t = file.at(name);
  TENON_CHECK(Model, t.dtype == DType::F32 && t.shape == shape, file.name())
      << "'" << name << "' is " << name_of(t.dtype) << t.shape.str() << ", expected f32" << shape.str();
  for (size_t at = 0; at < t.size; at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, t.data + at, sizeof value);
    TENON_CHECK(Model, std::isfinite(value), file.name())
        << "'" << name << "' holds " << value << " at element " << at / sizeof value;
  }
  return t;
}

void read_into(const TensorView& t, Parameters& to, const std::shared_ptr<void>& memory) {
  std::vector<float> values(static_cast<size_t>(t.shape.numel()));
  std::memcpy(values.data(), t.data, t.size);
  to.set(memory, values);
}

void remove_unfinished(const fs::path& folder) {
  for (const fs::path& entry : list_folder(folder))
    if (entry.filename().string().starts_with(kUnfinished)) fs::remove_all(entry);
}

// So that no folder is ever half removed under its own name.
void remove_whole(const fs::path& place) {
  if (!fs::exists(place)) return;
  const fs::path away = place.parent_path() / (std::string(kUnfinished) + "old-" + place.filename().string());
  fs::remove_all(away);
  fs::rename(place, away);
  fs::remove_all(away);
}

// `place` may be a checkpoint of this very step, perhaps the only one: it is exchanged for the new one, so that there
// is one at every moment. A file system without exchanges is left without one for a moment.
void put_in_place(const fs::path& unfinished, const fs::path& place) {
  if (fs::exists(place) && renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(unfinished);
    return;
  }
  remove_whole(place);
  fs::rename(unfinished, place);
}

}  // namespace

void create_folder(const fs::path& folder) {
  std::error_code error, ignored;
  fs::create_directories(folder, error);
  if (!error && fs::is_directory(folder, ignored)) return;
  const bool in_the_way = !error || error == std::errc::not_a_directory || error == std::errc::file_exists;
  throw Error(in_the_way ? ErrorKind::Usage : ErrorKind::Internal, folder.string(),
              "cannot be created as a folder: " + (error ? error.message() : "it is a file"));
}

RunFolder::RunFolder(fs::path path) : path_(std::move(path)) {
  create_folder(path_);
  lock_ = open((path_ / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  TENON_CHECK(Internal, lock_ >= 0, path_.string()) << "cannot be written into: " << system_reason(errno);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    close(lock_);
    TENON_CHECK(Usage, reason != EWOULDBLOCK, path_.string()) << "another run is writing into this folder";
    TENON_CHECK(Internal, false, path_.string()) << "cannot be locked: " << system_reason(reason);
  }
  remove_unfinished(path_);
}

RunFolder::~RunFolder() { close(lock_); }

std::vector<int64_t> checkpoint_steps(const fs::path& folder) {
  std::vector<int64_t> out;
  for (const fs::path& entry : list_folder(folder))
    if (const auto step = step_of(entry)) out.push_back(*step);
  std::ranges::sort(out);
  return out;
}

std::vector<int64_t> RunFolder::steps() const { return checkpoint_steps(path_); }

fs::path RunFolder::checkpoint(int64_t step) const { return path_ / (std::string(kPrefix) + std::to_string(step)); }

nlohmann::ordered_json named_step(const RunFolder& folder, int64_t number,
                                  const std::function<nlohmann::ordered_json()>& step) {
  try {
    return step();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Numeric && e.kind() != ErrorKind::Internal) throw;
    const std::vector<int64_t> steps = folder.steps();
    throw Error(e.kind(), "step " + std::to_string(number), e.what(),
                steps.empty() ? "there is no checkpoint"
                              : "the last checkpoint is " + folder.checkpoint(steps.back()).string());
  }
}

namespace {

using Kind = std::shared_ptr<void> Parameter::*;

// Error(Numeric) for weights that are not finite, from which no run could continue.
void write_parameters(const fs::path& path, const ParameterFile& file, const Parameters& parameters, Kind which) {
  HostCopies all;
  for (const Parameter& p : parameters.all()) {
    const std::span<const float> values = all.add(parameters, file.prefix + p.name, p.shape, p.*which);
    const auto bad = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
    TENON_CHECK(Numeric, bad == values.end(), p.name)
        << "is " << *bad << " at element " << bad - values.begin() << "; weights that are not finite are not written";
  }
  all.write(path, file.metadata);
}

void write_beside(const fs::path& folder, const CheckpointContent& content) {
  for (const auto& [name, text] : content.beside) write_text(folder / name, text);
  if (content.file.config.empty()) return;
  write_text(folder / content.file.config, json_text(content.config, 2) + "\n");
}

}  // namespace

void check_unused(const fs::path& folder, const std::vector<std::string>& names) {
  if (!folder_exists(folder) || !checkpoint_steps(folder).empty()) return;
  for (const std::string& name : names)
    TENON_CHECK(Usage, !file_exists(folder / name), (folder / name).string())
        << "is there already, but no checkpoint of a run; choose another folder, so that it is not replaced";
}

void write_model(const fs::path& folder, const Parameters& parameters, const CheckpointContent& content) {
  write_parameters(folder / content.file.weights, content.file, parameters,
                   parameters.averaged() ? &Parameter::average : &Parameter::master);
  write_beside(folder, content);
}

void write_checkpoint(const RunFolder& folder, const Parameters& parameters, const Optimizer& optimizer,
                      const CheckpointContent& content, int64_t keep, const std::vector<int64_t>& kept) {
  TENON_CHECK(Usage, content.step >= 0, "checkpoint") << "of step " << content.step << ": expected 0 or more";
  check_moments(parameters, optimizer);
  const std::vector<int64_t> there = folder.steps();
  TENON_CHECK(Usage, there.empty() || there.back() <= content.step, folder.path().string())
      << "has a checkpoint of step " << there.back() << " already, after step " << content.step
      << "; resume that run, or choose another folder";
  const fs::path place = folder.checkpoint(content.step);
  const fs::path unfinished = folder.path() / (std::string(kUnfinished) + std::to_string(content.step));
  try {
    fs::remove_all(unfinished);
    fs::create_directory(unfinished);
    write_beside(unfinished, content);
    write_parameters(unfinished / content.file.weights, content.file, parameters, &Parameter::master);
    if (parameters.averaged()) write_parameters(unfinished / kAverages, {}, parameters, &Parameter::average);
    HostCopies moments;
    for (const Parameter& p : parameters.all())
      for (size_t m = 0; m < optimizer.moments().size(); ++m)
        moments.add(parameters, optimizer.moments()[m] + "." + p.name, p.shape, p.moments[m]);
    moments.write(unfinished / kMoments);
    write_text(unfinished / kTrainer, json_text({{"step", content.step}, {"run", content.run}}, 2) + "\n");
    sync_folder(unfinished);
    put_in_place(unfinished, place);
    sync_folder(folder.path());
    std::vector<int64_t> steps = folder.steps();
    std::erase_if(steps, [&](int64_t s) {
      return std::ranges::find(kept, s) != kept.end() || !file_exists(folder.checkpoint(s) / kTrainer);
    });
    for (size_t i = 0; keep > 0 && i + static_cast<size_t>(keep) < steps.size(); ++i)
      remove_whole(folder.checkpoint(steps[i]));
  } catch (const fs::filesystem_error& e) {
    throw Error(ErrorKind::Internal, place.string(), "cannot be written: " + e.code().message());
  } catch (const Error&) {  // on a full disk, free the space of the incomplete one
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
}

namespace {

Resumed read_run(const fs::path& checkpoint, int64_t step) {
  const auto trainer = read_json(checkpoint / kTrainer);
  TENON_CHECK(Model,
              trainer.is_object() && trainer.contains("step") && trainer["step"] == step && trainer.contains("run"),
              (checkpoint / kTrainer).string())
      << "expected an object with \"step\": " << step << " and run";
  return {trainer["step"].get<int64_t>(), trainer["run"]};
}

void read_checkpoint(const fs::path& folder, const ParameterFile& file, Parameters& parameters,
                     const Optimizer& optimizer) {
  const SafetensorsFile model = SafetensorsFile::open(folder / file.weights),
                        moments = SafetensorsFile::open(folder / kMoments);
  const size_t each = optimizer.moments().size();
  TENON_CHECK(
      Model,
      model.tensors().size() == parameters.all().size() && moments.tensors().size() == each * parameters.all().size(),
      folder.string())
      << "does not hold the tensors that this run trains";
  std::optional<SafetensorsFile> averages;
  if (parameters.averaged()) averages = SafetensorsFile::open(folder / kAverages);
  std::vector<std::pair<const TensorView*, std::shared_ptr<void>>> all;  // apply nothing before everything is verified
  for (const Parameter& p : parameters.all()) {
    all.emplace_back(&tensor_of(model, file.prefix + p.name, p.shape), p.master);
    if (averages) all.emplace_back(&tensor_of(*averages, p.name, p.shape), p.average);
    for (size_t m = 0; m < each; ++m)
      all.emplace_back(&tensor_of(moments, optimizer.moments()[m] + "." + p.name, p.shape), p.moments[m]);
  }
  for (const auto& [tensor, memory] : all) read_into(*tensor, parameters, memory);
  parameters.publish();
}

// A side of a difference; of a long one from shortly before the place where it begins.
std::string side_text(const nlohmann::json& value, const nlohmann::json& other) {
  constexpr size_t kMost = 60, kBefore = 10;
  const std::string text = value.dump(), beside = other.dump();
  const auto begin = static_cast<size_t>(std::ranges::mismatch(text, beside).in1 - text.begin());
  if (text.size() <= kMost || begin <= kBefore) return shown(text, kMost);
  return ".." + shown(text.substr(begin - kBefore), kMost);
}

// "seed: 42 there, 43 here", for the first option that differs; empty if a side has no names for them.
std::string first_difference(const nlohmann::json& there, const nlohmann::json& here, const std::string& prefix = "") {
  if (!there.is_object() || !here.is_object()) return "";
  nlohmann::json both = here;
  both.update(there);
  for (const auto& item : both.items()) {
    const nlohmann::json a = there.value(item.key(), nlohmann::json()), b = here.value(item.key(), nlohmann::json());
    if (a == b) continue;
    const std::string name = prefix + shown(item.key());
    if (std::string inner = first_difference(a, b, name + "."); !inner.empty()) return inner;
    return name + ": " + (there.contains(item.key()) ? side_text(a, b) : "none") + " there, " +
           (here.contains(item.key()) ? side_text(b, a) : "none") + " here";
  }
  return "";
}

}  // namespace

nlohmann::ordered_json schedule_json(const Schedule& s) {
  return {{"lr", s.peak},
          {"lr_scheduler", decay_names().at(static_cast<size_t>(s.decay))},
          {"lr_warmup_steps", s.warm_up},
          {"least", s.least}};
}

namespace {
// Of runs that differ: what differs first, and why that matters where it is not plain.
std::string difference(const nlohmann::json& there, const nlohmann::json& here) {
  std::string first = first_difference(there, here);
  if (!first.starts_with("steps: ") || !here.contains("schedule")) return first;
  return first + "; the rate is " + here["schedule"].value("lr_scheduler", "") + ", so that it depends on the steps";
}
}  // namespace

std::optional<Resumed> read_newest(const RunFolder& folder, const nlohmann::ordered_json& options,
                                   const char* otherwise, const ParameterFile& file, Parameters& parameters,
                                   const Optimizer& optimizer, const std::function<void(const Resumed&)>& accept) {
  check_moments(parameters, optimizer);
  const std::vector<int64_t> steps = folder.steps();
  if (steps.empty()) return std::nullopt;
  const fs::path from = folder.checkpoint(steps.back());
  Resumed r = read_run(from, steps.back());
  const nlohmann::json here = options;
  const nlohmann::json there = r.run.is_object() ? r.run.value("options", nlohmann::json()) : nlohmann::json();
  if (there != here) throw Error(ErrorKind::Usage, from.string(), otherwise, difference(there, here));
  if (accept) accept(r);
  read_checkpoint(from, file, parameters, optimizer);
  return r;
}

}  // namespace tenon::train
