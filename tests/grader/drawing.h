// Draws prompts with a model and grades the pictures.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tenon/pipelines/image_generator.h"
#include "tests/grader/grader.h"

namespace tenon::grader {

struct Drawn {
  std::vector<Image> pictures;
  int passed = 0;
  std::string failures;  ///< one per line
};

/// Draws prompts, whose seeds are consecutive, `at_once` at a time: some families have one prompt for all images of a
/// batch. `lora`: a file, or null.
inline Drawn draw(ImageGenerator& pipeline, const std::vector<Prompt>& prompts, size_t at_once,
                  const char* lora = nullptr) {
  Drawn out;
  for (size_t begin = 0; begin < prompts.size(); begin += at_once) {
    ImageRequest r;
    r.seed = prompts[begin].seed;  // the others use the following numbers
    const size_t end = std::min(begin + at_once, prompts.size());
    for (size_t i = begin; i < end; ++i) {
      if (prompts[i].seed != r.seed + (i - begin)) throw std::runtime_error("seeds leave numbers out");
      r.prompts.push_back(prompts[i].text);
    }
    if (at_once == 1) r.prompt = std::exchange(r.prompts, {}).front();
    r.batch = static_cast<int64_t>(end - begin);
    if (lora) r.loras = {{.file = lora}};
    for (Image& image : pipeline.generate(r).images) out.pictures.push_back(std::move(image));
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Image& image = out.pictures.at(i);
    const GradeResult g =
        grade(image.pixels.data(), static_cast<int>(image.width), static_cast<int>(image.height), prompts[i].expected);
    out.passed += g.pass ? 1 : 0;
    if (!g.pass) out.failures += prompts[i].text + ": " + g.reason + "\n";
  }
  return out;
}

}  // namespace tenon::grader
