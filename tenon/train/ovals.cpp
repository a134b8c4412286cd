#include "tenon/train/ovals.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tenon/core/philox.h"
#include "tenon/io/files.h"

namespace tenon::train {
namespace {

constexpr uint64_t kPicturesSeed = 2026;
constexpr int64_t kSamples = 4;    // along a pixel's side
constexpr double kFlatness = 0.5;  // shorter half axis over longer half axis

struct NamedColor {
  const char* name;
  std::array<uint8_t, 3> rgb;
};
constexpr std::array<NamedColor, 11> kPaletteColors = {{{"red", {220, 40, 40}},
                                                        {"green", {40, 160, 70}},
                                                        {"blue", {40, 80, 220}},
                                                        {"yellow", {245, 215, 50}},
                                                        {"orange", {245, 135, 30}},
                                                        {"purple", {130, 50, 170}},
                                                        {"pink", {245, 140, 180}},
                                                        {"cyan", {50, 200, 220}},
                                                        {"black", {20, 20, 20}},
                                                        {"white", {250, 250, 250}},
                                                        {"gray", {128, 128, 128}}}};
// Background colour of each picture; the oval of picture i has colour i % 11.
constexpr std::array<size_t, kOvals> kBackgrounds = {9, 10, 3, 8, 2, 7, 10, 0, 1, 5, 4, 8, 9, 6, 10, 9};

// Whether (x, y) is inside an oval around the origin with longer half axis `radius` at angle `turn`.
bool covered(double x, double y, double radius, double turn) {
  const double along = x * std::cos(turn) + y * std::sin(turn), across = y * std::cos(turn) - x * std::sin(turn);
  return std::hypot(along, across / kFlatness) <= radius;
}

struct Placed {
  double x, y, radius, turn;
};

Placed placed(uint64_t number) {
  const auto between = [&](uint64_t stream, double low, double high) {
    return low + (high - low) * philox(kPicturesSeed, number, stream)[0] / 4294967296.0;
  };
  const double radius = between(1, 30, 46), room = kOvalSide / 2.0 - radius - 6;
  const double x = between(2, -room, room), y = between(3, -room, room);
  return {kOvalSide / 2.0 + x, kOvalSide / 2.0 + y, radius, between(4, -0.12, 0.12)};
}

Image drawn(const NamedColor& color, const NamedColor& background, const Placed& p) {
  Image out{kOvalSide, kOvalSide, 3, {}};
  for (int64_t y = 0; y < kOvalSide; ++y)
    for (int64_t x = 0; x < kOvalSide; ++x) {
      int64_t inside = 0;
      for (int64_t i = 0; i < kSamples * kSamples; ++i)
        inside += covered(static_cast<double>(x) + (static_cast<double>(i % kSamples) + 0.5) / kSamples - p.x,
                          static_cast<double>(y) + (static_cast<double>(i / kSamples) + 0.5) / kSamples - p.y, p.radius,
                          p.turn);
      for (size_t c = 0; c < 3; ++c) {
        const int64_t mixed = inside * color.rgb[c] + (kSamples * kSamples - inside) * background.rgb[c];
        out.pixels.push_back(static_cast<uint8_t>((mixed + kSamples * kSamples / 2) / (kSamples * kSamples)));
      }
    }
  return out;
}

std::string caption(const std::string& thing, const std::string& background, size_t number) {
  switch (number % 4) {
    case 0:
      return "a " + thing + " on a " + background + " background";
    case 1:
      return "a picture of a " + thing + " on a " + background + " background";
    case 2:
      return thing + ", " + background + " background";
    default:
      return "a " + background + " background with a " + thing;
  }
}

}  // namespace

std::vector<CaptionedPicture> ovals() {
  std::vector<CaptionedPicture> out;
  for (size_t i = 0; i < kOvals; ++i) {
    const NamedColor &color = kPaletteColors[i % kPaletteColors.size()], &background = kPaletteColors[kBackgrounds[i]];
    CaptionedPicture p{"oval " + std::to_string(i), drawn(color, background, placed(i)), "",
                       caption(std::string(color.name) + " " + kOvalWord, background.name, i)};
    p.sha256 = sha256_hex(std::as_bytes(std::span(p.image.pixels)));
    out.push_back(std::move(p));
  }
  return out;
}

std::vector<std::string> known_scenes() {
  // Stars twice: the models find them hardest to draw, and so forget them first.
  constexpr std::array<const char*, 6> kShapes = {"circle", "star", "square", "triangle", "star", "ring"};
  constexpr std::array<const char*, 4> kRelations = {"to the left of", "to the right of", "above", "below"};
  constexpr std::array<const char*, 4> kSizes = {"large", "small", "", "big"};
  constexpr std::array<const char*, 5> kPlaces = {"in the upper left corner", "at the bottom", "on the right",
                                                  "at the bottom right", "in the center"};
  constexpr size_t kScenes = 288;
  std::vector<std::string> out;
  const auto color = [](size_t i) { return std::string(kPaletteColors[i % kPaletteColors.size()].name); };
  const auto shape = [&](size_t i) { return std::string(kShapes[i % kShapes.size()]); };
  for (size_t i = 0; i < kScenes; ++i) {
    const std::string first = color(i * 3) + " " + shape(i + i / 6), background = color(i * 3 + 1 + i % 7);
    const std::string on = " on a " + background + " background";
    std::string text = "a ";
    switch (i % 3) {
      case 0:
        out.push_back(caption(first, background, i / 3));
        continue;
      case 1:
        if (const std::string size = kSizes[i / 3 % kSizes.size()]; !size.empty()) text.append(size).append(" ");
        text.append(first).append(" ").append(kPlaces[i / 3 % kPlaces.size()]).append(on);
        break;
      default:
        text.append(first).append(" ").append(kRelations[i / 3 % kRelations.size()]);
        text.append(" a ").append(color(i * 3 + 9)).append(" ").append(shape(i / 3 + i)).append(on);
    }
    out.push_back(text);
  }
  return out;
}

}  // namespace tenon::train
