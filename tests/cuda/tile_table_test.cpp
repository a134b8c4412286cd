// This machine's file of measured tiles: damaged lines, several writers and readers, a folder that cannot be written.
#include "tenon/backend/cuda/products/tile_table.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/cuda/tiles_folder.h"

namespace tenon::cuda {
namespace {
using testing::HasSubstr;
using TileTables = TilesFolder;

TEST_F(TileTables, LinesThatAreNoneArePassedBy) {
  const fs::path file = root_ / "gpu.txt";
  write(file,
        "# a = comment\n\n   \nno sign\n\x01\xff = \n= nameless\r\n  b  =  two words \r\nc = d # e = f\nlast = one");
  const TileTable table("", file);
  EXPECT_EQ(table.find("a"), std::nullopt);
  EXPECT_EQ(table.find("# a"), std::nullopt);
  EXPECT_EQ(table.find("no sign"), std::nullopt);
  EXPECT_EQ(table.find("b"), "two words");
  EXPECT_EQ(table.find("c"), "d");
  EXPECT_EQ(table.find("last"), "one");
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(TileTables, WhatWasAddedIsThereForTheNextProcess) {
  const fs::path file = root_ / "deep" / "folder" / "gpu.txt";
  TileTable table("a = shipped\n", file);
  table.add("b", "wgmma 128x160", 12.3456);
  table.add("a", "mma 64x64", 3);
  table.add("b", "mma 32x64", 4.5);
  EXPECT_EQ(table.find("a"), "mma 64x64");
  EXPECT_EQ(text_of(file), "a = mma 64x64  # 3.00 us\nb = mma 32x64  # 4.50 us\n");
  TileTable next("a = shipped\n", file);
  EXPECT_EQ(next.find("a"), "mma 64x64");
  EXPECT_EQ(next.find("b"), "mma 32x64");
  EXPECT_TRUE(next.measured_here("b"));
  next.add("c", "simt", 1, "a note");
  EXPECT_EQ(text_of(file), "a = mma 64x64  # 3.00 us\nb = mma 32x64  # 4.50 us\nc = simt  # 1.00 us, a note\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(file.parent_path()), fs::directory_iterator()), 1) << "half files";
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(TileTables, WhoReadsWhileAnotherWritesSeesAWholeTable) {
  const fs::path file = root_ / "gpu.txt";
  std::atomic<bool> ended = false;
  std::vector<std::thread> writers;
  for (const char* key : {"a", "b"})
    writers.emplace_back([&file, key] {
      TileTable table("", file);
      for (int i = 0; i < 50; ++i) table.add(key, std::string(4000, 'x') + " end", 1);
    });
  std::thread reader([&] {
    while (!ended) {
      const TileTable table("", file);
      for (const char* key : {"a", "b"}) EXPECT_TRUE(table.find(key).value_or(" end").ends_with(" end")) << key;
    }
  });
  for (std::thread& writer : writers) writer.join();
  ended = true;
  reader.join();
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1) << "half files";
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(TileTables, WhoWritesAtTheSameTimeLosesNoLine) {
  constexpr int kLines = 50;
  const fs::path file = root_ / "gpu.txt";
  std::vector<std::thread> writers;
  for (const std::string name : {"a", "b", "c"})
    writers.emplace_back([&file, name] {
      TileTable table("", file);
      for (int i = 0; i < kLines; ++i) table.add(name + std::to_string(i), "mma 64x64", 1);
    });
  for (std::thread& writer : writers) writer.join();
  const TileTable table("", file);
  for (const std::string name : {"a", "b", "c"})
    for (int i = 0; i < kLines; ++i) EXPECT_TRUE(table.measured_here(name + std::to_string(i))) << name << i;
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(TileTables, AFolderThatCannotBeWrittenIsOneWarning) {
  write(root_ / "file", "");  // not a folder, for any user
  TileTable table("", root_ / "file" / "gpu.txt");
  EXPECT_EQ(warning_count(), 0);
  table.add("a", "mma 64x64", 1);
  table.add("b", "mma 64x64", 1);
  EXPECT_EQ(warning_count(), 1) << warnings_.str();
  EXPECT_THAT(warnings_.str(), HasSubstr((root_ / "file" / "gpu.txt").string()));
  EXPECT_EQ(table.find("b"), "mma 64x64") << "this process goes on with what it measured";
}

}  // namespace
}  // namespace tenon::cuda
