// Attention of few queries per head of keys, over a cache. It computes its queries, unless they reduce rows (a norm),
// and the cache rows that the launch itself adds.
#include "tenon/backend/cuda/attention/attention_kernel.h"

namespace tenon::cuda {
namespace {

// "struct Fresh { .. };": the cache rows that the launch computes itself.
std::string fresh_source(const AttentionKernel& kernel, Params& params, std::string& headers) {
  const Form& form = kernel.form();
  if (form.updates.empty()) return "using Fresh = NoFresh;\n";
  const auto functor = [&](const char* called, const Expr& value, int split, int most) {
    return kernel.element_source(called, value, split, params, headers, most);
  };
  const FormOutput &keys = update_of(form, 1), &values = update_of(form, 2);
  const Expr& index = keys.place->in[1];
  const std::string count = params.integer("fresh", index.shape().numel());
  return functor("FreshKey", keys.value, keys.value.shape().rank() - 1, 4) +
         functor("FreshValue", values.value, values.value.shape().rank() - 1, 8) + functor("FreshPlace", index, 0, 1) +
         "struct Fresh {\n  static constexpr bool kGiven = true;\n  using Key = FreshKey;\n  using Value = "
         "FreshValue;\n  DEV static int count(const Params& p) { return " +
         count +
         "; }\n  DEV static int place(const Params& p, int j) { return static_cast<int>(FreshPlace::eval(p, 0, "
         "j).v[0]); }\n};\n";
}

class GroupedCore : public AttentionCore {
 public:
  std::string_view name() const override { return "grouped"; }
  std::string_view asked_as() const override { return "skinny"; }
  int preference() const override { return 0; }

  std::optional<AttentionChoice> take(const AttentionKernel& kernel) const override {
    if (kernel.grouped().depth == 0) return std::nullopt;
    const AttentionGroupedShape tile = tile_of(kernel);
    return AttentionChoice{.tile = tile.type(), .needs = attention_needs(tile, kernel.sizes())};
  }
  TunedCall call(AttentionKernel& kernel, const AttentionChoice& choice) const override {
    KernelParts source;
    Params params = kernel.begin(choice);
    source.functors = kernel.element_source("Q", kernel.queries(), 3, params, source.headers, 4);
    for (size_t i = 1; i < 3; ++i) source.functors += kernel.rows_source(i, params, source.headers);
    const std::string epilogue = kernel.epilogue_source(params, source.headers, 8),
                      fresh = fresh_source(kernel, params, source.headers), sums = kernel.lse_source(params);
    source.functors +=
        kernel.count_source(params, source.headers) + sums + fresh + epilogue + "using Tile = " + choice.tile + ";\n";
    const std::string core = tile_of(kernel).chunks() ? "attention_chunks" : "attention_grouped";
    source.headers = "#include \"tenon/backend/cuda/device/attention/" + core + ".h\"\n" + source.headers;
    source.kernel = "KERNEL(Tile::kThreads, Tile::kResident, Params, p) { " + core +
                    "<Tile, Q, K, V, Epilogue, Keys, Lse, Fresh>(p); }\n";
    return kernel.finish(choice, std::move(source), params);
  }

 private:
  static AttentionGroupedShape tile_of(const AttentionKernel& kernel) {
    return over_keys(kernel.grouped(), kernel.sizes(), kernel.device().facts(),
                     kernel.even_keys(AttentionGroupedShape::kChunk));
  }
};

const RegisterAttentionCore<GroupedCore> kRegisteredGrouped;

}  // namespace
}  // namespace tenon::cuda
