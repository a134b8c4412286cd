#include "tenon/backend/cuda/step.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tenon/core/error.h"
#include "tenon/device/sizes.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {
namespace {

// Who holds a row: a warp where its lanes hold at most kMostFragments each, else a block.
constexpr int kMostFragments = 8;
struct RowTeam {
  int threads = 32, fragments = 1;
};

RowTeam row_team(int64_t cols, int run) {
  const int64_t fragments = div_up(cols, run);
  for (int threads : {32, 128, 256, 512, 1024})
    for (int each : {1, 2, 4, kMostFragments})
      if ((threads > 32 || each <= 4) && int64_t{threads} * each >= fragments) return {threads, each};
  throw Error(ErrorKind::Usage, "rows",
              "a row of " + std::to_string(cols) + " elements does not fit a block's registers");
}

KernelText rows_text(const RowTeam& team) {
  const std::string r = std::to_string(team.fragments), t = std::to_string(team.threads);
  KernelText text;
  text.headers = "#include \"tenon/device/rows.h\"\n";
  text.kernel = team.threads == 32
                    ? "KERNEL(kWarpRowThreads, 1, Params, p) { rows_by_warp<Program, " + r + ">(p); }\n"
                    : "KERNEL(" + t + ", 1, Params, p) { rows_by_block<Program, " + r + ", " + t + ">(p); }\n";
  return text;
}

}  // namespace

Step::Step(Device& device, const KernelText& text, const Params& params, const LaunchShape& shape)
    : name_(text.name),
      params_(params.bytes()),
      pointers_(params.pointers()),
      maps_(params.maps()),
      sizes_at_(params.sizes_at()),
      device_(&device),
      shape_(shape) {
  shape_.overlaps = true;  // every kernel waits for its predecessor itself
  KernelSource source;
  source.name = text.name;
  source.text = "#define TENON_DEVICE\n" + text.headers + "\nnamespace tenon::device {\n" + params.declaration() +
                text.functors + "}  // namespace tenon::device\nusing namespace tenon::device;\n" + text.kernel;
  function_ = device.load(source);
}

void Step::bind(const Resolve& resolve) {
  for (const Params::Pointer& p : pointers_) {
    void* address = resolve(p.leaf);
    std::memcpy(params_.data() + p.at, &address, sizeof(address));
  }
  for (const Params::Map& m : maps_) {
    const TensorMap map = device_->encode(m.box(resolve(m.leaf)));
    std::memcpy(params_.data() + m.at, &map, sizeof(map));
  }
}

void Step::set(const SizesPointer& pointer) {
  std::memcpy(params_.data() + sizes_at_ + pointer.at, &pointer.address, sizeof(pointer.address));
}

int64_t leaf_bytes(const Expr& leaf) { return leaf.shape().numel() * size_of(leaf.dtype()); }

std::optional<Step> lets_step(Device& device, const std::string& name, std::span<const ProgramOutput> outputs) {
  constexpr int64_t kMostElements = 65536;
  Params params;
  KernelText text;
  text.name = name + " lets";
  text.headers = "#include \"tenon/device/lets.h\"\n";
  text.kernel = "KERNEL(kLetsThreads, 1, Params, p) {\n  griddep_wait();\n  griddep_launch();\n";
  for (const ProgramOutput& o : outputs) {
    const Shape domain = domain_of(o.value);
    const MatrixDomain matrix = matrix_domain(domain, false);
    if (domain.numel() > kMostElements || domain.numel() == 0) return std::nullopt;
    ProgramText program(std::array{o}, matrix, params, 8);
    const std::string functor = "Let" + std::to_string(&o - outputs.data());
    text.functors += program.functor(functor);
    text.headers += program.includes();
    const std::string rows = params.integer("rows", matrix.rows());
    if (!program.reduces()) {
      const std::string width = params.divisor("row_fragments", matrix.cols() / program.run());
      text.kernel += "  let_map<" + functor + ">(p, " + rows + ", " + width + ");\n";
      continue;
    }
    const RowTeam team = row_team(matrix.cols(), program.run());
    if (team.threads != 32) return std::nullopt;
    text.kernel += "  let_rows<" + functor + ", " + std::to_string(team.fragments) + ">(p, " + rows + ", " +
                   params.integer("cols", matrix.cols()) + ");\n";
  }
  text.kernel += "}\n";
  LaunchShape shape;
  shape.threads = 1024;
  return Step(device, text, params, shape);
}

Step plain_step(Device& device, const std::string& name, std::span<const ProgramOutput> outputs, const Shape& domain) {
  const bool joins = std::all_of(outputs.begin(), outputs.end(), [&](const ProgramOutput& o) {
    return o.value.shape() == domain && domain_of(o.value) == domain;
  });
  Params params;
  const bool reduces =
      std::any_of(outputs.begin(), outputs.end(), [](const ProgramOutput& o) { return reduces_rows(o.value); });
  const MatrixDomain matrix = matrix_domain(domain, joins && !reduces);
  params.set_sizes(reduces ? "RowsSizes" : "MapSizes", device::MapSizes{});
  ProgramText program(outputs, matrix, params, 8);
  KernelText text;
  LaunchShape shape;
  if (reduces) {
    const RowTeam team = row_team(matrix.cols(), program.run());
    text = rows_text(team);
    const bool warps = team.threads == 32;
    shape.threads = warps ? 128 : static_cast<unsigned>(team.threads);
    shape.grid_x = static_cast<unsigned>(warps ? div_up(matrix.rows(), 4) : matrix.rows());
    shape.shared_bytes = warps ? 0 : static_cast<unsigned>(team.threads / 32 * 4);
  } else {
    text.headers = "#include \"tenon/device/map.h\"\n";
    text.kernel = "KERNEL(kMapThreads, 1, Params, p) { map<Program>(p); }\n";
    shape.threads = 256;
    shape.grid_x = static_cast<unsigned>(div_up(matrix.rows() * matrix.cols() / program.run(), shape.threads));
  }
  text.name = name;
  text.functors = program.functor("Program");
  text.headers += program.includes();
  if (reduces)
    params.set_sizes("RowsSizes", device::RowsSizes{checked_int(matrix.rows()), checked_int(matrix.cols())});
  else
    params.set_sizes("MapSizes", device::MapSizes{checked_int(matrix.rows() * matrix.cols() / program.run()),
                                                  divisor_of(matrix.cols() / program.run())});
  return Step(device, text, params, shape);
}

}  // namespace tenon::cuda
