// Files: all or nothing on writing, clear refusals on reading.
#include "tenon/io/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tenon/core/utf8.h"
#include "tenon/io/json.h"
#include "tests/io/io_test_tools.h"

namespace {
using namespace io_test;
using namespace tenon;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(WriteFile, WritesAndReplacesOnlyWhenAllowed) {
  const TempFolder folder;
  const fs::path path = folder / "a";
  write_file(path, bytes_of("one"), Overwrite::No);
  EXPECT_EQ(read_file(path), "one");
  expect_error(ErrorKind::Usage, "the file exists already", [&] { write_file(path, bytes_of("two"), Overwrite::No); });
  EXPECT_EQ(read_file(path), "one");
  write_file(path, bytes_of("three"), Overwrite::Yes);
  EXPECT_EQ(read_file(path), "three");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(WriteFile, AnUnfinishedFileLeavesNothing) {
  const TempFolder folder;
  {
    AtomicFile file(folder / "a", Overwrite::No);
    file.write(bytes_of("half"));
    EXPECT_FALSE(fs::exists(folder / "a"));
  }
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(WriteFile, TheNameIsTakenWhileWriting) {
  const TempFolder folder;
  AtomicFile file(folder / "a", Overwrite::No);
  file.write(bytes_of("mine"));
  put(folder / "a", "theirs");
  expect_error(ErrorKind::Usage, "the file exists already", [&] { file.commit(); });
  EXPECT_EQ(read_file(folder / "a"), "theirs");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(WriteFile, OfManyWritersExactlyOneWins) {
  const TempFolder folder;
  std::atomic<int> won{0}, refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      try {
        write_file(folder / "a", bytes_of(std::string(1000, static_cast<char>('a' + i))), Overwrite::No);
        ++won;
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::Usage);
        ++refused;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(refused, 7);
  const std::string text = read_file(folder / "a");
  EXPECT_EQ(text, std::string(1000, text[0]));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(WriteFile, UnwritablePlaces) {
  const TempFolder folder;
  put(folder / "file", "x");
  fs::create_directory(folder / "dir");
  const auto write = [&](const fs::path& path) { return [=] { write_file(path, bytes_of("x"), Overwrite::No); }; };
  expect_error(ErrorKind::Internal, "No such file or directory, errno 2", write(folder / "missing/a"));
  expect_error(ErrorKind::Internal, "Not a directory, errno 20", write(folder / "file/a"));
  expect_error(ErrorKind::Usage, "is a folder, not a file to write", write(folder / "dir"));
  expect_error(ErrorKind::Usage, "expected the name of a file to write", write(folder.path() / ""));
  expect_error(ErrorKind::Internal, "/proc/none/a", write("/proc/none/a"));
  expect_error(ErrorKind::Internal, "cannot create the file: File name too long",
               write(folder / std::string(256, 'n')));
  write(folder / std::string(255, 'n'))();
  EXPECT_EQ(read_file(folder / std::string(255, 'n')), "x");
  if (geteuid() != 0) {
    fs::permissions(folder / "dir", fs::perms::owner_read | fs::perms::owner_exec);
    expect_error(ErrorKind::Internal, "Permission denied", write(folder / "dir/a"));
    fs::permissions(folder / "dir", fs::perms::owner_all);
  }
}

// A limit on file sizes makes write() fail like a full disk, at a point of the test's choosing.
TEST(WriteFile, AFullDiskLeavesNothing) {
  const TempFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file(folder / "a", bytes_of(std::string(100000, 'x')), Overwrite::No);
    } catch (const Error& e) {
      const bool clear = e.kind() == ErrorKind::Internal && e.where() == (folder / "a").string() &&
                         std::string(e.what()).find("cannot write the file: ") != std::string::npos &&
                         std::string(e.what()).find("errno 27") != std::string::npos;
      _exit(clear ? 0 : 2);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(folder.entries(), 0u);
}

// Where the file system supports unnamed files; elsewhere the temporary file stays.
TEST(WriteFile, AKilledProcessLeavesNothing) {
  const TempFolder folder;
  const int probe = open(folder.path().c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (probe < 0) GTEST_SKIP() << "no nameless files here";
  close(probe);
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(folder / "a", Overwrite::Yes);
    file.write(bytes_of("half"));
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(WriteFile, TheFileBehindALinkIsReplacedAndTheLinkStays) {
  const TempFolder folder;
  put(folder / "sub/real", "old");
  fs::create_symlink("sub/real", folder / "a");
  fs::create_symlink(folder / "a", folder / "b");
  fs::create_symlink("sub/new", folder / "dangling");
  write_file(folder / "b", bytes_of("new"), Overwrite::Yes);
  EXPECT_TRUE(fs::is_symlink(folder / "a") && fs::is_symlink(folder / "b"));
  EXPECT_EQ(read_file(folder / "sub/real"), "new");
  write_file(folder / "dangling", bytes_of("made"), Overwrite::Yes);
  EXPECT_EQ(read_file(folder / "sub/new"), "made");
  expect_error(ErrorKind::Usage, "exists already", [&] { write_file(folder / "a", bytes_of("x"), Overwrite::No); });
}

TEST(WriteFile, PermissionsOfWhatIsReplacedStay) {
  const TempFolder folder;
  for (const fs::perms mode : {fs::perms{0600}, fs::perms{0640}, fs::perms{0666}, fs::perms{0755}}) {
    put(folder / "a", "old");
    fs::permissions(folder / "a", mode);
    write_file(folder / "a", bytes_of("new"), Overwrite::Yes);
    EXPECT_EQ(read_file(folder / "a"), "new");
    EXPECT_EQ(fs::status(folder / "a").permissions(), mode);
  }
}

TEST(WriteFile, OnlyRegularFilesAreReplaced) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  fs::create_symlink("loop", folder / "loop");
  for (const Overwrite o : {Overwrite::Yes, Overwrite::No})
    expect_error(ErrorKind::Usage, "is a FIFO, not a file", [&] { write_file(folder / "fifo", bytes_of("x"), o); });
  expect_error(ErrorKind::Usage, "loop of symbolic links",
               [&] { write_file(folder / "loop", bytes_of("x"), Overwrite::Yes); });
  expect_error(ErrorKind::Usage, "is a device", [] { write_file("/dev/null", bytes_of("x"), Overwrite::Yes); });
}

// Files left by a process that was killed between link and rename are removed; those of a running process are not.
TEST(WriteFile, LeftoversAreSwept) {
  const TempFolder folder;
  put(folder / ".tenon-1-0.tmp", "left");
  put(folder / ".tenon-1-1.tmp", "young");
  put(folder / ".tenon-1-2.tmp", "held");
  put(folder / ".tenon-1-3.txt", "another's");
  const std::vector<const char*> others = {".tenon-notes.tmp", ".tenon-.tmp",     ".tenon.tmp",  ".tenon-1-.tmp",
                                           ".tenon-1-a.tmp",   ".tenon-1-0-.tmp", ".tenon-1.tmp"};
  for (const char* name : others) put(folder / name, "another's");
  put(folder / "a", "old");
  std::vector<const char*> aged = {".tenon-1-0.tmp", ".tenon-1-2.tmp", ".tenon-1-3.txt"};
  aged.insert(aged.end(), others.begin(), others.end());
  for (const char* old : aged)
    fs::last_write_time(folder / old, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  const int held = open((folder / ".tenon-1-2.tmp").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  write_file(folder / "a", bytes_of("new"), Overwrite::Yes);
  EXPECT_FALSE(fs::exists(folder / ".tenon-1-0.tmp"));
  for (const char* kept : {".tenon-1-1.tmp", ".tenon-1-2.tmp", ".tenon-1-3.txt"})
    EXPECT_TRUE(fs::exists(folder / kept));
  for (const char* kept : others) EXPECT_TRUE(fs::exists(folder / kept)) << kept;
  close(held);
  write_file(folder / "a", bytes_of("newer"), Overwrite::Yes);
  EXPECT_FALSE(fs::exists(folder / ".tenon-1-2.tmp"));
  EXPECT_EQ(read_file(folder / "a"), "newer");
}

TEST(OutputPlace, OneForEveryNameOfAFile) {
  const TempFolder folder;
  put(folder / "sub/x", "");
  fs::create_directory_symlink("sub", folder / "link");
  fs::create_symlink("sub/new", folder / "dangling");
  const fs::path real = fs::canonical(folder / "sub") / "new";
  for (const char* name : {"sub/new", "./sub/new", "link/new", "sub/../sub/./new", "dangling"})
    EXPECT_EQ(output_place(folder / name), real) << name;
  EXPECT_EQ(output_place("new"), fs::current_path() / "new");
  EXPECT_EQ(output_place("./new"), output_place("new"));
  EXPECT_NE(output_place("new"), output_place("neu"));
}

TEST(FileExists, OrNobodyCanTell) {
  const TempFolder folder;
  put(folder / "file", "");
  fs::create_symlink("loop", folder / "loop");
  fs::create_symlink("nothing", folder / "dangling");
  EXPECT_TRUE(file_exists(folder / "file"));
  EXPECT_TRUE(folder_exists(folder.path()));
  EXPECT_FALSE(folder_exists(folder / "file"));
  EXPECT_FALSE(file_exists(folder / "none"));
  EXPECT_FALSE(file_exists(folder / "file/inside"));
  EXPECT_FALSE(file_exists(folder / std::string(300, 'n')));
  expect_error(ErrorKind::Model, "Too many levels of symbolic links", [&] { file_exists(folder / "loop"); });
  expect_error(ErrorKind::Model, "Too many levels of symbolic links", [&] { folder_exists(folder / "loop/inside"); });
  expect_error(ErrorKind::Model, "link to a file that does not exist", [&] { file_exists(folder / "dangling"); });
  expect_error(ErrorKind::Model, "cannot be read: Not a directory", [&] { list_folder(folder / "file"); });
}

TEST(ReadFile, Refusals) {
  const TempFolder folder;
  expect_error(ErrorKind::Model, "No such file or directory, errno 2", [&] { read_file(folder / "a"); });
  expect_error(ErrorKind::Model, "expected a regular file", [&] { read_file(folder.path()); });
  expect_error(ErrorKind::Model, "cannot open for reading", [&] { sha256_file(folder / "a"); });
  expect_error(ErrorKind::Usage, "cannot open for reading", [&] { read_argument_file(folder / "a"); });
}

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const TempFolder folder;
  put(folder / "a", "abc");
  EXPECT_EQ(sha256_file(folder / "a"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Json, StrictParsing) {
  EXPECT_EQ(parse_json(R"({"a":[1,2.5,"é",null,true]})", "x")["a"][1], 2.5);
  EXPECT_EQ(parse_json(R"({"a":{"b":1},"c":{"b":2}})", "x")["c"]["b"], 2);  // the same key in two objects is fine
  const auto expect = [](const std::string& text, const std::string& part) {
    expect_error(ErrorKind::Usage, part, [&] { parse_json(text, "x", ErrorKind::Usage); });
  };
  expect("", "[x] invalid JSON: parse error");
  expect("{\"a\":NaN}", "invalid JSON");
  expect("[-Infinity]", "invalid JSON");
  expect("[1e400]", "invalid JSON: number overflow");
  expect("[1,]", "invalid JSON");
  expect("[1] // note", "invalid JSON");
  expect(R"({"a":1,"b":{"c":1,"c":2}})", "duplicate key 'c'");
  expect("[\"\xc0\x80\"]", "invalid UTF-8 in JSON at byte 2");
  expect(std::string("{}\0", 3), "invalid JSON: a zero byte at byte 2");
  expect(std::string("{}\0 {}", 6), "invalid JSON: a zero byte at byte 2");
  expect(std::string("\0{}", 3), "invalid JSON: a zero byte at byte 0");
  expect(R"(["\ud800"])", "invalid JSON");
  expect(std::string(65, '[') + std::string(65, ']'), "nested deeper than 64 levels");
  EXPECT_NO_THROW(parse_json(std::string(60, '[') + std::string(60, ']'), "x"));
  const TempFolder folder;
  put(folder / "bad.json", "{");
  expect_error(ErrorKind::Model, (folder / "bad.json").string(), [&] { read_json(folder / "bad.json"); });
}

TEST(Json, PythonsMinusInfinity) {
  const TempFolder folder;
  const fs::path file = folder / "a.json";
  put(file, R"({"a": -Infinity, "b\"": "\\\"-Infinity", "c": [-Infinity,1]})");
  const nlohmann::json read = read_python_json_object(file);
  EXPECT_TRUE(read["a"].is_null());
  EXPECT_EQ(read["b\""], "\\\"-Infinity");
  EXPECT_EQ(read["c"][1], 1);
  for (const char* bad : {R"({"a": Infinity})", R"({"a": -Infinityx})", R"({"a": NaN})", "[1]", "\"-Infinity\""}) {
    put(file, bad);
    expect_error(ErrorKind::Model, file.string(), [&] { read_python_json_object(file); });
  }
  EXPECT_TRUE(read_python_json_object(folder / "none.json").is_null());
}

TEST(Utf8, FirstInvalidByte) {
  for (const char* good : {"", "a", "é", "€", "😀", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf", "\xee\x80\x80"})
    EXPECT_FALSE(first_invalid_utf8(good)) << good;
  for (const char* bad : {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x82", "\xe2\x28\xa1", "\xf0\x9f\x98"})
    EXPECT_EQ(first_invalid_utf8(std::string("ab") + bad), 2u) << bad;
}

TEST(Utf8, EncodesAndDecodes) {
  for (uint32_t c : {0u, 0x41u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string text;
    append_utf8(text, c);
    EXPECT_FALSE(first_invalid_utf8(text));
    size_t at = 0;
    EXPECT_EQ(next_code_point(text, at), c);
    EXPECT_EQ(at, text.size());
  }
}

}  // namespace
