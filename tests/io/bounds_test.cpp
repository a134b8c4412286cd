// Cost of reading an untrusted file: time in proportion to its size, memory within a factor of it, and a prompt
// response to a stop request.
#include <sys/resource.h>
#include <sys/wait.h>

#include "tenon/core/stop.h"
#include "tenon/io/clip_tokenizer.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tests/io/io_test_tools.h"
#include "tests/support/cpu_seconds.h"
#include "tests/support/sanitized.h"

namespace {
using namespace io_test;
using namespace tenon;

const size_t kBytes = sanitized() ? 3'000'000 : 99'000'000;  // of a header: nearly the maximum accepted

const double kSeconds = sanitized() ? 60 : 2;  // of CPU time: other tests run at the same time

// As many one-byte tensors as fit into `bytes` of header.
std::string tensors(size_t bytes, size_t most = ~size_t{0}) {
  std::string header = "{";
  size_t i = 0;
  for (; i < most && header.size() + 100 < bytes; ++i) {
    const std::string number = std::to_string(i);
    header.append(i ? ",\"t" : "\"t").append(number).append(R"(":{"dtype":"U8","shape":[1],"data_offsets":[)");
    header.append(number).append(",").append(std::to_string(i + 1)).append("]}");
  }
  return safetensors_bytes(header + "}", i);
}

// Opens the file in a separate process, whose memory is not the parent's: the outcome and the cost.
struct Cost {
  int code = -1;
  double seconds = 0, mebibytes = 0;
};
Cost open_in_child(const fs::path& path) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      SafetensorsFile::open(path);
    } catch (const Error& e) {
      _exit(e.exit_code());
    }
    _exit(0);
  }
  Cost cost;
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  cost.seconds = seconds_in(used);
  cost.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  cost.mebibytes = static_cast<double>(used.ru_maxrss) / 1024;
  return cost;
}

std::string repeated(const std::string& text, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out;
}

// Metadata with texts of one length; texts of 2,000 bytes, and tensors with names of 400 bytes, are read completely.
std::string metadata_texts(size_t length) {
  std::string header = R"({"__metadata__":{"a":"")";
  for (int i = 0; header.size() < kBytes; ++i)
    header.append(",\"").append(std::to_string(i)).append("\":\"").append(length, 'v').append("\"");
  return safetensors_bytes(header + "}}", 0);
}
std::string long_names() {
  std::string header = "{";
  size_t i = 0;
  for (; header.size() + 500 < kBytes; ++i) {
    const std::string number = std::to_string(i);
    header.append(i ? ",\"" : "\"").append(400, 'n').append(number).append(R"(":{"dtype":"U8","shape":[1],)");
    header.append(R"("data_offsets":[)").append(number).append(",").append(std::to_string(i + 1)).append("]}");
  }
  return safetensors_bytes(header + "}", i);
}

struct LargeHeader {
  const char* name;
  int code;
  std::function<std::string()> bytes;
};
const std::vector<LargeHeader>& large_headers() {
  static const std::vector<LargeHeader> all = {
      {"Tensors", sanitized() ? 0 : 3, [] { return tensors(kBytes); }},
      {"Extents", 3, [] { return safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1)" + repeated(",1", kBytes), 1); }},
      {"String", sanitized() ? 0 : 3,
       [] { return safetensors_bytes(R"({"__metadata__":{"a":")" + repeated("a", kBytes) + "\"}}", 0); }},
      {"NoEnd", 3, [] { return safetensors_bytes("{\"" + repeated("a", kBytes), 0); }},
      {"Escapes", 3, [] { return safetensors_bytes("{\"" + repeated("\\u0041", kBytes), 0); }},
      {"Blanks", 3, [] { return safetensors_bytes(repeated(" ", kBytes), 0); }},
      {"Brackets", 3, [] { return safetensors_bytes(repeated("[", kBytes), 0); }},
      {"NoTexts", 3, [] { return metadata_texts(0); }},
      {"Texts", 0, [] { return metadata_texts(2000); }},
      {"LongNames", 0, long_names}};
  return all;
}

class LargeHeaders : public testing::TestWithParam<LargeHeader> {};

TEST_P(LargeHeaders, AreRefusedOrReadInTimeAndMemory) {
  const TempFolder folder;
  put(folder / "a.safetensors", GetParam().bytes());
  const Cost cost = open_in_child(folder / "a.safetensors");
  EXPECT_EQ(cost.code, GetParam().code);
  if (sanitized()) return;
  EXPECT_LE(cost.seconds, kSeconds);
  EXPECT_LE(cost.mebibytes, 8.0 * kBytes / (1 << 20));
}
INSTANTIATE_TEST_SUITE_P(Each, LargeHeaders, testing::ValuesIn(large_headers()),
                         [](const auto& large) { return std::string(large.param.name); });

TEST(Bounds, TensorsTakeLinearTime) {
  const TempFolder folder;
  put(folder / "a.safetensors", tensors(~size_t{0}, 200'000));
  EXPECT_LE(
      cpu_seconds_of([&] { EXPECT_EQ(SafetensorsFile::open(folder / "a.safetensors").tensors().size(), 200'000u); }),
      kSeconds);
  put(folder / "b.safetensors", tensors(~size_t{0}, kMaxTensors + 1));
  expect_error(ErrorKind::Model, "has more than 262144 tensors",
               [&] { SafetensorsFile::open(folder / "b.safetensors"); });
}

TEST(Bounds, JsonOfManyObjectsTakesLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i)
    text.append(i ? ",\"" : "\"").append(std::to_string(i)).append("\":{\"a\":{},\"b\":[[]]}");
  text += "}";
  EXPECT_LE(cpu_seconds_of([&] { EXPECT_EQ(parse_json(text, "x").size(), 200'000u); }), kSeconds);
}

TEST(Bounds, JsonIsLimited) {
  std::string values = "[0";
  for (size_t i = 1; i <= kMaxJsonValues; ++i) values += ",0";
  expect_error(ErrorKind::Model, "more than 4000000 values", [&] { parse_json(values + "]", "x"); });
  expect_error(ErrorKind::Model, "is longer than 16777216 bytes",
               [&] { parse_json("\"" + std::string(2 * kMaxJsonToken, 'a') + "\"", "x"); });
  const TempFolder folder;
  put(folder / "a.json", "{}");
  fs::resize_file(folder / "a.json", kMaxFileBytes + 1);
  expect_error(ErrorKind::Model, "has 100000001 bytes; at most 100000000 are read",
               [&] { read_json(folder / "a.json"); });
}

TEST(Bounds, WhatIsReadAsksWhetherToStop) {
  const TempFolder folder;
  put(folder / "a.safetensors", tensors(2'000'000));
  put(folder / "a.bin", std::string(3'000'000, 'x'));
  std::string prompt;
  while (prompt.size() < 60'000) prompt += "(word) ";
  const ClipTokenizer tokenizer = ClipTokenizer::from_folder(TENON_SOURCE_DIR "/assets/default-model/tokenizer");
  const auto stops = [](const std::function<void()>& f) {
    int asked = 0, limit = 1 << 30;
    const StopScope scope([&] { return ++asked > limit; });
    f();
    EXPECT_GE(asked, 3);
    limit = asked / 2;
    asked = 0;
    expect_error(ErrorKind::Cancelled, "interrupted", f);
    EXPECT_EQ(asked, limit + 1);
  };
  stops([&] { SafetensorsFile::open(folder / "a.safetensors"); });
  stops([&] { sha256_file(folder / "a.bin"); });
  stops([&] { read_file(folder / "a.bin"); });
  stops([&] { tokenizer.encode_weighted(prompt); });
}

}  // namespace
