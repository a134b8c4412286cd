#include "tenon/backend/cuda/launches/anchor_kernel.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "tenon/backend/affine.h"
#include "tenon/backend/forms.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {

Expr AnchorKernel::operand(size_t i, const Shape& stored, const Layout& layout) {
  const Expr& hole = form_.holes[i];
  const bool same = hole.shape() == stored;
  const bool constant = of_weights_only(hole);
  if (same && !constant && read_in_place(hole, unit_, device().facts())) {
    read_beside(hole);  // weights may be read along with the computed hole
    return hole;
  }
  return stored_operand(i, stored, layout, unit_);
}

Expr AnchorKernel::stored_operand(size_t i, const Shape& stored, const Layout& layout, DType t) {
  const Expr& hole = form_.holes[i];
  const bool constant = of_weights_only(hole);
  const Expr value = without_rounding(hole, t);
  const std::string name = "%hole." + std::to_string(i);
  const Expr leaf = input(*form_.graph, name, t, stored);
  if (constant) {
    ask_packed(leaf, {{value, layout(leaf)}});
    return leaf;
  }
  if (stored.numel() == hole.shape().numel())
    place_in_scratch(leaf);
  else
    place_in_kept(leaf);  // padding that no run writes stays zero
  ask_weights(value);
  stored_.push_back({value, layout(leaf), leaf});
  return leaf;
}

void AnchorKernel::add_columns(const Expr& columns) {
  const Expr leaf = input(*form_.graph, "%added", DType::F32, columns.shape());
  ask_packed(leaf, {{columns, leaf}});
  added_ = reshape(leaf, {columns.shape().numel()});
}

void AnchorKernel::read_beside(const Expr& value) {
  read_in_place_.push_back(value);
  ask_weights(value);
}

Expr AnchorKernel::padded_operand(size_t i) {
  Shape stored = form_.holes[i].shape();
  const int64_t cols = stored[-1], vector = vector_width(unit_);
  stored[-1] = (cols + vector - 1) / vector * vector;
  return operand(i, stored, [cols](const Expr& leaf) { return slice(leaf, -1, 0, cols); });
}

void AnchorKernel::make_operands() {
  for (const Stored& s : stored_) {
    if (s.leaf.shape().numel() == 0) continue;
    const ProgramOutput output{s.value, s.place, s.leaf.dtype()};
    add_values(name() + " " + s.leaf->attrs.text, std::array{output}, domain_of(s.value));
  }
}

int AnchorKernel::operand_calls() const {
  int n = 0;
  for (const Stored& s : stored_)
    if (s.leaf.shape().numel() > 0) ++n;
  return n;
}

void AnchorKernel::reserve_split(const CallNeeds& needs) {
  if (needs.counters == 0) return;
  split_ =
      Split{.workspace_at = reserve_scratch(needs.workspace_bytes), .counters_at = reserve_kept(needs.counters * 4)};
}

void AnchorKernel::add_core(KernelCall call, size_t split_at, std::vector<std::pair<size_t, int64_t>> scratch) {
  std::vector<SizesPointer> counters;
  if (split_) {
    counters.push_back({split_at + offsetof(device::SplitK, counters), kept(split_->counters_at)});
    scratch.emplace_back(split_at + offsetof(device::SplitK, workspace), split_->workspace_at);
  }
  add(std::move(call), counters, std::move(scratch));
}

std::vector<ProgramOutput> AnchorKernel::beside_maps() const {
  std::vector<ProgramOutput> out = results();
  if (counted_in_core()) out.push_back({counted_in_core()->value, {}, DType::F32});
  for (const Stored& s : stored_)
    if (reduces_rows(s.value)) out.push_back({s.value, s.place, s.leaf.dtype()});
  for (const Expr& operand : read_in_place_) out.push_back({operand, {}, unit_});
  return out;
}

std::string AnchorKernel::operand_source(const std::string& name, const Expr& operand, int split,
                                         Params& params) const {
  return AccessSource("x" + name, operand, {operand.shape(), split}, false, params).operand(name, vector_width(unit_));
}

std::string AnchorKernel::element_source(const std::string& name, const Expr& operand, int split, Params& params,
                                         std::string& headers, int most, int given) const {
  const ProgramOutput value{operand, {}, DType::F32};
  ProgramSource program(std::array{value}, {operand.shape(), split}, params, most);
  std::string source = program.functor(name, given);
  headers += program.includes();
  return source;
}

std::string AnchorKernel::pixels_source(const Expr& operand, Params& params, std::string& headers) const {
  return element_source("Pixels", operand, operand.shape().rank() - 1, params, headers, vector_width(unit_)) +
         "struct A : Pixels {\n  using T = " + type_source(unit_) +
         ";\n  static constexpr bool kComputed = true;\n  struct Row {\n    int pixel;\n  };\n"
         "  DEV static Row row(const Params&, int pixel) { return {pixel}; }\n};\n";
}

bool AnchorKernel::dense(const Expr& operand) const {
  const auto pieces = affine_pieces(operand, operand.shape(), operand.shape().rank() - 1);
  if (!pieces || pieces->size() != 1) return false;
  const AffinePiece& p = pieces->front();
  const bool side_by_side = p.cols.size() == 1 && (p.cols[0].stride == 1 || operand.shape()[-1] == 1);
  return side_by_side && p.rows.size() == 1 && p.rows[0].stride == operand.shape()[-1];
}

std::string AnchorKernel::map_source(const std::string& name, const Expr& operand, BoxesOf boxes, Params& params,
                                     const MakeRowsBox& box) const {
  const bool in_columns = boxes != BoxesOf::Rows, matrices = boxes == BoxesOf::StackedColumns;
  const auto pieces = affine_pieces(operand, operand.shape(), operand.shape().rank() - 1);
  std::string source, place;
  for (size_t i = 0; i < pieces->size(); ++i) {
    const AffinePiece& p = (*pieces)[i];
    const int64_t offset = p.offset * size_of(operand.dtype()), begin = in_columns ? p.row_begin : p.col_begin,
                  end = in_columns ? p.row_end : p.col_end;
    const Digit& along = (in_columns ? p.cols : p.rows)[0];
    const int64_t stride = along.extent > 1 ? along.stride : in_columns ? operand.shape().rows() : operand.shape()[-1];
    const MatrixStack stack = matrices ? stack_of(operand, p) : MatrixStack{};
    const std::string map = params.map(p.leaf, [=, bytes = size_of(operand.dtype())](void* address) {
      TensorBox made = box(static_cast<std::byte*>(address) + offset, end - begin, stride);
      if (stack.groups == 0) return made;
      made.extent[0] /= stack.groups;
      made.extent[made.rank] = stack.groups, made.stride_bytes[made.rank] = stack.stride * bytes,
      made.box[made.rank] = 1;
      ++made.rank;
      return made;
    });
    if (matrices) {
      const std::string beside = params.divisor("beside", stack.beside),
                        rows = params.integer("rows", operand.shape()[-2]);
      place = "  DEV static MatrixPlace place(const Params& p, int matrix) {\n    const int group = matrix / " +
              beside + ";\n    return {(matrix - group * static_cast<int>(" + beside + ".divisor)) * " + rows +
              ", group};\n  }\n";
    }
    const std::string column = i ? "column - " + params.integer("begin", begin) : "column";
    if (i + 1 < pieces->size()) source += "    if (column < " + params.integer("end", end) + ") ";
    source += "    return {" + map + ", " + column + "};\n";
  }
  return "struct " + name + " {\n  using T = " + type_source(operand.dtype()) +
         (in_columns ? ";\n  static constexpr bool kColumns = true" : "") +
         ";\n  static constexpr bool kConstant = " + (stays(operand) ? "true" : "false") + ";\n" + place +
         "  DEV static TmaSource source(const Params& p, int column) {\n" + source + "  }\n};\n";
}

// Results of lanes that are not combined: one functor per lane, selected by the column.
std::string AnchorKernel::lanes_source(Params& params, std::string& headers, int most) {
  const MatrixDomain domain{form_.domain, std::max(form_.domain.rank() - 1, 0)};
  const std::string width = params.integer("lane_columns", domain.cols());
  std::vector<std::vector<ProgramOutput>> outputs(static_cast<size_t>(form_.lanes));
  for (const ProgramOutput& o : results_of_sums())
    outputs[static_cast<size_t>(*lanes_of(o.value).begin())].push_back(o);
  std::string source, store;
  for (const auto& lane : outputs) {  // all use the narrowest fragment
    if (lane.empty()) continue;
    Params unused;
    most = std::min(most, ProgramSource(lane, domain, unused, most).width());
  }
  for (size_t lane = 0; lane < outputs.size(); ++lane) {
    if (outputs[lane].empty()) continue;
    ProgramSource program(outputs[lane], domain, params, most);
    const std::string n = std::to_string(lane), functor = "Lane" + n;
    source += program.functor(functor, form_.lanes);
    headers += program.includes();
    store += "    if (lane == " + n + ") {\n      Frag<float, kWidth> lanes[" + std::to_string(form_.lanes) +
             "];\n      lanes[" + n + "] = acc;\n      const int at = col - lane * " + width + ";\n      " + functor +
             "::store(p, row, at, " + functor + "::compute(p, row, at, lanes));\n    }\n";
  }
  return source + "struct Epilogue {\n  static constexpr int kLanes = 1, kWidth = " + std::to_string(most) +
         ";\n  using Computed = Frag<float, kWidth>;\n"
         "  DEV static Computed compute(const Params&, int, int, const Frag<float, kWidth> (&acc)[1]) { return acc[0]; "
         "}\n"
         "  DEV static void store(const Params& p, int row, int col, const Computed& acc) {\n"
         "    const int lane = col / " +
         params.divisor("lane", domain.cols()) + ";\n" + store + "  }\n};\n";
}

std::string AnchorKernel::scaled_source(std::span<const Expr> factors, Params& params, std::string& headers) const {
  const Shape& shape = form_.anchor.shape();
  Expr value = input(*form_.graph, acc_name(0), DType::F32, shape);
  for (const Expr& f : factors) value = value * f;
  return element_source("Factors", value, std::max(shape.rank() - 1, 0), params, headers, 8, 1);
}

std::vector<ProgramOutput> AnchorKernel::results_of_sums(const RowFactor* factor) const {
  std::vector<ProgramOutput> outputs = results();
  if (!factor && !added_) return outputs;
  Graph& g = *form_.graph;
  Memo finished;
  for (ProgramOutput& o : outputs) {
    for (const Expr& e : topological(std::array{o.value})) {
      const int lane = acc_lane(e);
      if (lane < 0 || finished.contains(e.get())) continue;
      const int64_t columns = e.shape().cols();
      Expr value = e;
      if (factor) value = value * factor_of(*factor, input(g, acc_name(form_.lanes), DType::F32, e.shape()));
      if (added_) value = value + broadcast(slice(added_, 0, lane * columns, (lane + 1) * columns), e.shape());
      finished[e.get()] = value;
    }
    o.value = rebuild(g, o.value, finished);
  }
  return outputs;
}

std::string AnchorKernel::epilogue_source(Params& params, std::string& headers, int most, bool loads_apart,
                                          const RowFactor* factor) {
  if (apart_) return lanes_source(params, headers, most);
  const MatrixDomain domain{form_.domain, std::max(form_.domain.rank() - 1, 0)};
  std::vector<ProgramOutput> outputs = results_of_sums(factor);
  const Counted* counted = counted_in_core();
  if (counted) outputs.push_back({counted->value, {}, DType::F32});
  ProgramSource program(outputs, domain, params, most);
  if (loads_apart) program.load_apart();
  const std::string lanes = std::to_string(form_.lanes),
                    source = program.functor("Results", form_.lanes + (factor ? 1 : 0));
  headers += program.includes();
  std::string count;
  if (counted)
    count = std::string("  static constexpr bool kCounts = true, kWhole = ") + (counted->whole ? "true" : "false") +
            ";\n" + statistics_source("store_statistics", counted->wanted, params, headers);
  return source + "struct Epilogue : Results {\n  static constexpr int kLanes = " + lanes + ";\n" + count + "};\n";
}

}  // namespace tenon::cuda
