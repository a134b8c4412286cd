#include "tests/grader/grader.h"
#include "tenon/expr/precision.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tenon::grader {
namespace {

constexpr float kPlain = 45.f;            // colours closer than this (Euclidean, 0..255) count as the same surface
constexpr float kNearPalette = 60.f;      // largest distance of a surface from its palette colour
constexpr float kPlainBorder = 0.92f;     // fraction of the border that must look like its median
constexpr float kPlainInside = 0.80f;     // fraction of an object's inside that must look like its median
constexpr float kSmallestObject = .008f;  // fraction of the picture; anything smaller is a speck
constexpr float kMaxSpecks = 0.15f;       // area of all specks over area of all objects
constexpr float kOutlineFit = 0.08f;      // rms distance of the outline from the ideal one, over its mean radius
constexpr float kHoleFit = 0.16f;         // the same for the edge of a ring's hole
constexpr float kNoHole = 0.03f;          // largest hole area over filled area for solid shapes
constexpr float kRingHoleMin = 0.08f;
constexpr float kRingHoleMax = 0.75f;
constexpr int kAngles = 180;
constexpr float kTwoPi = 6.28318530718f;

using Vec = std::array<float, 3>;
using Profile = std::array<float, kAngles>;  // radius by angle

constexpr std::array<Rgb, kColors> kPalette = {{{220, 40, 40},
                                                {40, 160, 70},
                                                {40, 80, 220},
                                                {245, 215, 50},
                                                {245, 135, 30},
                                                {130, 50, 170},
                                                {245, 140, 180},
                                                {50, 200, 220},
                                                {20, 20, 20},
                                                {250, 250, 250},
                                                {128, 128, 128}}};

Vec vec(Rgb c) { return {float(c.r), float(c.g), float(c.b)}; }

float distance(const Vec& a, const Vec& b) { return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]); }

Color nearest_color(const Vec& c) {
  int best = 0;
  for (int i = 1; i < kColors; ++i) {
    if (distance(c, vec(kPalette[i])) < distance(c, vec(kPalette[best]))) best = i;
  }
  return Color(best);
}

struct Picture {
  const uint8_t* rgb;
  int w, h;
  bool inside(int x, int y) const { return x >= 0 && y >= 0 && x < w && y < h; }
  Vec at(int x, int y) const {
    const uint8_t* p = rgb + 3 * (size_t(y) * w + x);
    return {float(p[0]), float(p[1]), float(p[2])};
  }
};

/// A surface: its median colour and the fraction of its pixels that look like it.
struct Surface {
  Vec color{};
  float plain = 0;
};

Surface surface_of(const std::vector<Vec>& pixels) {
  Surface s;
  if (pixels.empty()) return s;
  std::vector<float> channel(pixels.size());
  for (int c = 0; c < 3; ++c) {
    std::transform(pixels.begin(), pixels.end(), channel.begin(), [c](const Vec& p) { return p[c]; });
    std::nth_element(channel.begin(), channel.begin() + channel.size() / 2, channel.end());
    s.color[c] = channel[channel.size() / 2];
  }
  const auto same =
      std::count_if(pixels.begin(), pixels.end(), [&](const Vec& p) { return distance(p, s.color) < kPlain; });
  s.plain = float(same) / float(pixels.size());
  return s;
}

Surface border_of(const Picture& pic) {
  const int t = std::max(2, std::min(pic.w, pic.h) / 32);
  std::vector<Vec> pixels;
  for (int y = 0; y < pic.h; ++y) {
    for (int x = 0; x < pic.w; ++x) {
      if (std::min({x, y, pic.w - 1 - x, pic.h - 1 - y}) < t) pixels.push_back(pic.at(x, y));
    }
  }
  return surface_of(pixels);
}

/// A connected region of foreground: a mask of the whole picture, with and without its holes.
struct Region {
  std::vector<uint8_t> mask;
  int area = 0;
  int filled_area = 0;
  std::array<int, 4> box{};  // x0, y0, x1, y1, inclusive
  float cx = 0, cy = 0;      // centroid of the filled region
  Surface surface;
};

std::vector<uint8_t> flood(const Picture& pic, const std::vector<uint8_t>& open, size_t start, bool diagonal) {
  std::vector<uint8_t> seen(open.size(), 0);
  std::vector<size_t> stack{start};
  seen[start] = 1;
  while (!stack.empty()) {
    const int x = int(stack.back() % pic.w), y = int(stack.back() / pic.w);
    stack.pop_back();
    for (int dy = -1; dy <= 1; ++dy) {
      for (int dx = -1; dx <= 1; ++dx) {
        if ((!diagonal && dx && dy) || !pic.inside(x + dx, y + dy)) continue;
        const size_t n = size_t(y + dy) * pic.w + (x + dx);
        if (!open[n] || seen[n]) continue;
        seen[n] = 1;
        stack.push_back(n);
      }
    }
  }
  return seen;
}

/// Fills in area, holes, centroid and colour of a region whose mask is set.
void measure(const Picture& pic, Region* region) {
  // The filled region is everything that cannot be reached from outside. A frame around the picture connects all
  // borders.
  const Picture framed{nullptr, pic.w + 2, pic.h + 2};
  std::vector<uint8_t> open(size_t(framed.w) * framed.h, 1);
  for (int y = 0; y < pic.h; ++y) {
    for (int x = 0; x < pic.w; ++x) {
      open[size_t(y + 1) * framed.w + x + 1] = !region->mask[size_t(y) * pic.w + x];
    }
  }
  const std::vector<uint8_t> outside = flood(framed, open, 0, false);
  region->box = {pic.w, pic.h, -1, -1};
  double sx = 0, sy = 0;
  std::vector<Vec> all, inner;
  for (int y = 0; y < pic.h; ++y) {
    for (int x = 0; x < pic.w; ++x) {
      if (outside[size_t(y + 1) * framed.w + x + 1]) continue;
      ++region->filled_area;
      sx += x + 0.5;
      sy += y + 0.5;
      region->box = {std::min(region->box[0], x), std::min(region->box[1], y), std::max(region->box[2], x),
                     std::max(region->box[3], y)};
      if (!region->mask[size_t(y) * pic.w + x]) continue;
      all.push_back(pic.at(x, y));
      bool whole = true;
      for (int k = 0; k < 9 && whole; ++k) {
        const int nx = x + k % 3 - 1, ny = y + k / 3 - 1;
        whole = pic.inside(nx, ny) && region->mask[size_t(ny) * pic.w + nx];
      }
      if (whole) inner.push_back(all.back());
    }
  }
  region->area = int(all.size());
  region->cx = float(sx / region->filled_area);
  region->cy = float(sy / region->filled_area);
  region->surface = surface_of(inner.size() * 4 > all.size() ? inner : all);
}

/// All regions large enough to be objects; `specks` is the area of the others.
std::vector<Region> regions_of(const Picture& pic, const Vec& background, int* specks) {
  std::vector<uint8_t> open(size_t(pic.w) * pic.h);
  for (size_t i = 0; i < open.size(); ++i) {
    open[i] = distance(pic.at(int(i % pic.w), int(i / pic.w)), background) > kPlain;
  }
  std::vector<Region> regions;
  *specks = 0;
  for (size_t i = 0; i < open.size(); ++i) {
    if (!open[i]) continue;
    Region region;
    region.mask = flood(pic, open, i, true);
    int area = 0;
    for (size_t k = 0; k < open.size(); ++k) {
      if (region.mask[k]) open[k] = 0, ++area;
    }
    if (float(area) < kSmallestObject * float(pic.w) * float(pic.h)) {
      *specks += area;
      continue;
    }
    measure(pic, &region);
    regions.push_back(std::move(region));
  }
  return regions;
}

/// Coverage of a point by the object, 0..1, bilinear between pixel centres; other objects do not count.
class Coverage {
 public:
  Coverage(const Picture& pic, const Region& region, const Vec& background) : pic_(pic), region_(region) {
    values_.assign(size_t(pic.w) * pic.h, 0.f);
    const Vec& object = region.surface.color;
    const float length = std::max(1.f, distance(object, background));
    for (int y = region.box[1] - 1; y <= region.box[3] + 1; ++y) {
      for (int x = region.box[0] - 1; x <= region.box[2] + 1; ++x) {
        if (!pic.inside(x, y) || !near_region(x, y)) continue;
        const Vec p = pic.at(x, y);
        float dot = 0;
        for (int c = 0; c < 3; ++c) dot += (p[c] - background[c]) * (object[c] - background[c]);
        values_[size_t(y) * pic.w + x] = std::clamp(dot / (length * length), 0.f, 1.f);
      }
    }
  }

  float at(float x, float y) const {
    const float fx = x - 0.5f, fy = y - 0.5f;
    const int x0 = int(std::floor(fx)), y0 = int(std::floor(fy));
    const float tx = fx - float(x0), ty = fy - float(y0);
    return (value(x0, y0) * (1 - tx) + value(x0 + 1, y0) * tx) * (1 - ty) +
           (value(x0, y0 + 1) * (1 - tx) + value(x0 + 1, y0 + 1) * tx) * ty;
  }

 private:
  bool near_region(int x, int y) const {
    for (int k = 0; k < 9; ++k) {
      const int nx = x + k % 3 - 1, ny = y + k / 3 - 1;
      if (pic_.inside(nx, ny) && region_.mask[size_t(ny) * pic_.w + nx]) return true;
    }
    return false;
  }
  float value(int x, int y) const { return pic_.inside(x, y) ? values_[size_t(y) * pic_.w + x] : 0.f; }

  const Picture& pic_;
  const Region& region_;
  std::vector<float> values_;
};

/// Radius of the outermost edge at every angle (inward = true), or of the innermost one seen from the centre.
Profile trace(const Coverage& coverage, const Region& region, bool inward) {
  const float reach = std::hypot(float(region.box[2] - region.box[0] + 4), float(region.box[3] - region.box[1] + 4));
  constexpr float kStep = 0.25f;
  const int steps = int(reach / kStep);
  Profile profile{};
  for (int a = 0; a < kAngles; ++a) {
    const float dx = std::cos(kTwoPi * float(a) / kAngles), dy = std::sin(kTwoPi * float(a) / kAngles);
    for (int i = 0; i < steps; ++i) {
      const float r = kStep * float(inward ? steps - i : i);
      if (coverage.at(region.cx + r * dx, region.cy + r * dy) >= 0.5f) {
        profile[a] = r;
        break;
      }
    }
  }
  return profile;
}

/// Number of rotations that look alike in a full turn; 0 for a circle.
int corners_of(Shape shape) {
  switch (shape) {
    case Shape::Square:
      return 4;
    case Shape::Oval:
      return 2;
    case Shape::Triangle:
      return 3;
    case Shape::Star:
      return 5;
    default:
      return 0;
  }
}

/// Outline of an ideal shape of outer radius 1 at angle phi; `inner` is a star's inner radius over its outer one, or an
/// oval's shorter half axis over its longer.
float ideal_radius(Shape shape, float phi, float inner) {
  const int corners = corners_of(shape);
  if (corners == 0) return 1.f;
  if (shape == Shape::Oval) return inner / std::hypot(inner * std::cos(phi), std::sin(phi));
  const float sector = kTwoPi / float(corners);
  float t = std::fabs(phi - sector * std::round(phi / sector));  // angle from the nearest corner
  const float half = sector / 2;
  if (shape != Shape::Star) return std::cos(half) / std::cos(half - t);
  // The straight line from the tip (1, 0) to the notch at angle `half`, met by the ray at angle t.
  const float ex = inner * std::cos(half) - 1, ey = inner * std::sin(half);
  return ey / (std::cos(t) * ey - std::sin(t) * ex);
}

/// Smallest rms difference between a profile and the ideal one over all rotations, over the profile's mean radius.
float misfit(const Profile& profile, Shape shape, float inner) {
  double mean = 0;
  for (const float r : profile) mean += r / kAngles;
  if (!(mean > 0)) return std::numeric_limits<float>::infinity();
  constexpr int kRotations = 60;
  const int corners = std::max(corners_of(shape), 1);
  double best = std::numeric_limits<double>::infinity();
  for (int k = 0; k < (corners == 1 ? 1 : kRotations); ++k) {
    const float turn = kTwoPi / float(corners) * float(k) / kRotations;
    double dot = 0, norm = 0, square = 0;
    for (int a = 0; a < kAngles; ++a) {
      const double t = ideal_radius(shape, kTwoPi * float(a) / kAngles - turn, inner), r = profile[a];
      dot += r * t;
      norm += t * t;
      square += r * r;
    }
    best = std::min(best, std::max(0.0, square - dot * dot / norm));  // with the best scale dot / norm
  }
  return float(std::sqrt(best / kAngles) / mean);
}

struct ShapeGuess {
  bool known = false;
  Shape shape = Shape::Circle;
  float misfit = 0;
};

ShapeGuess shape_of(const Picture& pic, const Region& region, const Vec& background) {
  const Coverage coverage(pic, region, background);
  const Profile outline = trace(coverage, region, true);
  ShapeGuess best;
  best.misfit = misfit(outline, Shape::Circle, 0);
  const auto consider = [&](Shape shape, float inner) {
    const float m = misfit(outline, shape, inner);
    if (m < best.misfit) best.shape = shape, best.misfit = m;
  };
  consider(Shape::Square, 0);
  consider(Shape::Triangle, 0);
  for (float inner = 0.34f; inner < 0.64f; inner += 0.04f) consider(Shape::Star, inner);
  for (float inner = 0.40f; inner < 0.61f; inner += 0.04f) consider(Shape::Oval, inner);
  best.known = best.misfit <= kOutlineFit;
  const float hole = 1.f - float(region.area) / float(region.filled_area);
  if (hole > kNoHole) {
    const bool round_hole = misfit(trace(coverage, region, false), Shape::Circle, 0) <= kHoleFit;
    best.known =
        best.known && best.shape == Shape::Circle && round_hole && hole >= kRingHoleMin && hole <= kRingHoleMax;
    best.shape = Shape::Ring;
  }
  return best;
}

bool holds(Relation relation, const Region& a, const Region& b) {
  const float dx = b.cx - a.cx, dy = b.cy - a.cy;
  switch (relation) {
    case Relation::None:
      return true;
    case Relation::LeftOf:
      return dx > std::fabs(dy);
    case Relation::RightOf:
      return -dx > std::fabs(dy);
    case Relation::Above:
      return dy > std::fabs(dx);
    case Relation::Below:
      return -dy > std::fabs(dx);
  }
  return false;
}

/// Grades the regions in the order given: region i against object i.
GradeResult grade_in_order(const Picture& pic, const std::vector<const Region*>& regions, const Expectation& expected,
                           const Vec& background) {
  GradeResult result;
  result.background = result.count = result.colors = result.shapes = true;
  for (size_t i = 0; i < regions.size(); ++i) {
    const Surface& surface = regions[i]->surface;
    const Color seen = nearest_color(surface.color);
    const bool plain = surface.plain >= kPlainInside && distance(surface.color, vec(rgb_of(seen))) <= kNearPalette;
    if (seen != expected.objects[i].color || !plain) {
      result.colors = false;
      if (result.reason.empty()) result.reason = "an object is " + (plain ? name_of(seen) : "of no plain colour");
    }
    const ShapeGuess guess = shape_of(pic, *regions[i], background);
    if (!guess.known || guess.shape != expected.objects[i].shape) {
      result.shapes = false;
      if (result.reason.empty()) {
        result.reason = "an object is " + std::string(guess.known ? "a " : "no clean shape, nearest to a ") +
                        name_of(guess.shape) + ", misfit " + std::to_string(guess.misfit);
      }
    }
  }
  result.relation = regions.size() != 2 || holds(expected.relation, *regions[0], *regions[1]);
  if (!result.relation && result.reason.empty()) result.reason = "the objects are placed otherwise";
  result.pass = result.colors && result.shapes && result.relation;
  return result;
}

}  // namespace

Rgb rgb_of(Color color) { return kPalette[size_t(color)]; }

GradeResult grade(const uint8_t* rgb, int w, int h, const Expectation& expected) {
  GradeResult result;
  if (rgb == nullptr || w < 16 || h < 16) {
    result.reason = "no picture";
    return result;
  }
  const Picture pic{rgb, w, h};
  const Surface border = border_of(pic);
  const Color seen = nearest_color(border.color);
  if (border.plain < kPlainBorder || distance(border.color, vec(rgb_of(seen))) > kNearPalette) {
    result.reason = "the border is not plain";
    return result;
  }
  if (seen != expected.background) {
    result.reason = "the background is " + name_of(seen);
    return result;
  }
  result.background = true;
  int specks = 0, area = 0;
  const std::vector<Region> regions = regions_of(pic, border.color, &specks);
  for (const Region& r : regions) area += r.area;
  if (regions.size() != expected.objects.size() || float(specks) > kMaxSpecks * float(area)) {
    result.reason = std::to_string(regions.size()) + " objects, " + std::to_string(specks) + " pixels of specks";
    return result;
  }
  std::vector<const Region*> order;
  for (const Region& r : regions) order.push_back(&r);
  std::sort(order.begin(), order.end());
  GradeResult best;
  do {
    const GradeResult one = grade_in_order(pic, order, expected, border.color);
    if (best.reason.empty() || one.pass) best = one;
    if (best.pass) break;
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

}  // namespace tenon::grader
