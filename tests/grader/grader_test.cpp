// The grader on pictures drawn here: it must accept every clean scene and refuse everything else.
#include "tests/grader/grader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <stdexcept>

namespace tenon::grader {
namespace {

constexpr int kSize = 128;
constexpr float kPi = 3.14159265f;

using Inside = std::function<bool(float, float)>;

struct Canvas {
  std::vector<uint8_t> rgb;
  explicit Canvas(Color background) : rgb(size_t(kSize) * kSize * 3) {
    const Rgb c = rgb_of(background);
    for (size_t i = 0; i < rgb.size(); i += 3) rgb[i] = c.r, rgb[i + 1] = c.g, rgb[i + 2] = c.b;
  }

  /// Antialiased by 4 x 4 samples per pixel.
  Canvas& fill(Color color, const Inside& inside) {
    const Rgb c = rgb_of(color);
    const float to[3] = {float(c.r), float(c.g), float(c.b)};
    for (int y = 0; y < kSize; ++y) {
      for (int x = 0; x < kSize; ++x) {
        int hits = 0;
        for (int s = 0; s < 16; ++s) {
          hits += inside(float(x) + (float(s % 4) + 0.5f) / 4, float(y) + (float(s / 4) + 0.5f) / 4);
        }
        uint8_t* p = &rgb[3 * (size_t(y) * kSize + x)];
        for (int k = 0; k < 3; ++k) p[k] = uint8_t(std::lround(p[k] + (to[k] - p[k]) * float(hits) / 16));
      }
    }
    return *this;
  }
};

/// Even-odd test for a polygon with `corners` corners of radius r, every second one moved to inner * r if inner > 0.
Inside polygon(float cx, float cy, float r, int corners, float turn, float inner = 0) {
  std::vector<std::pair<float, float>> v;
  const int n = inner > 0 ? 2 * corners : corners;
  for (int i = 0; i < n; ++i) {
    const float a = turn - kPi / 2 + 2 * kPi * float(i) / float(n), s = inner > 0 && i % 2 ? r * inner : r;
    v.emplace_back(cx + s * std::cos(a), cy + s * std::sin(a));
  }
  return [v](float x, float y) {
    bool in = false;
    for (size_t i = 0, j = v.size() - 1; i < v.size(); j = i++) {
      if ((v[i].second > y) != (v[j].second > y) &&
          x < (v[j].first - v[i].first) * (y - v[i].second) / (v[j].second - v[i].second) + v[i].first) {
        in = !in;
      }
    }
    return in;
  };
}

Inside ellipse(float cx, float cy, float rx, float ry) {
  return [=](float x, float y) { return std::hypot((x - cx) / rx, (y - cy) / ry) < 1; };
}

Inside shape(Shape s, float cx, float cy, float r, float turn = 0) {
  switch (s) {
    case Shape::Circle:
      return ellipse(cx, cy, r, r);
    case Shape::Square:
      return polygon(cx, cy, r * 1.2f, 4, turn + kPi / 4);
    case Shape::Triangle:
      return polygon(cx, cy, r * 1.15f, 3, turn);
    case Shape::Star:
      return polygon(cx, cy, r * 1.15f, 5, turn, 0.45f);
    case Shape::Oval:
      return [=](float x, float y) {
        const float along = (x - cx) * std::cos(turn) + (y - cy) * std::sin(turn);
        const float across = (y - cy) * std::cos(turn) - (x - cx) * std::sin(turn);
        return std::hypot(along, 2 * across) < r;
      };
    case Shape::Ring:
      break;
  }
  return [=](float x, float y) {
    const float d = std::hypot(x - cx, y - cy);
    return d < r && d > 0.58f * r;
  };
}

void add_noise(Canvas* canvas, int amount, uint32_t seed) {
  std::mt19937 rng(seed);
  for (uint8_t& v : canvas->rgb) v = uint8_t(std::clamp(int(v) + int(rng() % (2 * amount + 1)) - amount, 0, 255));
}

void blur(Canvas* canvas) {
  const std::vector<uint8_t> from = canvas->rgb;
  for (int y = 1; y + 1 < kSize; ++y) {
    for (int x = 1; x + 1 < kSize; ++x) {
      for (int c = 0; c < 3; ++c) {
        int sum = 0;
        for (int k = 0; k < 9; ++k) sum += from[3 * (size_t(y + k / 3 - 1) * kSize + (x + k % 3 - 1)) + c];
        canvas->rgb[3 * (size_t(y) * kSize + x) + c] = uint8_t(sum / 9);
      }
    }
  }
}

GradeResult graded(const Canvas& canvas, const Expectation& e) { return grade(canvas.rgb.data(), kSize, kSize, e); }

Expectation one(Shape s, Color c, Color background) { return {{{s, c}}, background, Relation::None}; }

TEST(Grader, AcceptsEveryShapeColorAndBackground) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> radius(14, 46), unit(-1, 1);
  for (int s = 0; s < kShapes; ++s) {
    for (int c = 0; c < kColors; ++c) {
      for (int b = 0; b < kColors; ++b) {
        if (b == c) continue;
        const float r = radius(rng), room = kSize / 2.f - 1.2f * r - 4;
        const float x = kSize / 2.f + unit(rng) * room, y = kSize / 2.f + unit(rng) * room;
        Canvas canvas{Color(b)};
        canvas.fill(Color(c), shape(Shape(s), x, y, r));
        add_noise(&canvas, 5, rng());
        const GradeResult g = graded(canvas, one(Shape(s), Color(c), Color(b)));
        EXPECT_TRUE(g.pass) << name_of(Color(c)) << " " << name_of(Shape(s)) << " on " << name_of(Color(b)) << ", r "
                            << r << ": " << g.reason;
      }
    }
  }
}

TEST(Grader, AcceptsTurnedAndSoftShapes) {
  for (int s = 0; s < kShapes; ++s) {
    for (const float turn : {0.f, 0.3f, 0.9f}) {
      Canvas canvas(Color::White);
      canvas.fill(Color::Blue, shape(Shape(s), 60, 66, 24, turn));
      blur(&canvas);
      const GradeResult g = graded(canvas, one(Shape(s), Color::Blue, Color::White));
      EXPECT_TRUE(g.pass) << name_of(Shape(s)) << " turned by " << turn << ": " << g.reason;
    }
  }
}

TEST(Grader, RefusesOtherShapes) {
  for (const float r : {15.f, 25.f, 45.f}) {
    for (int drawn = 0; drawn < kShapes; ++drawn) {
      Canvas canvas(Color::Gray);
      canvas.fill(Color::Yellow, shape(Shape(drawn), 64, 64, r));
      for (int asked = 0; asked < kShapes; ++asked) {
        const GradeResult g = graded(canvas, one(Shape(asked), Color::Yellow, Color::Gray));
        EXPECT_EQ(g.pass, asked == drawn) << name_of(Shape(drawn)) << " taken for " << name_of(Shape(asked));
        EXPECT_EQ(g.shapes, asked == drawn);
        EXPECT_TRUE(g.colors && g.background && g.count);
      }
    }
  }
}

TEST(Grader, RefusesOtherColorsAndBackgrounds) {
  for (int drawn = 0; drawn < kColors; ++drawn) {
    const Color ground = drawn == int(Color::White) ? Color::Black : Color::White;
    Canvas canvas(ground);
    canvas.fill(Color(drawn), shape(Shape::Star, 64, 64, 30));
    for (int asked = 0; asked < kColors; ++asked) {
      EXPECT_EQ(graded(canvas, one(Shape::Star, Color(asked), ground)).pass, asked == drawn);
      EXPECT_EQ(graded(canvas, one(Shape::Star, Color(drawn), Color(asked))).pass, Color(asked) == ground);
    }
  }
}

TEST(Grader, RefusesShapesNobodyAskedFor) {
  struct Odd {
    const char* what;
    Inside inside;
  };
  const std::vector<Odd> odd = {
      {"a bar with round ends", ellipse(64, 64, 40, 8)},
      {"rectangle", [](float x, float y) { return std::fabs(x - 64) < 40 && std::fabs(y - 64) < 20; }},
      {"cross",
       [](float x, float y) {
         const float u = std::fabs(x - 64), v = std::fabs(y - 64);
         return std::max(u, v) < 40 && std::min(u, v) < 10;
       }},
      {"half disc", [](float x, float y) { return std::hypot(x - 64, y - 64) < 40 && y > 64; }},
      {"crescent", [](float x, float y) { return std::hypot(x - 64, y - 64) < 40 && std::hypot(x - 84, y - 64) > 36; }},
      {"square with a hole",
       [](float x, float y) {
         const float d = std::max(std::fabs(x - 64), std::fabs(y - 64));
         return d < 40 && d > 20;
       }},
      {"ring with its hole aside",
       [](float x, float y) { return std::hypot(x - 64, y - 64) < 40 && std::hypot(x - 84, y - 64) > 12; }},
  };
  for (const Odd& o : odd) {
    Canvas canvas(Color::White);
    canvas.fill(Color::Red, o.inside);
    for (int asked = 0; asked < kShapes; ++asked) {
      EXPECT_FALSE(graded(canvas, one(Shape(asked), Color::Red, Color::White)).pass)
          << o.what << " taken for a " << name_of(Shape(asked));
    }
  }
}

TEST(Grader, RefusesMush) {
  const Expectation asked = one(Shape::Circle, Color::Red, Color::White);
  Canvas blank(Color::White), filled(Color::Red);
  EXPECT_FALSE(graded(blank, asked).pass);
  EXPECT_FALSE(graded(filled, asked).pass);
  Canvas noise(Color::Gray);
  add_noise(&noise, 127, 3);
  EXPECT_FALSE(graded(noise, asked).pass);
  EXPECT_FALSE(graded(noise, one(Shape::Circle, Color::Red, Color::Gray)).pass);
  Canvas patchy(Color::White);  // a circle of two colours
  patchy.fill(Color::Red, shape(Shape::Circle, 64, 64, 35));
  patchy.fill(Color::Blue, [](float x, float y) { return std::hypot(x - 64, y - 64) < 34 && x > 58; });
  EXPECT_FALSE(graded(patchy, asked).pass);
  Canvas slope(Color::White);  // a background that fades from white to black
  for (size_t i = 0; i < slope.rgb.size(); ++i) slope.rgb[i] = uint8_t(i / 3 % kSize * 2);
  slope.fill(Color::Red, shape(Shape::Circle, 64, 64, 35));
  EXPECT_FALSE(graded(slope, asked).pass);
  Canvas cut(Color::White);  // half outside the picture
  cut.fill(Color::Red, shape(Shape::Circle, 0, 64, 35));
  EXPECT_FALSE(graded(cut, asked).pass);
  Canvas dirty(Color::White);  // the requested circle among many specks
  dirty.fill(Color::Red, shape(Shape::Circle, 64, 64, 20));
  for (int i = 0; i < 30; ++i) {
    dirty.fill(Color::Black, shape(Shape::Square, 8.f + 16.f * float(i % 8), 8.f + 30.f * float(i / 8), 2.5f));
  }
  EXPECT_FALSE(graded(dirty, asked).pass);
  EXPECT_FALSE(grade(nullptr, kSize, kSize, asked).pass);
  EXPECT_FALSE(grade(blank.rgb.data(), 4, 4, asked).pass);
}

TEST(Grader, CountsObjects) {
  Canvas two(Color::White);
  two.fill(Color::Red, shape(Shape::Circle, 36, 64, 18)).fill(Color::Blue, shape(Shape::Square, 92, 64, 18));
  EXPECT_FALSE(graded(two, one(Shape::Circle, Color::Red, Color::White)).pass);
  Canvas single(Color::White);
  single.fill(Color::Red, shape(Shape::Circle, 64, 64, 30));
  const Expectation both{{{Shape::Circle, Color::Red}, {Shape::Square, Color::Blue}}, Color::White, Relation::None};
  EXPECT_TRUE(graded(two, both).pass);
  EXPECT_FALSE(graded(single, both).pass);
  const Expectation mixed{{{Shape::Circle, Color::Blue}, {Shape::Square, Color::Red}}, Color::White, Relation::None};
  EXPECT_FALSE(graded(two, mixed).pass) << "colours bound to the wrong shapes";
}

TEST(Grader, ChecksRelations) {
  const std::vector<Object> objects = {{Shape::Star, Color::Pink}, {Shape::Ring, Color::Black}};
  struct Case {
    Relation relation;
    float x, y;  // of the star; the ring is opposite
  };
  for (const Case& c : {Case{Relation::LeftOf, 36, 64},
                        {Relation::RightOf, 92, 60},
                        {Relation::Above, 60, 36},
                        {Relation::Below, 64, 92}}) {
    Canvas canvas(Color::Cyan);
    canvas.fill(Color::Pink, shape(Shape::Star, c.x, c.y, 18));
    canvas.fill(Color::Black, shape(Shape::Ring, kSize - c.x, kSize - c.y, 18));
    for (int asked = 0; asked < 5; ++asked) {
      const bool fits = Relation(asked) == c.relation || Relation(asked) == Relation::None;
      EXPECT_EQ(graded(canvas, {objects, Color::Cyan, Relation(asked)}).pass, fits);
    }
  }
}

TEST(Grader, PromptListIsWhole) {
  const std::vector<Prompt> prompts = read_prompts(std::string(TENON_SOURCE_DIR) + "/tests/grader/prompts.txt");
  ASSERT_EQ(prompts.size(), 100u);
  std::set<std::string> texts;
  std::set<uint32_t> seeds;
  int pairs = 0;
  for (const Prompt& p : prompts) {
    texts.insert(p.text);
    seeds.insert(p.seed);
    pairs += p.expected.objects.size() == 2;
    EXPECT_FALSE(p.expected.objects.empty());
    EXPECT_EQ(p.expected.relation == Relation::None, p.expected.objects.size() == 1) << p.text;
  }
  EXPECT_EQ(texts.size(), 100u);
  EXPECT_EQ(seeds.size(), 100u);
  EXPECT_EQ(pairs, 20);
}

TEST(Grader, PromptLinesAreChecked) {
  const Prompt p = parse_prompt("7\ta red star above a pink ring on gray\tgray\tred star; pink ring\tabove");
  EXPECT_EQ(p.seed, 7u);
  EXPECT_EQ(p.expected.background, Color::Gray);
  ASSERT_EQ(p.expected.objects.size(), 2u);
  EXPECT_EQ(p.expected.objects[1].shape, Shape::Ring);
  EXPECT_EQ(p.expected.objects[1].color, Color::Pink);
  EXPECT_EQ(p.expected.relation, Relation::Above);
  EXPECT_THROW(parse_prompt("7\ta red star\twhite\tred star"), std::runtime_error);
  EXPECT_THROW(parse_prompt("7\ta red star\twhite\tred blob\t"), std::runtime_error);
  EXPECT_THROW(parse_prompt("7\ta red star\tmauve\tred star\t"), std::runtime_error);
  EXPECT_THROW(read_prompts("/nonexistent/prompts.txt"), std::runtime_error);
}

}  // namespace
}  // namespace tenon::grader
