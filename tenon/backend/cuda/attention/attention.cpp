// The attention skeleton: streaming softmax; q, k and v are read in place where their heads lie in memory.
#include <cstddef>

#include "tenon/backend/cuda/attention/attention_kernel.h"
#include "tenon/core/error.h"
#include "tenon/expr/ops.h"

namespace tenon::cuda {

AttentionKernel::AttentionKernel(std::shared_ptr<Device> device, const Launch& launch, Form form)
    : AnchorKernel(std::move(device), launch, std::move(form)) {
  constexpr int64_t kMaxDepth = 512;  // of the f32 kernel: the sums of two rows' columns in a thread's registers
  const Shape q = form_.holes[0].shape();
  TENON_CHECK(Usage, tensor_cores() || q[3] <= kMaxDepth, name())
      << "expected heads of at most " << kMaxDepth << " columns, got " << q[3];
  grouped_ = grouped_tile(form_, unit_);
  TENON_CHECK(Usage, form_.updates.empty() || writes_rows(form_, unit_), name())
      << "writes a state that it reads, which takes two launches here: the plan was made for another device";
  for (const FormOutput& o : form_.updates) read_beside(o.value);
  paged_ = reads_pages(form_, unit_);
  for (size_t i = 0; i < 3; ++i) {
    if (i == 0 ? grouped_.depth > 0 && !reduces_rows(form_.holes[0]) : paged_) {
      operands_.push_back(form_.holes[i]);
      read_beside(form_.holes[i]);
    } else {
      operands_.push_back(padded_operand(i));
    }
  }
  sizes_ = attention_sizes(form_);
  for (const FormOutput& o : form_.outputs)
    if (o.companion) lse_ = o.place;
  if (counted()) read_beside(form_.holes[3]);
  if (grouped_.depth == 0) boxes_ = find_boxes();
  choice_ = choose_attention(*this);
  // A library does not return the log-sum-exps and needs the number of keys beforehand.
  if (!lse_ && grouped_.depth == 0 && !counted()) choose_library();
  if (plan_)
    workspace_at_ = reserve_scratch(plan_->call->workspace_bytes());
  else
    reserve_split(choice_.needs);
  reserve_statistics();
}

std::vector<HeadRows> AttentionKernel::find_boxes() const {
  std::vector<HeadRows> out;
  if (!tensor_cores() || device().facts().arch != "sm_90a") return out;
  for (size_t i = 0; i < 3; ++i) {
    const auto rows = i > 0 && paged_ ? pages_of(i).rows : head_rows(operands_[i]);
    if (!rows) return {};
    out.push_back(*rows);
  }
  return out;
}

bool AttentionKernel::even_keys(int64_t chunk) const {
  if (paged_) return page() % chunk == 0;
  return head_rows(operands_[1]) && head_rows(operands_[2]);
}

device::AttentionSizes AttentionKernel::sizes_to_choose_for() const {
  device::AttentionSizes out = sizes_;
  out.batch = checked_int(device().facts().samples_to_choose_for(out.batch));
  return out;
}

// Uses a library's attention where that was measured to be faster.
void AttentionKernel::choose_library() {
  if (!tensor_cores()) return;
  route_ = AttentionRoute::of(form_, operands_, unit_);
  if (route_) plan_ = choose_dnn(device(), route_->key(), route_->problem);
}

int AttentionKernel::kernels_beside() const {
  if (!plan_ || form_.domain.numel() == 0) return 0;
  return dnn_call(device(), name(), *plan_, route_->operands).call.library_kernels() - 1;
}

void AttentionKernel::make_calls() {
  make_operands();
  if (form_.domain.numel() == 0) return;
  const auto own_call = [this] { return choice_.core->call(*this, choice_); };
  const auto library_call = [this](const DnnPlan& plan) { return dnn_call(device(), name(), plan, route_->operands); };
  if (route_ && tuning(device())) tune_dnn(device(), route_->key(), route_->problem, {}, own_call, library_call);
  if (plan_) return add(library_call(*plan_).call, {}, {{kLibraryWorkspace, workspace_at_}});
  TunedCall own = own_call();
  add_core(std::move(own.call), own.split_at);
}

Params AttentionKernel::begin(const AttentionChoice& choice) const {
  Params out;
  device::AttentionSizes sizes = sizes_;
  sizes.split.splits = choice.splits;
  out.set_sizes("AttentionSizes", sizes);
  return out;
}

std::string AttentionKernel::rows_source(size_t i, Params& params, std::string& headers) {
  const std::string called(1, "QKV"[i]);
  const Expr& operand = operands_[i];
  if (i == 0 || !paged_) return operand_source(called, operand, 3, params);
  const auto pages = operand.dtype() == unit_ ? paged_heads(operand, 1) : std::nullopt;
  if (pages) return paged_source(called, *pages, operand.shape(), params);
  return element_source(called, operand, 3, params, headers, 4);  // only the f32 core reads other pages
}

std::string AttentionKernel::count_source(Params& params, std::string& headers) const {
  return keys_source(counted() ? form_.holes[3] : Expr(), params, headers);
}

std::string AttentionKernel::lse_source(Params& params) const {
  if (!lse_) return "using Lse = NoLse;\n";
  return "struct Lse {\n  static constexpr bool kWanted = true;\n  DEV static void store(const Params& p, int row, "
         "float "
         "value) { " +
         params.pointer(lse_, true) + "[row] = value; }\n};\n";
}

TunedCall AttentionKernel::finish(const AttentionChoice& choice, KernelParts source, const Params& params) const {
  source.name = name() + (choice.tile.empty() ? "" : " " + choice.tile) +
                (choice.splits > 1 ? " x" + std::to_string(choice.splits) : "");
  return {KernelCall(device(), source, params, choice.needs.shape), choice.needs,
          offsetof(device::AttentionSizes, split)};
}

TunedCall AttentionKernel::finish(const AttentionChoice& choice, KernelParts source, const Params& params,
                                  const std::string& arguments) const {
  const std::string core = "attention_" + std::string(choice.core->name());
  source.headers = "#include \"tenon/backend/cuda/device/attention/" + core + ".h\"\n" + source.headers;
  source.kernel = "KERNEL(Tile::kThreads, " + std::to_string(choice.resident) + ", Params, p) { " + core +
                  "<Tile, Q, K, V, Epilogue" + arguments + ">(p); }\n";
  return finish(choice, std::move(source), params);
}

TunedCall AttentionKernel::rows_call(const AttentionChoice& choice) {
  KernelParts source;
  Params params = begin(choice);
  for (size_t i = 0; i < 3; ++i) source.functors += rows_source(i, params, source.headers);
  const std::string epilogue = epilogue_source(params, source.headers, tensor_cores() ? 8 : 4),
                    sums = lse_source(params);
  source.functors += count_source(params, source.headers) + sums + epilogue + "using Tile = " + choice.tile + ";\n";
  return finish(choice, std::move(source), params, ", Keys, Lse");
}

TunedCall AttentionKernel::box_call(const AttentionChoice& choice) {
  KernelParts source;
  Params params = begin(choice);
  for (size_t i = 0; i < 3; ++i) {
    // The whole pool counts as one batch entry.
    const auto pages = i > 0 && paged_ ? std::optional(pages_of(i)) : std::nullopt;
    const int batch = pages ? 1 : sizes_.batch, keys = pages ? checked_int(pages->pages * pages->page) : sizes_.keys;
    const auto box = [rows = boxes_[i], s = sizes_, queries = i == 0, box_keys = choice.box_keys, batch,
                      keys](void* address) {
      return head_box(static_cast<std::byte*>(address) + rows.offset * 2, rows.strides, batch,
                      queries ? s.heads : s.kv_heads, queries ? s.queries : keys, s.depth, queries ? 64 : box_keys);
    };
    source.functors += std::string("struct ") + "QKV"[i] + " {\n  using T = " + type_source(unit_) +
                       ";\n  DEV static const TensorMap& map(const Params& p) { return " +
                       params.map(boxes_[i].leaf, box) + "; }\n" + (pages ? page_source(*pages, params) : "") + "};\n";
  }
  source.functors += epilogue_source(params, source.headers, 8) + "using Tile = " + choice.tile + ";\n";
  const bool more = counted() || lse_;
  if (more) {
    const std::string sums = lse_source(params);
    source.functors += count_source(params, source.headers) + sums;
  }
  return finish(choice, std::move(source), params, more ? ", Keys, Lse" : "");
}

namespace {

const RegisterBody kRegisteredAttention("attention", &LaunchBodies::body<AttentionKernel>);

}  // namespace
}  // namespace tenon::cuda
