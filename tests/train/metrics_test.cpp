// Reading back metrics of a run, here and by TensorBoard.
#include "tenon/train/metrics.h"

#include <gmock/gmock.h>

#include <bit>
#include <cstring>
#include <map>

#include "tenon/core/error.h"
#include "tenon/io/files.h"
#include "tests/language/language_fixtures.h"

namespace tenon::train {
namespace {
namespace fs = std::filesystem;
using testing::ElementsAre;

std::vector<int64_t> steps_of(const std::vector<nlohmann::json>& lines) {
  std::vector<int64_t> out;
  for (const nlohmann::json& l : lines) out.push_back(l.at("step"));
  return out;
}

TEST(Metrics, WhatIsNotWholeIsPassedOver) {
  const language_test::Folder run;
  run.write(
      kMetricsFile,
      "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"lo\nnonsense\n[1]\n{\"loss\": 1}\n{\"step\": 3}\n\n{\"step\": 4");
  int64_t passed = 0;
  EXPECT_THAT(steps_of(read_metrics(run.path(), &passed)), ElementsAre(1, 3));
  EXPECT_EQ(passed, 6);
  MetricsLog log(run.path(), 2);
  log.add({{"step", 3}, {"loss", 0.5}});
  EXPECT_THAT(steps_of(read_metrics(run.path(), &passed)), ElementsAre(1, 3));
  EXPECT_EQ(passed, 0);
  EXPECT_FALSE(is_evaluation(read_metrics(run.path())[1]));
  EXPECT_THROW(read_metrics(run.path() / "none"), Error);
}

TEST(Metrics, AFileOfSomethingElseIsNotEmptied) {
  const language_test::Folder run;
  const std::string notes = "bought: 3 apples\n{\"loss\": 1}\n";
  run.write(kMetricsFile, notes);
  EXPECT_THROW(MetricsLog(run.path(), -1), Error);
  EXPECT_EQ(read_file(run.path() / kMetricsFile, 1000), notes);
  for (const char* of_a_run : {"", "{\"step\": 1, \"lo", "{\"step\": 1, \"loss\": 2}\n"}) {
    run.write(kMetricsFile, of_a_run);
    MetricsLog(run.path(), -1);
    EXPECT_EQ(read_file(run.path() / kMetricsFile, 1000), "") << of_a_run;
  }
}

// A run that was killed after the evaluation that was due, before it noted that: it is made again, and has one line.
TEST(Metrics, AnEvaluationThatIsDueIsMadeAgain) {
  const language_test::Folder run;
  const auto left = [&](bool due) {
    run.write(kMetricsFile,
              "{\"step\": 0, \"exact_match\": 0}\n{\"step\": 2, \"loss\": 1}\n"
              "{\"step\": 2, \"exact_match\": 1}\n");
    const MetricsLog log(run.path(), 2, {.evaluation_due = due});
    return steps_of(read_metrics(run.path()));
  };
  EXPECT_THAT(left(true), ElementsAre(0, 2));
  EXPECT_THAT(left(false), ElementsAre(0, 2, 2));
}

// A folder that was copied without its metrics, or lost the end of the file or lines within it: the run goes on.
TEST(Metrics, AResumedRunNamesTheFirstStepWithoutALine) {
  const language_test::Folder run;
  const auto warning = [&](int64_t last) {
    testing::internal::CaptureStdout();
    MetricsLog(run.path(), last).add({{"step", last + 1}, {"loss", 1}});
    return testing::internal::GetCapturedStdout();
  };
  const std::string file = (run.path() / kMetricsFile).string();
  const auto lacks = [&](int step) { return testing::HasSubstr(file + ": no line of step " + std::to_string(step)); };
  EXPECT_EQ(warning(-1), "");
  std::filesystem::remove(run.path() / kMetricsFile);
  EXPECT_EQ(warning(0), "");
  std::filesystem::remove(run.path() / kMetricsFile);
  EXPECT_THAT(warning(2), lacks(1));
  EXPECT_THAT(steps_of(read_metrics(run.path())), ElementsAre(3)) << "training goes on";
  const std::string first = "{\"step\": 0, \"exact_match\": 0}\n{\"step\": 1, \"loss\": 1}\n";
  run.write(kMetricsFile, first + "{\"step\": 2, \"exact_match\": 0}\n{\"step\": 3, \"loss\": 1}\n");
  EXPECT_EQ(warning(1), "");
  run.write(kMetricsFile, first + "{\"step\": 2, \"exact_match\": 0}\n{\"step\": 3, \"loss\": 1}\n");
  EXPECT_THAT(warning(3), lacks(2)) << "an evaluation is no training step";
  run.write(kMetricsFile, first + "{\"step\": 2, \"loss\": 1}\n{\"step\": 3, \"lo");
  EXPECT_THAT(warning(3), lacks(3)) << "nor is an incomplete line";
  run.write(kMetricsFile, first + "{\"step\": 2, \"loss\": null}\n{\"step\": 2, \"exact_match\": 1}\n");
  EXPECT_EQ(warning(2), "");
}

// An independent reader of the formats, to check the writer.
class Reader {
 public:
  explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}
  bool ended() const { return at_ == bytes_.size(); }
  std::string take(size_t n) {
    if (n > bytes_.size() - at_) throw std::runtime_error("cut off");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  template <class T>
  T number() {
    T out;
    std::memcpy(&out, take(sizeof(T)).data(), sizeof(T));
    return out;
  }
  uint64_t varint() {
    uint64_t out = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = number<uint8_t>();
      out |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return out;
    }
  }
  // The fields of a message: by number, as bytes.
  std::multimap<uint64_t, std::string> fields() {
    std::multimap<uint64_t, std::string> out;
    while (!ended()) {
      const uint64_t tag = varint(), wire = tag & 7;
      std::string value;
      if (wire == 0) value = std::to_string(varint());
      if (wire == 1) value = take(8);
      if (wire == 2) value = take(varint());
      if (wire == 5) value = take(4);
      out.emplace(tag >> 3, value);
    }
    return out;
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

std::string record_of(Reader& file) {
  const auto checked = [&](const std::string& bytes) {
    const uint32_t want = std::rotl(file.number<uint32_t>() - 0xa282ead8U, 15);
    EXPECT_EQ(crc32c(std::as_bytes(std::span(bytes))), want);
    return bytes;
  };
  uint64_t length = 0;
  std::memcpy(&length, checked(file.take(8)).data(), 8);
  return checked(file.take(length));
}

TEST(Metrics, TensorBoardsFile) {
  const std::string digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283U);  // RFC 3720's check value
  const language_test::Folder run;
  MetricsLog log(run.path(), 6, {.events = true});
  log.add({{"step", 7}, {"loss", 0.25}, {"reward", -300.5}, {"note", "no number"}});
  log.add({{"step", 300}, {"exact_match", 0.5}});
  std::string name;
  for (const fs::path& entry : list_folder(run.path()))
    if (entry.filename().string().starts_with("events.out.tfevents.")) name = entry.string();
  Reader file(read_file(name));
  auto first = Reader(record_of(file)).fields();
  EXPECT_EQ(first.find(3)->second, "brain.Event:2");
  auto session = Reader(record_of(file)).fields();
  EXPECT_EQ(session.find(2)->second, "7");  // later values in other files are void from here on
  EXPECT_EQ(Reader(session.find(7)->second).fields().find(1)->second, "1");
  std::map<std::string, float> values;
  for (const char* step : {"7", "300"}) {
    auto event = Reader(record_of(file)).fields();
    EXPECT_EQ(event.find(2)->second, step);
    EXPECT_GT(Reader(event.find(1)->second).number<double>(), 1.7e9);
    auto summary = Reader(event.find(5)->second).fields();
    for (const auto& [number, value] : summary) {
      auto scalar = Reader(value).fields();
      values[scalar.find(1)->second] = Reader(scalar.find(2)->second).number<float>();
    }
  }
  EXPECT_TRUE(file.ended());
  const std::map<std::string, float> want{
      {"train/loss", 0.25F}, {"train/reward", -300.5F}, {"evaluation/exact_match", 0.5F}};
  EXPECT_EQ(values, want);
}

}  // namespace
}  // namespace tenon::train
