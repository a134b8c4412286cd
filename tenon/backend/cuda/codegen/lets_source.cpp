#include "tenon/backend/cuda/codegen/lets_source.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tenon/expr/ops.h"
#include "tenon/kernels/form.h"

namespace tenon::cuda {
namespace {

// Lets that share a loop: same domain, and the same depth in the chain of lets.
struct Batch {
  int level;
  bool reduces;
  Shape domain;
  std::vector<ProgramOutput> lets;
};

std::vector<Batch> batches_of(std::span<const ProgramOutput> lets) {
  std::map<const Node*, int> levels;
  std::vector<Batch> out;
  for (const ProgramOutput& let : lets) {
    int level = 0;
    for (const Expr& e : topological(std::array{let.value}))
      if (const auto it = levels.find(e.get()); it != levels.end()) level = std::max(level, it->second + 1);
    levels[let.place.get()] = level;
    const bool reduces = reduces_rows(let.value);
    const Shape domain = domain_of(let.value);
    auto same = std::find_if(out.begin(), out.end(), [&](const Batch& b) {
      return b.level == level && b.reduces == reduces && b.domain == domain;
    });
    if (same == out.end()) same = out.insert(same, {level, reduces, domain, {}});
    same->lets.push_back(let);
  }
  std::stable_sort(out.begin(), out.end(), [](const Batch& a, const Batch& b) { return a.level < b.level; });
  return out;
}

// Lanes per row and fragments per lane, or no lanes if it does not fit; only a few lanes if each row gives one value.
struct LetTeam {
  int lanes = 0, fragments = 1;
};

// `pieces`: tensors from which a fragment is loaded. A thread with 64 registers holds four fragments of one or two.
LetTeam let_team(const Batch& batch, int64_t fragments, int pieces) {
  const bool one_value = std::all_of(batch.lets.begin(), batch.lets.end(),
                                     [&](const ProgramOutput& o) { return o.value.shape() != batch.domain; });
  for (int lanes : {8, 16})  // as for separate rows (kernel_call.cpp), so that head norms sum in the same order
    if (one_value && lanes >= fragments) return {lanes, 1};
  for (int lanes : {8, 32})
    for (int each : {1, 2, 4})
      if ((lanes == 32 || one_value) && (each < 4 || lanes == 32 || pieces < 3) && int64_t{lanes} * each >= fragments)
        return {lanes, each};
  return {};
}

}  // namespace

std::optional<LetsSource> lets_source(std::span<const ProgramOutput> lets, Params& params, int threads, int64_t parts) {
  constexpr int64_t kMaxElements = 65536;
  constexpr int kMaxOfSum = 8, kMaxColumns = 2;  // columns of a fragment; fewer without sums: more threads, less source
  const std::string t = std::to_string(threads);
  LetsSource source;
  std::string members, first, run;
  int made = 0, level = 0;
  for (const Batch& batch : batches_of(lets)) {
    const MatrixDomain matrix = matrix_domain(batch.domain, false);
    if (batch.domain.numel() > kMaxElements || batch.domain.numel() == 0) return std::nullopt;
    ProgramSource program(batch.lets, matrix, params, batch.reduces ? kMaxOfSum : kMaxColumns);
    const std::string functor = "Let" + std::to_string(made++);
    program.load_early();
    source.functors += program.functor(functor);
    source.includes += program.includes();
    if (batch.level != level) run += "    sync_block();\n";
    level = batch.level;
    const std::string rows = params.integer("rows", matrix.rows() / parts);
    if (!program.reduces()) {
      const std::string over = rows + ", " + params.divisor("row_fragments", matrix.cols() / program.width()),
                        loads = "let_loads<" + functor + ">(p, " + over + ")", lower = "let" + functor.substr(3);
      // Loads that depend on no earlier let are issued first.
      const bool apart = program.loads_early() && (batch.level == 0 || params.in_shared(batch.lets.front().place));
      if (apart) {
        members += "    " + functor + "::Loads " + lower + ";\n";
        first += "    f." + lower + " = " + loads + ";\n";
        source.loaded_first.insert(source.loaded_first.end(), batch.lets.begin(), batch.lets.end());
      }
      run += "    let_map<" + functor + ", " + t + ">(p, " + over + ", " + (apart ? "f." + lower : loads) + ");\n";
      continue;
    }
    const LetTeam team = let_team(batch, div_up(matrix.cols(), program.width()), program.pieces());
    if (team.lanes == 0) return std::nullopt;
    run += "    let_rows<" + functor + ", " + std::to_string(team.fragments) + ", " + std::to_string(team.lanes) +
           ", " + t + ">(p, " + rows + ", " + params.integer("cols", matrix.cols()) + ");\n";
  }
  source.functors += "struct Lets {\n  struct First {\n" + members +
                     "  };\n  DEV static First first(const Params& p) {\n    First f;\n" + first +
                     "    return f;\n  }\n  DEV static void run(const Params& p, const First& f) {\n" + run +
                     "    sync_block();\n  }\n};\n";
  return source;
}

int64_t parts_of_lets(std::span<const ProgramOutput> values, std::span<const ProgramOutput> lets, const Shape& domain) {
  const int64_t parts = lets.empty() || domain.rank() < 2 ? 1 : domain[0];
  const auto divides = [&](const Shape& s) { return s.rank() > 1 && s[0] == parts; };
  std::set<const Node*> read;  // lets, and what is computed from them
  std::vector<Expr> roots;
  for (const ProgramOutput& let : lets) {
    if (!divides(let.value.shape()) || !divides(domain_of(let.value))) return 1;
    read.insert(let.place.get());
    roots.push_back(let.value);
  }
  for (const ProgramOutput& o : values) roots.push_back(o.value);
  for (const Expr& e : topological(roots)) {
    if (std::none_of(e->in.begin(), e->in.end(), [&](const Expr& in) { return read.contains(in.get()); })) continue;
    read.insert(e.get());
    const bool keeps = e.is<nodes::Reshape>() || e->family() == Family::Pointwise || e->family() == Family::Reduce ||
                       (e.is<nodes::Broadcast>() && e.shape().rank() == e->in[0].shape().rank());
    if (!keeps || !divides(e.shape())) return 1;
  }
  return parts;
}

std::string constants_source(std::span<const ProgramOutput> values, Params& params, int threads) {
  constexpr int64_t kMaxBytes = 24576;
  std::vector<Expr> roots;
  for (const ProgramOutput& o : values) roots.push_back(o.value);
  std::string copies;
  for (const Expr& e : topological(roots)) {
    const int64_t bytes = e.shape().numel() * size_of(e.dtype());
    if (!e.is<nodes::Param>() || params.shared_bytes() + bytes > kMaxBytes) continue;
    const std::string from = params.pointer(e, false), at = params.keep_shared(e);
    copies += "    copy_constant<" + std::to_string(threads) + ">(" + at + ", " + from + ", " +
              params.integer("bytes", bytes) + ");\n";
  }
  if (copies.empty()) return {};
  return "struct Constants {\n  DEV static void copy(const Params& p) {\n" + copies +
         "    cp_async_commit();\n  }\n  DEV static void wait() {\n    cp_async_wait<0>();\n    sync_block();\n  "
         "}\n};\n";
}

std::vector<ProgramOutput> lets_read_by(std::span<const ProgramOutput> values, std::span<const ProgramOutput> lets) {
  std::vector<ProgramOutput> out;
  std::vector<Expr> roots;
  for (const ProgramOutput& o : values) roots.push_back(o.value);
  for (size_t i = lets.size(); i-- > 0;) {
    const std::vector<Expr> read = topological(roots);
    if (std::find(read.begin(), read.end(), lets[i].place) == read.end()) continue;
    out.insert(out.begin(), lets[i]);
    roots.push_back(lets[i].value);
  }
  return out;
}

}  // namespace tenon::cuda
