// The attention skeleton's kernel as its cores see it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tenon/backend/cuda/attention/attention_core.h"
#include "tenon/backend/cuda/attention/attention_route.h"
#include "tenon/backend/cuda/attention/paged_heads.h"
#include "tenon/backend/cuda/launches/anchor_kernel.h"
#include "tenon/backend/cuda/libraries/dnn_choice.h"

namespace tenon::cuda {

/// Reads q, k and v in place where their heads lie in memory; a core or a library computes.
class AttentionKernel : public AnchorKernel {
 public:
  AttentionKernel(std::shared_ptr<Device> device, const Launch& launch, Form form);

  using AnchorKernel::device;
  using AnchorKernel::element_source;
  using AnchorKernel::epilogue_source;
  using AnchorKernel::name;
  using AnchorKernel::tensor_cores;
  const Form& form() const { return form_; }
  const device::AttentionSizes& sizes() const { return sizes_; }
  /// Sizes with the batch for which tiles and splits are chosen.
  device::AttentionSizes sizes_to_choose_for() const;
  /// The tile of the core for few queries per head of keys, which computes its queries itself unless they reduce rows:
  /// these are stored first. Depth 0 if it does not take the launch, whose queries are then in memory.
  const AttentionGroupedShape& grouped() const { return grouped_; }
  /// As the core reads them: in memory, or what grouped() computes.
  const Expr& queries() const { return operands_[0]; }
  int multiprocessors() const { return device().facts().multiprocessors; }
  /// True if TMA loads the operands in boxes.
  bool has_boxes() const { return !boxes_.empty(); }
  /// True if the number of keys is read from memory.
  bool counted() const { return form_.holes.size() > 3; }
  /// True if all keys are visible and contiguous (not paged), and no log-sum-exps are wanted.
  bool plain() const { return !counted() && !lse_ && !paged_; }
  /// Tokens per page of paged keys, else 0.
  int64_t page() const { return paged_ ? pages_of(1).page : 0; }
  /// Whether, in every `chunk` keys, neighbours are equally far apart in memory, and likewise values.
  bool even_keys(int64_t chunk) const;

  /// The argument of a choice's kernel, so far its sizes. Fields are numbered in the order in which sources are
  /// requested.
  Params begin(const AttentionChoice& choice) const;
  /// "struct Q { .. }", K or V: operand `i`, read row by row.
  std::string rows_source(size_t i, Params& params, std::string& headers);
  /// "struct Keys { .. }": the number of keys.
  std::string count_source(Params& params, std::string& headers) const;
  /// "struct Lse { .. }": where each row's log-sum-exp is stored.
  std::string lse_source(Params& params) const;
  /// The kernel call of a source that is complete except for its name, or also for the core's template and its
  /// header: `arguments` are appended to the template's other arguments.
  TunedCall finish(const AttentionChoice& choice, KernelParts source, const Params& params) const;
  TunedCall finish(const AttentionChoice& choice, KernelParts source, const Params& params,
                   const std::string& arguments) const;
  /// The whole call of a core that reads row by row, or boxes: the template in device/attention/attention_<core>.h.
  TunedCall rows_call(const AttentionChoice& choice);
  TunedCall box_call(const AttentionChoice& choice);

 private:
  std::vector<HeadRows> find_boxes() const;
  PagedHeads pages_of(size_t i) const { return *paged_heads(operands_[i], 1); }
  void choose_library();
  int own_calls() const override { return operand_calls() + (form_.domain.numel() > 0 ? 1 : 0); }
  int kernels_beside() const override;
  void make_calls() override;

  device::AttentionSizes sizes_;
  AttentionGroupedShape grouped_;
  std::vector<HeadRows> boxes_;  // of q, k and v, or none
  std::vector<Expr> operands_;
  bool paged_ = false;  // keys and values lie in pages
  Expr lse_;            // where the second result is stored, if wanted
  AttentionChoice choice_;
  std::optional<AttentionRoute> route_;  // if a library could do the launch
  std::optional<DnnPlan> plan_;          // the library's plan, if it does
  int64_t workspace_at_ = 0;
};

}  // namespace tenon::cuda
