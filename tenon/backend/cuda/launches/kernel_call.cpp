#include "tenon/backend/cuda/launches/kernel_call.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tenon/backend/cuda/codegen/lets_source.h"
#include "tenon/backend/cuda/device/launches/sizes.h"
#include "tenon/backend/cuda/launches/operands.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"
#include "tenon/kernels/view_facts.h"

namespace tenon::cuda {
namespace {

constexpr int kWarpRowThreads = 128;
constexpr int kLetsThreads = 1024;
constexpr int kMapThreads = 256, kMapLetsThreads = 512;  // every block computes the lets: use fewer blocks

// The threads that hold a row: some lanes of a warp, or a block of whole warps.
struct RowTeam {
  int threads = 32, fragments = 1;
  bool block() const { return threads > 32; }
};

// Picks lanes of one warp if they can hold a row, else a block. Of lanes the most that leave at most a fifth of the
// fragment slots empty, since a row's time is its longest lane's; else what leaves the fewest empty. `held`: registers
// per fragment that stay live from one reduction to the next.
RowTeam row_team(int64_t cols, int width, int held) {
  constexpr int64_t kMaxFragments = 6, kLanesRegisters = 60, kRegisters = 48;
  constexpr int kMaxBlockThreads = 1024,
                kMaxOfThread = 256;  // elements of a long row, even if a thread then spills some
  const int64_t fragments = div_up(cols, width);
  RowTeam best{32, 0};
  for (int lanes : {8, 16, 32}) {
    const int64_t each = div_up(fragments, lanes);
    if (each > kMaxFragments || (each > 1 && each * held > kLanesRegisters)) continue;
    if (best.fragments == 0 || lanes * each <= int64_t{best.threads} * best.fragments ||
        lanes * each * 4 <= fragments * 5)
      best = {lanes, static_cast<int>(each)};
  }
  if (best.fragments) return best;
  for (int each : {5, 4, 3, 6, 2, 7, 1, 8}) {
    const int64_t threads = div_up(fragments, int64_t{32} * each) * 32;
    if (threads > kMaxBlockThreads || (each > 1 && each * held > kRegisters && threads * 2 <= kMaxBlockThreads))
      continue;
    if (best.fragments == 0 || threads * each < int64_t{best.threads} * best.fragments)
      best = {static_cast<int>(threads), each};
  }
  if (best.fragments) return best;
  for (int each = 9; each * width <= kMaxOfThread; ++each)
    if (int64_t{kMaxBlockThreads} * each >= fragments) return {kMaxBlockThreads, each};
  throw Error(ErrorKind::Usage, "rows",
              "a row of " + std::to_string(cols) +
                  " elements is reduced at once, and a GPU's block has room for 262144; reduce it in two steps");
}

}  // namespace

KernelCall::KernelCall(Device& device, const KernelParts& source, const Params& params, const CallShape& shape)
    : name_(source.name),
      params_(params.bytes()),
      pointers_(params.pointers()),
      maps_(params.maps()),
      sizes_at_(params.sizes_at()),
      device_(&device),
      shape_(shape) {
  shape_.overlaps = true;  // every kernel does its own griddepcontrol wait
  constexpr int64_t kMostBlocks = 65535;
  TENON_CHECK(Usage, shape.grid_y <= kMostBlocks && shape.grid_z <= kMostBlocks, name_)
      << "needs a grid of " << shape.grid_x << " x " << shape.grid_y << " x " << shape.grid_z
      << " blocks; a GPU takes at most " << kMostBlocks
      << " in the second and third direction, as for samples or heads";
  TENON_CHECK(Usage, std::ssize(params_) <= device.facts().argument_bytes, name_)
      << "reads and writes too many tensors: its kernel takes " << params_.size() << " bytes of arguments, at most "
      << device.facts().argument_bytes << " are possible";
  KernelSource whole;
  whole.name = source.name;
  whole.code = "#define TENON_DEVICE\n" + source.headers + "\nnamespace tenon::device {\n" + params.declaration() +
               source.functors + "}  // namespace tenon::device\nusing namespace tenon::device;\n" + source.kernel;
  function_ = device.load(whole);
}

KernelCall::KernelCall(Device& device, std::string name, std::shared_ptr<LibraryCall> call,
                       const std::vector<LibraryOperand>& operands)
    : name_(std::move(name)), call_(std::move(call)), params_((1 + operands.size()) * sizeof(void*)), device_(&device) {
  for (const LibraryOperand& o : operands) {
    pointers_.push_back({(1 + pointers_.size()) * sizeof(void*), o.leaf});
    offsets_.push_back(o.offset_bytes);
  }
}

void KernelCall::bind(const Resolve& resolve) {
  for (size_t i = 0; i < pointers_.size(); ++i) {
    std::byte* address = static_cast<std::byte*>(resolve(pointers_[i].leaf)) + (call_ ? offsets_[i] : 0);
    std::memcpy(params_.data() + pointers_[i].at, &address, sizeof(address));
  }
  for (const Params::Map& m : maps_) {
    const TensorMap map = device_->encode(m.box(resolve(m.leaf)));
    std::memcpy(params_.data() + m.at, &map, sizeof(map));
  }
}

void KernelCall::set(const SizesPointer& pointer) {
  std::memcpy(params_.data() + sizes_at_ + pointer.at, &pointer.address, sizeof(pointer.address));
}

void KernelCall::enqueue(Stream& stream) {
  if (!call_) return function_->enqueue(stream, shape_, params_);
  std::vector<void*> addresses(1 + pointers_.size());
  std::memcpy(addresses.data(), params_.data(), params_.size());
  device_->call(stream, name_, [call = call_, addresses](void* native) {
    call->enqueue(native, std::span<void* const>(addresses).subspan(1), addresses.front());
  });
}

int KernelCall::library_kernels() const {
  const std::shared_ptr<void> workspace = device_->allocate(std::max<int64_t>(call_->workspace_bytes(), 1)),
                              operand = device_->allocate(1);  // never read or written
  const std::vector<void*> addresses(pointers_.size(), operand.get());
  return device_->count([&](void* native) { call_->enqueue(native, addresses, workspace.get()); });
}

int64_t leaf_bytes(const Expr& leaf) { return leaf.shape().numel() * size_of(leaf.dtype()); }

bool lets_fit_block(std::span<const ProgramOutput> outputs) {
  Params unused;
  constants_source(outputs, unused, kLetsThreads);
  return lets_source(outputs, unused, kLetsThreads).has_value();
}

std::optional<KernelCall> lets_call(Device& device, const std::string& name, std::span<const ProgramOutput> outputs) {
  Params params;
  const std::string constants = constants_source(outputs, params, kLetsThreads);
  const std::optional<LetsSource> lets = lets_source(outputs, params, kLetsThreads);
  if (!lets) return std::nullopt;
  KernelParts source;
  source.name = name + " lets";
  source.headers = "#include \"tenon/backend/cuda/device/launches/lets.h\"\n" + lets->includes;
  source.functors = constants + lets->functors;
  source.kernel = "KERNEL(kLetsThreads, 1, Params, p) {\n  begin_plain<" +
                  std::string(constants.empty() ? "NoConstants" : "Constants") +
                  ">(p);\n  Lets::run(p, Lets::first(p));\n}\n";
  CallShape shape;
  shape.threads = kLetsThreads;
  shape.shared_bytes = params.shared_bytes();
  return KernelCall(device, source, params, shape);
}

namespace {

// How a kernel iterates over rows. By default there is one block per group of rows. Persistent blocks keep what is the
// same for all rows (a step's gates and factors, weights) in shared memory: for programs that read many such floats.
// They also prefetch their next row into shared memory: if rows take so many registers that only one or two blocks fit
// on a multiprocessor, which would alternate between loading and computing, and for short rows, where it costs little.
// Long rows are computed by several teams of a block that share its columns: while one waits for its next row or for
// its other warps, another one computes.
struct RowsWalk {
  RowTeam team;
  int teams = 1;        // per block, if a team is not part of a warp
  int64_t blocks = 0;   // persistent blocks per multiprocessor; 0: not persistent
  int64_t columns = 0;  // bytes per block for values that are the same for all rows
  int64_t ahead = 0;    // bytes of a team's prefetched row
  int buffers = 0;      // for such rows, of each team
  int reductions_at_once = 1;
  RowsWalk(const DeviceFacts& facts, std::span<const ProgramOutput> outputs, const MatrixDomain& matrix) {
    Params unused;
    constants_source(outputs, unused, kWarpRowThreads);
    ProgramSource going(outputs, matrix, unused, 8);
    reductions_at_once = going.reductions_at_once();
    const auto team_of = [&](const ProgramSource& program) {
      // With one_order, a warp per row, the order in which the skinny core computes rows before a product.
      if (facts.one_order && matrix.cols() > 256 && matrix.cols() <= kMaxColumnsInFront)
        return RowTeam{32, static_cast<int>(div_up(matrix.cols(), int64_t{32} * program.width()))};
      return row_team(matrix.cols(), program.width(), program.held());
    };
    team = team_of(going);
    Params others;
    const ProgramSource staying(outputs, matrix, others, 8);
    const RowTeam its = team_of(staying);
    const auto prefetches = [&](const RowTeam& alone, const Kept& k) {
      return share(facts, matrix, k) || load_ahead(facts, alone, k);
    };
    if (staying.columns() > 0 && prefetches(its, {staying, true, 0})) return;
    if (prefetches(team, {going, false, static_cast<int64_t>(unused.shared_bytes())})) return;
    const int64_t fragments = int64_t{its.block() ? its.threads : kWarpRowThreads} * its.fragments;
    const int64_t column_bytes = fragments * staying.width() * 4 * staying.columns(),
                  row_bytes = fragments * 16 * staying.tensors_ahead();
    const auto fit = [&](int64_t bytes) { return facts.shared_bytes / (bytes + 2048); };
    if (!going.loads_late() || column_bytes == 0) return;
    const int64_t threads = fragments / its.fragments,
                  most = (its.block() || its.fragments > 1 ? kThreads : kThreadsOfOne) / threads,
                  resident = std::min(most, fit(column_bytes));
    if (resident < 2) return;
    team = its;
    blocks = resident;
    columns = column_bytes;
    if (its.block() || its.fragments > 1 || row_bytes == 0 || fit(2 * row_bytes + columns) < blocks) return;
    ahead = row_bytes;
    buffers = 2;
  }

 private:
  // A program, and what its blocks keep in shared memory for all rows: its columns, or else constants.
  struct Kept {
    const ProgramSource& program;
    bool columns;
    int64_t constants;
  };
  // Bytes of shared memory for each team of this shape, and for what its block keeps.
  struct Bytes {
    int64_t row, columns, exchange, kept;
    Bytes(const RowTeam& team, const Kept& k, int reductions) {
      const int64_t slots = int64_t{team.threads} * team.fragments;
      row = slots * 16 * k.program.tensors_ahead();
      columns = k.columns ? slots * k.program.width() * 4 * k.program.columns() : 0;
      exchange = device::row_exchange_bytes(team.threads, reductions);
      kept = columns + k.constants + 1024;  // with what else it needs
    }
  };

  // Sets everything for several teams that share a block, if enough of them fit and find rows, and if the order of a
  // row's sums may depend on the number of rows.
  bool share(const DeviceFacts& facts, const MatrixDomain& matrix, const Kept& k) {
    if (facts.one_order || facts.batch_invariant()) return false;
    const int64_t fragments = div_up(matrix.cols(), k.program.width());
    RowTeam each{0, 0};
    for (const int of_thread : {3, 4, 2}) {
      const RowTeam next{static_cast<int>(div_up(fragments, int64_t{32} * of_thread) * 32), of_thread};
      if (next.threads >= kMinThreads && next.threads * kMinTeams <= kThreadsSharing &&
          (each.threads == 0 || next.threads * next.fragments < each.threads * each.fragments))
        each = next;
    }
    if (each.threads == 0) return false;
    const Bytes bytes(each, k, reductions_at_once);
    for (const int each_has : {2, 1}) {
      const int64_t fit = (facts.shared_bytes - bytes.kept) / (each_has * bytes.row + bytes.exchange),
                    sharing = std::min<int64_t>(fit, kThreadsSharing / each.threads);
      if (bytes.row < kSharedRow || fit < kMinTeams || matrix.rows() < sharing * facts.multiprocessors) continue;
      set(each, static_cast<int>(sharing), each_has, bytes);
      blocks = 1;
      return true;
    }
    return false;
  }

  // The same for one team a block, which loads a row while it computes another.
  bool load_ahead(const DeviceFacts& facts, const RowTeam& its, const Kept& k) {
    if (!its.block()) return false;
    const Bytes bytes(its, k, reductions_at_once);
    const int64_t fit = facts.shared_bytes / (2 * bytes.row + bytes.exchange + bytes.kept);
    if (bytes.row < kLongRow || fit == 0) return false;
    set(its, 1, 2, bytes);
    blocks = std::min<int64_t>(fit, 2);
    return true;
  }

  void set(const RowTeam& each, int sharing, int each_has, const Bytes& bytes) {
    team = each;
    teams = sharing;
    columns = bytes.columns;
    ahead = bytes.row;
    buffers = each_has;
  }

  static constexpr int kMinTeams = 3;                            // two take longer than one that loads ahead
  static constexpr int kMinThreads = 128;                        // of a team: smaller ones were not measured
  static constexpr int kThreadsSharing = 640;                    // 96 registers each
  static constexpr int64_t kSharedRow = 7 * 1024;                // bytes: one tensor of 3840 columns gains a little
  static constexpr int64_t kThreads = 512, kThreadsOfOne = 768;  // 128 and 80 registers each
  static constexpr int64_t kLongRow = 22 * 1024;                 // bytes; three blocks of shorter rows fit
};

KernelCall rows_call(Device& device, const std::string& name, std::span<const ProgramOutput> outputs,
                     const MatrixDomain& matrix) {
  Params params;
  params.set_sizes("RowsSizes", device::RowsSizes{checked_int(matrix.rows()), checked_int(matrix.cols())});
  const RowsWalk walk(device.facts(), outputs, matrix);
  const RowTeam& team = walk.team;
  const int threads = team.block() ? walk.teams * team.threads : kWarpRowThreads;
  CallShape shape;
  shape.threads = threads;
  if (team.block())
    params.reserve_shared(walk.teams * device::row_exchange_bytes(team.threads, walk.reductions_at_once));
  KernelParts source;
  source.name = name;
  if (!walk.columns) source.functors = constants_source(outputs, params, threads);
  const std::string constants = source.functors.empty() ? "NoConstants" : "Constants";
  ProgramSource program(outputs, matrix, params, 8);
  if (walk.columns) program.keep_columns(params.reserve_shared("columns", walk.columns));
  if (walk.ahead) program.keep_rows(params.reserve_shared("rows", walk.buffers * walk.teams * walk.ahead), threads);
  source.functors += program.functor("Program");
  source.headers = "#include \"tenon/backend/cuda/device/launches/rows.h\"\n" + program.includes();
  int64_t blocks = div_up(matrix.rows(), threads / team.threads);
  if (walk.blocks) blocks = div_up(blocks, div_up(blocks, walk.blocks * device.facts().multiprocessors));
  shape.grid_x = blocks;
  shape.shared_bytes = params.shared_bytes();
  source.kernel = "KERNEL(" + (team.block() ? std::to_string(threads) : "kWarpRowThreads") + ", " +
                  std::to_string(std::max<int64_t>(walk.blocks, 1)) + ", Params, p) { " +
                  (team.block() ? "rows_by_block" : "rows_by_lanes") + "<Program, " + constants + ", " +
                  std::to_string(team.fragments) + ", " + std::to_string(team.threads) + ", " +
                  (team.block() ? std::to_string(walk.teams) + ", " : "") + std::to_string(walk.teams * walk.ahead) +
                  ", " + std::to_string(walk.buffers) + ">(p); }\n";
  return KernelCall(device, source, params, shape);
}

// Loads that depend on a loaded index: threads keep a second one in flight. Other maps are faster with more threads.
bool gathers(std::span<const ProgramOutput> outputs) {
  std::vector<Expr> values;
  for (const ProgramOutput& o : outputs) values.push_back(o.value);
  const std::vector<Expr> all = topological(values);
  return std::any_of(all.begin(), all.end(),
                     [](const Expr& e) { return e->family() == Family::View && view_facts(e).looks_up; });
}

// True if everything the values read, except lets, is settled: then all loads may precede the kernel's wait.
bool all_settled(std::span<const ProgramOutput> outputs, const Params& params, const SettledLeaf& settled) {
  std::vector<Expr> values;
  for (const ProgramOutput& o : outputs) values.push_back(o.value);
  const std::vector<Expr> all = topological(values);
  return settled && std::all_of(all.begin(), all.end(),
                                [&](const Expr& e) { return !is_memory_leaf(e) || params.in_shared(e) || settled(e); });
}

// The grid of a part of a map, whose threads cover whole rows of fragments. Persistent blocks, used when each computes
// lets, all process the same number of rows; other blocks are not persistent, so that none waits for the slowest.
struct MapGrid {
  int64_t blocks, lines;
  MapGrid(const DeviceFacts& facts, int64_t rows, int64_t fragments, int threads, int at_once, bool stay,
          int64_t parts) {
    constexpr int64_t kThreadsOfStaying = 1024, kThreads = 2048;  // of a multiprocessor
    const int64_t most = std::max<int64_t>(
        facts.multiprocessors * (stay ? kThreadsOfStaying : kThreads) / std::max<int64_t>(fragments * parts, 1), 1);
    const int64_t turns = stay ? div_up(rows, most * at_once) : 1;
    lines = std::min(std::max(div_up(rows, turns * at_once), std::min(most, div_up(rows, turns))), rows);
    blocks = std::max<int64_t>(div_up(lines * fragments, threads), 1);
  }
};

}  // namespace

static KernelCall map_call(Device& device, const std::string& name, std::span<const ProgramOutput> outputs,
                           const MatrixDomain& matrix, std::span<const ProgramOutput> lets,
                           const SettledLeaf& settled) {
  Params params;
  params.set_sizes("MapSizes", device::MapSizes{});
  KernelParts source;
  CallShape shape;
  shape.threads = lets.empty() ? kMapThreads : kMapLetsThreads;
  source.headers = "#include \"tenon/backend/cuda/device/launches/map.h\"\n";
  if (!lets.empty()) source.functors = constants_source(lets, params, static_cast<int>(shape.threads));
  const std::string constants = source.functors.empty() ? "NoConstants" : "Constants";
  for (const ProgramOutput& let : lets) params.keep_shared(let.place);
  shape.shared_bytes = params.shared_bytes();
  const std::string threads = std::to_string(shape.threads);
  device::MapSizes sizes{};
  int64_t parts = parts_of_lets(outputs, lets, matrix.shape);
  if (matrix.shape.numel() / parts < shape.threads * 8 || matrix.rows() % parts != 0) parts = 1;
  if (!lets.empty()) {
    const std::optional<LetsSource> first = lets_source(lets, params, static_cast<int>(shape.threads), parts);
    TENON_CHECK(Internal, first.has_value(), name) << "its lets do not fit a block";
    source.headers += "#include \"tenon/backend/cuda/device/launches/lets.h\"\n" + first->includes;
    source.functors += first->functors;
    sizes.settled_lets = all_settled(first->loaded_first, params, settled);
  }
  ProgramSource program(outputs, matrix, params, 8);
  const int64_t fragments = matrix.cols() / program.width();
  source.name = name;
  if (!lets.empty()) program.load_early();
  source.functors += program.functor("Program");
  sizes.settled = program.loads_early() && all_settled(outputs, params, settled);
  shape.reads_early = sizes.settled || sizes.settled_lets;
  const int at_once = lets.empty() && !gathers(outputs) ? 1 : program.at_once();
  const MapGrid grid(device.facts(), matrix.rows() / parts, fragments, static_cast<int>(shape.threads), at_once,
                     !lets.empty(), parts);
  shape.grid_x = grid.blocks;
  shape.grid_y = parts;
  sizes.rows = checked_int(matrix.rows() / parts);
  sizes.lines = checked_int(grid.lines);
  sizes.row_fragments = divisor_of(fragments);
  params.set_sizes("MapSizes", sizes);
  source.headers += program.includes();
  source.kernel = "KERNEL(" + threads + ", " + (lets.empty() ? "1" : "2") + ", Params, p) { map<Program, " + constants +
                  ", " + (lets.empty() ? "NoLets" : "Lets") + ", " + threads + ", " + std::to_string(at_once) +
                  ">(p); }\n";
  return KernelCall(device, source, params, shape);
}

bool lets_fit_map(const Device& device, std::span<const ProgramOutput> lets, int64_t elements_of_map) {
  constexpr int64_t kMaxElements = 32768;  // over all lets: every block computes them
  int64_t bytes = 32768, elements = 0;     // weights are in shared memory too
  for (const ProgramOutput& let : lets) {
    bytes += leaf_bytes(let.place) + kLeafAlignment;
    elements += domain_of(let.value).numel();
  }
  if (elements > std::min(kMaxElements, elements_of_map / 8) || bytes > device.facts().shared_bytes / 2) return false;
  Params unused;
  return lets_source(lets, unused, kMapLetsThreads).has_value();
}

KernelCall plain_call(Device& device, const std::string& name, std::span<const ProgramOutput> outputs,
                      const Shape& domain, std::span<const ProgramOutput> lets, const SettledLeaf& settled) {
  const bool joins = std::all_of(outputs.begin(), outputs.end(), [&](const ProgramOutput& o) {
    return o.value.shape() == domain && domain_of(o.value) == domain;
  });
  const bool reduces =
      std::any_of(outputs.begin(), outputs.end(), [](const ProgramOutput& o) { return reduces_rows(o.value); });
  if (!reduces && lets.empty())
    if (auto call = transposed_call(device, name, outputs, matrix_domain(domain, false))) return std::move(*call);
  const MatrixDomain matrix = matrix_domain(domain, joins && !reduces);
  return reduces ? rows_call(device, name, outputs, matrix) : map_call(device, name, outputs, matrix, lets, settled);
}

}  // namespace tenon::cuda
