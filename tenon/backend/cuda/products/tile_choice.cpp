#include "tenon/backend/cuda/products/tile_choice.h"

#include <algorithm>
#include <sstream>

#include "tenon/backend/cuda/products/tile_table.h"
#include "tenon/core/error.h"
#include "tenon/core/options.h"

namespace tenon::cuda {
namespace {

template <class Tile>
struct Candidate {
  Tile tile;
  double rate;  // of a multiprocessor, relative to the largest mma tile's
};

// Operands are read once a tile: rates fall with its size. Blocks of a cluster wait for each other, which costs more
// than the shared operand saves in all but few products.
constexpr Candidate<MmaTileShape> kMma[] = {
    {{128, 128, 2, 4, 64, 4}, 1.0}, {{128, 64, 2, 2, 64, 4}, 0.85}, {{64, 128, 2, 2, 64, 4}, 0.85},
    {{64, 64, 2, 2, 128, 4}, 0.7},  {{32, 64, 2, 2, 128, 4}, 0.5},
};
constexpr Candidate<WgmmaTileShape> kWgmma[] = {
    {{256, 128, 4, 1}, 1.8},    {{256, 96, 5, 1}, 1.7},     {{128, 256, 4, 1}, 1.8},    {{128, 224, 4, 1}, 1.75},
    {{128, 192, 5, 1}, 1.7},    {{128, 160, 6, 1}, 1.6},    {{128, 128, 6, 1}, 1.5},    {{128, 96, 7, 1}, 1.35},
    {{128, 64, 8, 1}, 1.1},     {{64, 256, 5, 1}, 1.3},     {{64, 160, 7, 1}, 1.1},     {{64, 128, 8, 1}, 1.0},
    {{64, 160, 3, 2}, 0.7},     {{64, 128, 4, 2}, 0.65},    {{64, 96, 5, 2}, 0.55},     {{64, 64, 8, 1}, 0.8},
    {{64, 64, 6, 2}, 0.5},      {{64, 32, 8, 2}, 0.35},     {{256, 128, 4, 1, 2}, 1.7}, {{128, 256, 4, 1, 2}, 1.7},
    {{128, 192, 5, 1, 2}, 1.6}, {{128, 128, 6, 1, 2}, 1.4}, {{128, 64, 8, 1, 2}, 1.05}, {{64, 256, 5, 1, 2}, 1.2},
    {{64, 128, 8, 1, 2}, 0.95}, {{64, 128, 4, 2, 2}, 0.6},  {{64, 64, 6, 2, 2}, 0.45},
};
constexpr int kMostSplits = 16;
constexpr int kLibraryChoices = 8;

// Time of `blocks` equal blocks of `area` results and `steps` steps of `row_bytes` of K, in units of a 64 x 64 product
// over 64 bytes at the best mma rate. Filling the pipeline and the epilogue cost a few steps; meeting costs a pass over
// the sums for each part.
double time_of(int64_t blocks, int64_t area, int64_t steps, int row_bytes, double rate, int splits,
               int multiprocessors) {
  const double each = static_cast<double>(steps) * row_bytes / 64 / rate + 4 + (splits > 1 ? 3.0 + splits : 0);
  return static_cast<double>(div_up(blocks, multiprocessors)) * static_cast<double>(area) / 4096 * each;
}

// Calls `consider` with every number of parts worth a try: those that still find multiprocessors without work.
template <class F>
void for_splits(int64_t steps, int64_t tiles, int places, const F& consider) {
  for (int splits = 1; splits <= kMostSplits; ++splits)
    if (splits == 1 || (splits * 4 <= steps && tiles * splits <= 2 * places)) consider(splits);
}

void add_mma(std::vector<TileChoice>& out, const ProductShape& p, const DeviceFacts& facts) {
  for (const auto& [tile, rate] : kMma) {
    if (tile.n / tile.warps_n % (8 * p.lanes) || tile.shared_bytes() > facts.shared_bytes) continue;
    const int64_t tiles = div_up(p.m, tile.m) * div_up(p.n / p.lanes, tile.n / p.lanes) * p.batch;
    const int64_t steps = div_up(p.k * p.element_bytes, tile.row_bytes);
    for_splits(steps, tiles, facts.multiprocessors, [&, &tile = tile, &rate = rate](int splits) {
      const double time = time_of(tiles * splits, int64_t{tile.m} * tile.n, div_up(steps, splits), tile.row_bytes, rate,
                                  splits, facts.multiprocessors);
      out.push_back({.core = Core::Mma, .mma = tile, .splits = splits, .time = time});
    });
  }
}

void add_wgmma(std::vector<TileChoice>& out, const ProductShape& p, const DeviceFacts& facts) {
  for (const auto& [tile, rate] : kWgmma) {
    if (!tile.has_runs(p.lanes) || tile.shared_bytes() > facts.shared_bytes) continue;
    // Sums of stages take registers, and so do lanes of a row scale each in the epilogue of 256 columns.
    if (p.element_bytes == 1 && (!tile.adds_stages() || (p.lanes > 1 && tile.n == 256))) continue;
    // Blocks that share a multiprocessor have 128 registers a thread: too few for wide sums and counts.
    if (p.counts && tile.resident > 1 && tile.n >= 128) continue;
    if (tile.cluster > 1 && ((p.lanes > 1 && p.lanes != tile.cluster) || p.wgmma_tiles_m(tile) < tile.cluster))
      continue;
    const int64_t tiles =
        div_up(p.wgmma_tiles_m(tile), tile.cluster) * tile.cluster * div_up(p.n / p.lanes, tile.n / p.lanes) * p.batch;
    const int64_t steps = div_up(p.k * p.element_bytes, 128);
    const int places = facts.multiprocessors * tile.resident;
    for_splits(steps, tiles, places, [&, &tile = tile, &rate = rate](int splits) {
      const double time =
          time_of(tiles * splits, int64_t{tile.m} * tile.n, div_up(steps, splits), 128, rate, splits, places);
      out.push_back({.core = Core::Wgmma, .wgmma = tile, .splits = splits, .time = time});
    });
  }
}

// Of groups of columns and warps for up to `rows` rows, in units that choices of one product share. What counts is that
// enough warps load at once, that a warp has enough to do, that blocks whose weights are to be on their way early are
// all there at once (16 rows take more registers), and else that each has many columns; warps of a block share what is
// computed in front.
double skinny_time(const SkinnyTileShape& tile, const ProductShape& p, int rows, const DeviceFacts& facts) {
  const int wanted = 16, there = tile.warps_there(rows);  // warps of a multiprocessor
  const double warps = static_cast<double>(p.n / p.lanes) / (8 * tile.groups) * tile.warps / facts.multiprocessors;
  const double pieces = static_cast<double>(p.k) / 32 / tile.warps;
  return 1e-3 * (1 / std::min(warps / wanted, 1.0) + 1 / pieces + 0.05 * tile.groups + 2.0 / tile.warps +
                 (warps > there ? 1.0 / tile.groups : 0.0));
}

// A few rows take as long as their weights' way, whatever the tile, and less than with any other core. How K is split
// and in how many sums it is added (SkinnyProduct::kChains) must not depend on the rows: these choose among the others.
void add_skinny(std::vector<TileChoice>& out, const ProductShape& p, const DeviceFacts& facts) {
  const int rows = p.m > 8 ? 16 : 8;
  const auto fits = [&](SkinnyTileShape tile) {
    tile.slot_bytes = SkinnyTileShape::slot_bytes_beside(p.front, facts.shared_bytes);
    const int64_t bytes = tile.shared_bytes(SkinnyTileShape::kMostRows, p.lanes, static_cast<int>(p.k)) + p.front;
    return tile.groups * p.lanes <= (rows > 8 ? 6 : 4) && bytes <= facts.shared_bytes;
  };
  for (const int warps : {4, 8, 16})
    for (const int groups : {1, 2, 4}) {
      SkinnyTileShape tile{groups, warps};
      if (groups * p.lanes > 4 || !fits(tile)) continue;
      const double time = skinny_time(tile, p, 8, facts);
      const SkinnyTileShape other{groups + 1, warps};
      if (rows > 8 && p.lanes * groups > 2 && fits(other) &&
          skinny_time(other, p, rows, facts) < skinny_time(tile, p, rows, facts))
        tile = other;
      out.push_back({.core = Core::Skinny, .skinny = tile, .time = time});
    }
}

constexpr const char* kCoreNames[] = {"simt", "mma", "wgmma", "skinny", "cublaslt", "cudnn"};  // of Core

bool is_library(Core core) { return core == Core::CublasLt || core == Core::Cudnn; }

}  // namespace

std::string asked_core() {
  std::string asked = option(Option::CudaCore);
  const bool known = asked.empty() || asked == "own" ||
                     std::find(std::begin(kCoreNames), std::end(kCoreNames), asked) != std::end(kCoreNames);
  TENON_CHECK(Usage, known, "TENON_CUDA_CORE")
      << "expected simt, mma, wgmma, skinny, cublaslt, cudnn or own, got \"" << asked << "\"";
  return asked;
}

bool core_allowed(Core core) {
  const std::string only = asked_core();
  if (only.empty()) return true;
  if (only == "own") return !is_library(core);
  if (only == "cublaslt" || only == "cudnn") return true;  // for what it can do; the rest runs as it would
  return only == kCoreNames[static_cast<int>(core)];
}

bool library_asked(Core library) {
  return is_library(library) && asked_core() == kCoreNames[static_cast<int>(library)];
}

std::string TileChoice::text() const {
  std::ostringstream out;
  if (core == Core::Simt) return "simt";
  if (core == Core::CublasLt) return "cublaslt " + algorithm.text();
  if (core == Core::Skinny) {
    out << "skinny groups " << skinny.groups << " warps " << skinny.warps;
    return out.str();
  }
  if (core == Core::Mma)
    out << "mma " << mma.m << 'x' << mma.n << " warps " << mma.warps_m << 'x' << mma.warps_n << " bytes "
        << mma.row_bytes << " stages " << mma.stages;
  else
    out << "wgmma " << wgmma.m << 'x' << wgmma.n << " stages " << wgmma.stages << " resident " << wgmma.resident
        << " cluster " << wgmma.cluster;
  out << " splits " << splits;
  return out.str();
}

std::optional<TileChoice> TileChoice::parse(const std::string& text) {
  std::istringstream in(text);
  TileChoice c;
  std::string word, rest;
  char x = 0;
  in >> word;
  if (word == "cublaslt") {
    const std::optional<MatmulAlgorithm> algorithm =
        MatmulAlgorithm::parse(text.substr(std::min(text.size(), word.size() + 1)));
    if (!algorithm) return std::nullopt;
    c.core = Core::CublasLt;
    c.algorithm = *algorithm;
    if (c.text() != text) return std::nullopt;
    return c;
  }
  if (word == "mma") {
    c.core = Core::Mma;
    in >> c.mma.m >> x >> c.mma.n >> word >> c.mma.warps_m >> x >> c.mma.warps_n >> word >> c.mma.row_bytes >> word >>
        c.mma.stages >> word >> c.splits;
  } else if (word == "wgmma") {
    c.core = Core::Wgmma;
    in >> c.wgmma.m >> x >> c.wgmma.n >> word >> c.wgmma.stages >> word >> c.wgmma.resident >> word >>
        c.wgmma.cluster >> word >> c.splits;
  } else if (word == "skinny") {
    c.core = Core::Skinny;
    in >> word >> c.skinny.groups >> word >> c.skinny.warps;
  } else {
    return std::nullopt;
  }
  if (!in || in >> rest || c.text() != text) return std::nullopt;
  return c;
}

std::vector<TileChoice> tile_choices(const ProductShape& p, const DeviceFacts& facts) {
  std::vector<TileChoice> out;
  const bool wgmma = p.wgmma_tiles_m && facts.arch == "sm_90a";
  if (p.mma && core_allowed(Core::Mma)) add_mma(out, p, facts);
  if (wgmma && core_allowed(Core::Wgmma)) add_wgmma(out, p, facts);
  if (p.skinny && core_allowed(Core::Skinny)) add_skinny(out, p, facts);
  if (out.empty() && p.mma) add_mma(out, p, facts);  // what is asked for alone cannot do it
  std::stable_sort(out.begin(), out.end(), [](const TileChoice& a, const TileChoice& b) { return a.time < b.time; });
  return out;
}

std::vector<TileChoice> library_choices(const ProductShape& p) {
  std::vector<TileChoice> out;
  if (p.epilogue.empty() || !core_allowed(Core::CublasLt)) return out;
  MatmulLibrary* const library = p.library();
  if (!library) return out;
  for (const MatmulAlgorithm& a : library->likeliest(p.matmul, kLibraryChoices)) {
    TileChoice& c = out.emplace_back();
    c.core = Core::CublasLt;
    c.algorithm = a;
  }
  return out;
}

namespace {

// The choice of a table's line, if it is one and can run here.
std::optional<TileChoice> possible(const std::optional<std::string>& line, const ProductShape& p,
                                   const std::vector<TileChoice>& own) {
  const std::optional<TileChoice> measured = line ? TileChoice::parse(*line) : std::nullopt;
  if (!measured) return std::nullopt;
  if (measured->core == Core::CublasLt) {
    if (p.epilogue.empty() || !core_allowed(Core::CublasLt)) return std::nullopt;
    MatmulLibrary* const library = p.library();
    return library && library->plan(p.matmul, measured->algorithm) ? measured : std::nullopt;
  }
  const auto same = std::find_if(own.begin(), own.end(), [&](const TileChoice& c) { return c.same_as(*measured); });
  return same == own.end() ? std::nullopt : std::optional(*same);
}

}  // namespace

TileChoice choose_tile(const ProductShape& p, const DeviceFacts& facts) {
  const std::vector<TileChoice> own = tile_choices(p, facts);
  TENON_CHECK(Internal, !own.empty(), p.key) << "no core can do it";
  const TileTable& table = TileTable::of(facts);
  if (!p.epilogue.empty() && core_allowed(Core::CublasLt)) {
    const std::optional<TileChoice> measured = possible(table.find(p.epilogue_key()), p, own);
    const bool asked = library_asked(Core::CublasLt);
    if (measured && (!asked || measured->core == Core::CublasLt)) return *measured;
    if (asked)
      if (const std::vector<TileChoice> all = library_choices(p); !all.empty()) return all.front();
  }
  if (const std::optional<TileChoice> measured = possible(table.find(p.key), p, own)) return *measured;
  return own.front();
}

}  // namespace tenon::cuda
