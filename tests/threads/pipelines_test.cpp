// Multithreaded work, small enough for the thread sanitizer: a whole picture on a pool of workers, and two pipelines at
// once.
#include <gtest/gtest.h>

#include <thread>

#include <spdlog/spdlog.h>

#include "tenon/pipelines/families/stable_diffusion/text_to_image.h"

namespace tenon {
namespace {

std::vector<uint8_t> picture(int threads, const std::string& prompt) {
  PipelineOptions options;
  options.threads = threads;
  TextToImage pipeline(StableDiffusionModel::open(""), options);
  ImageRequest r;
  r.prompt = prompt;
  r.width = r.height = 64;
  r.steps = 2;
  r.seed = 7;
  const ImageResult result = pipeline.generate(r);
  return {result.images.at(0).pixels.begin(), result.images.at(0).pixels.end()};
}

TEST(Threads, SamePictureOnOneAndThree) { EXPECT_EQ(picture(1, "a tree"), picture(3, "a tree")); }

TEST(Threads, TwoPipelinesAtOnce) {
  // The logger's registry is in a library that the sanitizer does not see into: created before there are two threads.
  spdlog::default_logger();
  std::vector<uint8_t> first, second;
  std::thread beside([&] { second = picture(2, "a house"); });
  first = picture(2, "a tree");
  beside.join();
  EXPECT_EQ(first, picture(1, "a tree"));
  EXPECT_EQ(second, picture(1, "a house"));
}

}  // namespace
}  // namespace tenon
