// Decides from pixels alone whether a picture shows what a prompt asks for.
//
// The pictures are flat scenes: compact single-coloured objects, apart from each other and from the border, on a plain
// background. The grader knows only geometry and a palette; it never sees the model, its latents or its training code.
//   background  the median of the border, which must be plain
//   objects     connected regions that differ from it; their number must be the one asked for
//   colour      the palette colour nearest to the median of a region's inside, which must be plain
//   shape       the outline as a radial profile around the centroid, fitted with the profiles of ideal shapes in every
//               rotation; a ring is a round outline with a round hole
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::grader {

enum class Shape { Circle, Square, Triangle, Star, Ring, Oval };
enum class Color { Red, Green, Blue, Yellow, Orange, Purple, Pink, Cyan, Black, White, Gray };
/// Position of the first object relative to the second.
enum class Relation { None, LeftOf, RightOf, Above, Below };

inline constexpr int kShapes = 6;
inline constexpr int kColors = 11;

struct Rgb {
  uint8_t r, g, b;
};

struct Object {
  Shape shape;
  Color color;
};

/// What a prompt asks for. `relation` counts only when there are two objects.
struct Expectation {
  std::vector<Object> objects;
  Color background = Color::White;
  Relation relation = Relation::None;
};

/// `pass` is the conjunction of the other flags; `reason` names the first one that failed, with what was seen instead.
struct GradeResult {
  bool pass = false;
  bool background = false;
  bool count = false;
  bool colors = false;
  bool shapes = false;
  bool relation = false;
  std::string reason;
};

/// One line of prompts.txt.
struct Prompt {
  uint32_t seed = 0;
  std::string text;
  Expectation expected;
};

/// The palette colour as used in training.
Rgb rgb_of(Color color);
std::string name_of(Color color);
std::string name_of(Shape shape);

/// Grades an interleaved 8-bit RGB picture of w x h pixels (rows without padding). Total: any pixels are accepted.
GradeResult grade(const uint8_t* rgb, int w, int h, const Expectation& expected);

/// Parses one line: seed, prompt, background, objects ("red circle; blue square"), relation ("left of", "" for none),
/// separated by tabs. Throws std::runtime_error on anything else.
Prompt parse_prompt(const std::string& line);

/// Reads a whole file of such lines; lines that begin with # and empty lines are skipped.
std::vector<Prompt> read_prompts(const std::string& path);

}  // namespace tenon::grader
