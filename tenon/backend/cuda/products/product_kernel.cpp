#include "tenon/backend/cuda/products/product_kernel.h"

#include <algorithm>
#include <cstddef>

#include "tenon/backend/cuda/products/skinny_tile.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {

void ProductKernel::choose(ProductShape product) {
  product_ = std::move(product);
  product_.lanes = lanes();
  product_.element_bytes = size_of(unit_);
  if (front_) product_.front = front_->rows.shape().numel() * size_of(unit_);
  product_.factor = factor_.has_value();
  product_.branches = branch_.has_value();
  product_.behind_norm = norm_.has_value();
  product_.in_memory = product_.in_memory && !computes_rows_in_front() && !a_in_columns_ && !b_in_columns_;
  product_.b_in_columns = b_in_columns_;
  product_.key += std::string(a_in_columns_ ? " columns of a" : "") + (b_in_columns_ ? " columns of b" : "");
  product_.counts = counts_statistics(form_);
  product_.key += " lanes " + std::to_string(lanes()) + " bytes " + std::to_string(size_of(unit_));
  if (norm_) {
    product_.like = product_.key;
    product_.key += " behind norm";
  }
  if (route_) {
    product_.epilogue = route_->epilogue();
    product_.matmul = route_->problem();
    product_.library = [this] { return this->device().matmul_library(); };
  }
  choice_ = choose_tile(product_, device().facts());
  const bool layers = choose_layers(), library = layers || choice_.core->library();
  if (own_.leaf && (!library || tunes())) ask_packed(own_.leaf, {own_.write});
  if (own_.leaf && library) ask_packed(in_order_.leaf, {in_order_.write});
  if (layers) return;
  library ? reserve_library() : reserve_split(choice_.core->needs(*this, choice_));
}

Expr ProductKernel::weight_operand(const Shape& stored, const Layout& layout) {
  const Expr& hole = form_.holes[1];
  if (!tensor_cores() || !of_weights_only(hole)) return in_order_.leaf = operand(1, stored, layout);
  const Expr value = norm_ ? centred_weights(*norm_, hole) : without_rounding(hole, unit_);
  in_order_.leaf = input(*form_.graph, "%hole.1.in_order", unit_, stored);
  in_order_.write = {value, layout(in_order_.leaf)};
  permuted_ = lanes() == 1 || stored[0] % (32 * lanes()) == 0;
  if (permuted_) {
    const auto [leaf, place] = stored_permuted(*form_.graph, "%hole.1", unit_, stored);
    own_ = {leaf, {value, layout(place)}};
  } else {
    own_.leaf = input(*form_.graph, "%hole.1", unit_, stored);
    own_.write = {value, layout(own_.leaf)};
  }
  return own_.leaf;
}

Expr ProductKernel::column_operand(const Expr& weights) {
  const auto [leaf, place] = stored_permuted(*form_.graph, "%hole.1", unit_, weights.shape());
  own_ = {leaf, {weights, place}};
  permuted_ = b_in_columns_ = true;
  return transpose(own_.leaf);
}

Expr ProductKernel::front_operand(size_t i) {
  const Expr& hole = form_.holes[i];
  factor_ = row_factor(hole, unit_);
  if (factor_ &&
      (lanes() < form_.lanes || lanes() == kMaxFormLanes || !read_in_place(factor_->rows, unit_, device().facts())))
    factor_.reset();
  if (factor_) {
    read_beside(factor_->rows);
    return factor_->rows;
  }
  Shape rows = hole.shape();
  const int64_t columns = rows[-1];
  rows[-1] += SkinnyTileShape::kFrontPadding;
  const Expr there = input(*form_.graph, "%hole." + std::to_string(i), unit_, rows);
  front_ = {without_rounding(hole, unit_), slice(there, -1, 0, columns), there};
  read_beside(hole);
  return front_->leaf;
}

Expr ProductKernel::behind_norm(const CentredNorm& norm) {
  norm_ = norm;
  read_beside(norm_->factor.rows);
  const Expr &weights = form_.holes[1], sums = sums_of_weights(*norm_, weights, unit_);
  weight_sums_ = input(*form_.graph, "%weight_sums", DType::F32, sums.shape());
  ask_packed(weight_sums_, {{sums, weight_sums_}});
  if (const Expr shift = shift_of_weights(*norm_, weights)) add_columns(shift);
  return norm_->factor.rows;
}

std::string ProductKernel::norm_source(Params& params, std::string& headers) const {
  const auto functor = [&](const char* called, const Expr& value, int given, int most) {
    return element_source(called, value, value.shape().rank() - 1, params, headers, most, given);
  };
  const Shape one{1, 1}, all = form_.anchor.shape();
  const auto given = [&](int i, const Shape& shape) { return input(*form_.graph, acc_name(i), DType::F32, shape); };
  const Expr sums = broadcast(reshape(weight_sums_, {all.cols()}), all);
  headers += "#include \"tenon/backend/cuda/device/products/wgmma_norms.h\"\n";
  return functor("Elements", norm_->factor.rows, 0, 8) +
         functor("Factor", factor_of(norm_->factor, given(0, one)), 1, 1) +
         functor("Centred", given(0, all) - given(1, all) * sums, 2, 8) +
         "using Norm = CentredRows<Factor, Centred, Elements>;\n";
}

std::string ProductKernel::by_x(std::initializer_list<int> numbers) {
  std::string out;
  for (int n : numbers) out += (out.empty() ? "" : "x") + std::to_string(n);
  return out;
}

void ProductKernel::make_calls() {
  make_operands();
  if (form_.domain.numel() == 0) return;
  if (tunes()) measure();
  if (add_layers()) return;
  TunedCall made = call_of(choice_);
  for (KernelCall& before : made.before) add(std::move(before));
  if (choice_.core->library()) return add(std::move(made.call), {}, {{kLibraryWorkspace, library_workspace_at_}});
  std::vector<std::pair<size_t, int64_t>> scratch;
  if (const Counted* c = counted_in_core()) {
    scratch.emplace_back(made.count_at + offsetof(device::CountSizes, partials), c->partials_at);
    scratch.emplace_back(made.count_at + offsetof(device::CountSizes, rows), c->rows_at);
  }
  add_core(std::move(made.call), made.split_at, std::move(scratch));
}

int ProductKernel::own_calls() const {
  if (form_.domain.numel() == 0) return operand_calls();
  if (const int layers = layer_calls()) return operand_calls() + layers;
  return operand_calls() + (choice_.core->library() && fills_bias() ? 2 : 1);
}

int ProductKernel::kernels_beside() const {
  if (form_.domain.numel() == 0) return 0;
  return layer_calls() ? layer_kernels_beside() : choice_.core->kernels(*this, choice_) - 1;
}

void ProductKernel::measure() {
  count_in_core(false);
  tune_tiles(device(), product_, {b_, in_order()}, [this](const TileChoice& c) { return call_of(c); });
  measure_layers([this] { return call_of(choose_tile(product_, device().facts())); });
  count_in_core(true);
}

bool ProductKernel::fills_bias() const {
  const Expr& bias = route_->bias().value;
  return bias && !of_weights_only(bias);
}

// Reserves the library's workspace, and its bias if that is not the launch's own.
void ProductKernel::reserve_library() {
  library_workspace_at_ = reserve_scratch(choice_.core->needs(*this, choice_).workspace_bytes);
  const MatmulRoute::Bias& bias = route_->bias();
  if (!bias.value) return;
  if (of_weights_only(bias.value))
    ask_packed(bias.leaf, {{bias.value, bias.leaf}});
  else
    place_in_scratch(bias.leaf);
}

ProductSizes ProductKernel::sizes(const TileChoice& choice, int box_rows) const {
  ProductSizes out = plain_sizes(box_rows);
  const auto complete = [&](auto& s) {
    s.split.splits = choice.splits;
    if (counted_in_core()) s.count = counted_in_core()->sizes;
  };
  std::visit(complete, out);
  return out;
}

Params ProductKernel::begin(const ProductSizes& sizes) const {
  Params out;
  const char* const type = product_.kind == ProductKind::Gemm ? "GemmSizes" : "ConvSizes";
  std::visit([&](const auto& s) { out.set_sizes(type, s); }, sizes);
  return out;
}

std::string ProductKernel::b_source() const {
  return std::string("struct B : Rows { static constexpr bool kPermuted = ") + (permuted_ ? "true" : "false") +
         ", kConstant = " + (stays(b_) ? "true" : "false") + "; };\n";
}

std::string ProductKernel::rows_source(Params& params, std::string& headers) const {
  const std::string b = operand_source("Rows", b_, b_split(), params) + b_source();
  if (computes_pixels_) return pixels_source(a_, params, headers) + b;
  return operand_source("A", a_, a_.shape().rank() - 1, params) + b;
}

TunedCall ProductKernel::finish(KernelParts source, const Params& params, CallNeeds needs) const {
  source.name = name() + source.name;
  const bool gemm = product_.kind == ProductKind::Gemm;
  return {KernelCall(device(), source, params, needs.shape), needs,
          gemm ? offsetof(device::GemmSizes, split) : offsetof(device::ConvSizes, split),
          gemm ? offsetof(device::GemmSizes, count) : offsetof(device::ConvSizes, count)};
}

TunedCall ProductKernel::tile_call(const TileChoice& choice, KernelParts source, const std::string& tile, int resident,
                                   const Params& params, const std::string& arguments, std::string_view core) const {
  const std::string kernel = kind_name() + "_" + std::string(core.empty() ? choice.core->name() : core);
  source.name =
      " " + std::string(name_of(unit_)) + " " + tile + (choice.splits > 1 ? " x" + std::to_string(choice.splits) : "");
  const std::string room = product_.kind == ProductKind::Gemm ? "products/" : "convolutions/";
  source.headers = "#include \"tenon/backend/cuda/device/" + room + kernel + ".h\"\n" + source.headers;
  source.functors += "using Tile = " + tile + ";\n";
  source.kernel = "KERNEL(Tile::kThreads, " + std::to_string(resident) + ", Params, p) { " + kernel +
                  "<Tile, A, B, Epilogue" + arguments + ">(p); }\n";
  return finish(std::move(source), params, choice.core->needs(*this, choice));
}

CountedRows ProductKernel::counted_rows() const {
  if (product_.batch != 1 || lanes() != form_.lanes) return {};
  return choice_.core->counted_rows(choice_, lanes());
}

CountTiles ProductKernel::tiles_of_rows(const Shape& seen) const {
  const CountedRows rows = counted_rows();
  if (rows.tile == 0) return {};
  if (device().facts().batch_invariant() && seen[1] % rows.tile) return {};  // samples would be split up differently
  return {slots_of_rows(seen[0], seen[1], rows.tile, rows.warp), rows.tile};
}

}  // namespace tenon::cuda
