#include "tenon/backend/cuda/step.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tenon/backend/cuda/codegen/lets_text.h"
#include "tenon/core/error.h"
#include "tenon/device/sizes.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {
namespace {

constexpr int kWarpRowThreads = 128;
constexpr int kMapThreads = 256, kMapLetsThreads = 512;  // lets are computed by every block: fewer blocks

// Who holds a row: some lanes of a warp, or a block.
struct RowTeam {
  int threads = 32, fragments = 1;
  bool block() const { return threads > 32; }
};

// The lanes that leave the fewest places for fragments empty, where they can hold a row; `held`: values of a fragment
// that live in registers from one reduction to the next.
RowTeam row_team(int64_t cols, int run, int held) {
  const int64_t fragments = div_up(cols, run), most = held > 2 ? 4 : 6;
  RowTeam best{32, 0};
  for (int lanes : {8, 16, 32}) {
    const int64_t each = div_up(fragments, lanes);
    if (each <= most && (best.fragments == 0 || lanes * each <= int64_t{best.threads} * best.fragments))
      best = {lanes, static_cast<int>(each)};
  }
  if (best.fragments) return best;
  for (int threads : {128, 256, 512, 1024})
    for (int each : {1, 2, 4, 8})
      if (int64_t{threads} * each >= fragments) return {threads, each};
  throw Error(ErrorKind::Usage, "rows",
              "a row of " + std::to_string(cols) + " elements does not fit a block's registers");
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

Step::Step(Device& device, std::string name, std::shared_ptr<LibraryCall> call,
           const std::vector<LibraryOperand>& operands)
    : name_(std::move(name)), call_(std::move(call)), params_((1 + operands.size()) * sizeof(void*)), device_(&device) {
  for (const LibraryOperand& o : operands) {
    pointers_.push_back({(1 + pointers_.size()) * sizeof(void*), o.leaf});
    offsets_.push_back(o.offset_bytes);
  }
}

void Step::bind(const Resolve& resolve) {
  for (size_t i = 0; i < pointers_.size(); ++i) {
    std::byte* address = static_cast<std::byte*>(resolve(pointers_[i].leaf)) + (call_ ? offsets_[i] : 0);
    std::memcpy(params_.data() + pointers_[i].at, &address, sizeof(address));
  }
  for (const Params::Map& m : maps_) {
    const TensorMap map = device_->encode(m.box(resolve(m.leaf)));
    std::memcpy(params_.data() + m.at, &map, sizeof(map));
  }
}

void Step::set(const SizesPointer& pointer) {
  std::memcpy(params_.data() + sizes_at_ + pointer.at, &pointer.address, sizeof(pointer.address));
}

void Step::launch() {
  if (!call_) return function_->launch(shape_, params_);
  std::vector<void*> addresses(1 + pointers_.size());
  std::memcpy(addresses.data(), params_.data(), params_.size());
  device_->call(name_, [call = call_, addresses](void* stream) {
    call->launch(stream, std::span<void* const>(addresses).subspan(1), addresses.front());
  });
}

int64_t leaf_bytes(const Expr& leaf) { return leaf.shape().numel() * size_of(leaf.dtype()); }

std::optional<Step> lets_step(Device& device, const std::string& name, std::span<const ProgramOutput> outputs) {
  constexpr int kThreads = 1024;
  Params params;
  const std::string constants = constants_text(outputs, params, kThreads);
  const std::optional<LetsText> lets = lets_text(outputs, params, kThreads);
  if (!lets) return std::nullopt;
  KernelText text;
  text.name = name + " lets";
  text.headers = "#include \"tenon/device/lets.h\"\n" + lets->includes;
  text.functors = constants + lets->functors;
  text.kernel = "KERNEL(kLetsThreads, 1, Params, p) {\n  begin_plain<" +
                std::string(constants.empty() ? "NoConstants" : "Constants") + ">(p);\n" + lets->run + "}\n";
  LaunchShape shape;
  shape.threads = kThreads;
  shape.shared_bytes = static_cast<unsigned>(params.shared_bytes());
  return Step(device, text, params, shape);
}

namespace {

Step rows_step(Device& device, const std::string& name, std::span<const ProgramOutput> outputs,
               const MatrixDomain& matrix) {
  Params params;
  params.set_sizes("RowsSizes", device::RowsSizes{checked_int(matrix.rows()), checked_int(matrix.cols())});
  // How many columns a fragment has does not depend on where weights lie.
  Params unused;
  const ProgramText trial(outputs, matrix, unused, 8);
  const RowTeam team = row_team(matrix.cols(), trial.run(), trial.held());
  LaunchShape shape;
  shape.threads = static_cast<unsigned>(team.block() ? team.threads : kWarpRowThreads);
  if (team.block()) params.reserve_shared(shape.threads / 32 * 4);  // for BlockTeam
  KernelText text;
  text.name = name;
  text.functors = constants_text(outputs, params, static_cast<int>(shape.threads));
  const std::string r = std::to_string(team.fragments), t = std::to_string(team.threads);
  const std::string program_types = std::string("<Program, ") + (text.functors.empty() ? "NoConstants" : "Constants");
  ProgramText program(outputs, matrix, params, 8);
  text.functors += program.functor("Program");
  text.headers = "#include \"tenon/device/rows.h\"\n" + program.includes();
  shape.grid_x =
      static_cast<unsigned>(team.block() ? matrix.rows() : div_up(matrix.rows(), kWarpRowThreads / team.threads));
  shape.shared_bytes = static_cast<unsigned>(params.shared_bytes());
  text.kernel = (team.block() ? "KERNEL(" + t + ", 1, Params, p) { rows_by_block" + program_types
                              : "KERNEL(kWarpRowThreads, 1, Params, p) { rows_by_lanes" + program_types) +
                ", " + r + ", " + t + ">(p); }\n";
  return Step(device, text, params, shape);
}

// Threads that hold whole rows of fragments, in a number of blocks that stay.
struct MapGrid {
  int64_t blocks, lines;
  MapGrid(const DeviceFacts& facts, int64_t rows, int64_t width, int threads) {
    constexpr int64_t kThreadsOfMultiprocessor = 1024;
    const int64_t most = std::max<int64_t>(facts.multiprocessors * (kThreadsOfMultiprocessor / threads), 1);
    blocks = std::max(std::min(div_up(rows * width, threads), most), div_up(width, threads));
    lines = std::min(blocks * threads / width, rows);
  }
};

}  // namespace

static Step map_step(Device& device, const std::string& name, std::span<const ProgramOutput> outputs,
                     const MatrixDomain& matrix, std::span<const ProgramOutput> lets) {
  Params params;
  params.set_sizes("MapSizes", device::MapSizes{});
  KernelText text;
  LaunchShape shape;
  shape.threads = lets.empty() ? kMapThreads : kMapLetsThreads;
  text.headers = "#include \"tenon/device/map.h\"\n";
  if (!lets.empty()) text.functors = constants_text(lets, params, static_cast<int>(shape.threads));
  const std::string constants = text.functors.empty() ? "NoConstants" : "Constants";
  for (const ProgramOutput& let : lets) params.keep_shared(let.place);
  shape.shared_bytes = static_cast<unsigned>(params.shared_bytes());
  const std::string threads = std::to_string(shape.threads);
  if (!lets.empty()) {
    const std::optional<LetsText> first = lets_text(lets, params, static_cast<int>(shape.threads));
    TENON_CHECK(Internal, first.has_value(), name) << "its lets do not fit a block";
    text.headers += "#include \"tenon/device/lets.h\"\n" + first->includes;
    text.functors +=
        first->functors + "struct Lets {\n  DEV static void run(const Params& p) {\n" + first->run + "  }\n};\n";
  }
  ProgramText program(outputs, matrix, params, 8);
  const int64_t width = matrix.cols() / program.run();
  const MapGrid grid(device.facts(), matrix.rows(), width, static_cast<int>(shape.threads));
  shape.grid_x = static_cast<unsigned>(grid.blocks);
  params.set_sizes("MapSizes",
                   device::MapSizes{checked_int(matrix.rows()), checked_int(grid.lines), divisor_of(width)});
  text.name = name;
  text.functors += program.functor("Program");
  text.headers += program.includes();
  text.kernel = "KERNEL(" + threads + ", " + (lets.empty() ? "1" : "2") + ", Params, p) { map<Program, " + constants +
                ", " + (lets.empty() ? "NoLets" : "Lets") + ", " + threads + ">(p); }\n";
  return Step(device, text, params, shape);
}

bool lets_fit_map(const Device& device, std::span<const ProgramOutput> lets, int64_t elements_of_map) {
  constexpr int64_t kMostElements = 32768;  // of all lets: every block computes them
  int64_t bytes = 32768, elements = 0;      // weights lie in shared memory too
  for (const ProgramOutput& let : lets) {
    bytes += leaf_bytes(let.place) + kLeafAlignment;
    elements += domain_of(let.value).numel();
  }
  if (elements > std::min(kMostElements, elements_of_map / 8) || bytes > device.facts().shared_bytes / 2) return false;
  Params unused;
  return lets_text(lets, unused, kMapLetsThreads).has_value();
}

Step plain_step(Device& device, const std::string& name, std::span<const ProgramOutput> outputs, const Shape& domain,
                std::span<const ProgramOutput> lets) {
  const bool joins = std::all_of(outputs.begin(), outputs.end(), [&](const ProgramOutput& o) {
    return o.value.shape() == domain && domain_of(o.value) == domain;
  });
  const bool reduces =
      std::any_of(outputs.begin(), outputs.end(), [](const ProgramOutput& o) { return reduces_rows(o.value); });
  const MatrixDomain matrix = matrix_domain(domain, joins && !reduces);
  return reduces ? rows_step(device, name, outputs, matrix) : map_step(device, name, outputs, matrix, lets);
}

}  // namespace tenon::cuda
