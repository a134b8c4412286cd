// cuBLASLt as a core for products whose epilogue the library supports.
#include "tenon/backend/cuda/products/product_kernel.h"

namespace tenon::cuda {
namespace {

class CublasLtCore : public ProductCore {
 public:
  std::string_view name() const override { return "cublaslt"; }
  bool library() const override { return true; }

  std::vector<TileChoice> choices(const ProductShape& p, const DeviceFacts&) const override {
    constexpr int kMost = 8;
    std::vector<TileChoice> out;
    if (MatmulLibrary* const library = p.library())
      for (const MatmulAlgorithm& a : library->likeliest(p.matmul, kMost)) out.push_back({.tile = a});
    return out;
  }
  bool runs(const TileChoice& choice, const ProductShape& p) const override {
    MatmulLibrary* const library = p.epilogue.empty() ? nullptr : p.library();
    return library && library->plan(p.matmul, choice.as<MatmulAlgorithm>());
  }
  std::string text(const TileChoice& choice) const override { return choice.as<MatmulAlgorithm>().text(); }
  std::optional<TileChoice> parse(const std::string& text) const override {
    const std::optional<MatmulAlgorithm> algorithm = MatmulAlgorithm::parse(text);
    return algorithm ? std::optional(TileChoice{.tile = *algorithm}) : std::nullopt;
  }

  CallNeeds needs(const ProductKernel& kernel, const TileChoice& choice) const override {
    return alone(kernel, choice).needs;
  }
  TunedCall call(ProductKernel& kernel, const TileChoice& choice) const override {
    return kernel.route()->call(kernel.device(), kernel.name(), choice.as<MatmulAlgorithm>(), kernel.fills_bias());
  }
  int kernels(const ProductKernel& kernel, const TileChoice& choice) const override {
    return alone(kernel, choice).call.library_kernels();
  }

 private:
  // Without the call that fills the bias.
  static TunedCall alone(const ProductKernel& kernel, const TileChoice& choice) {
    return kernel.route()->call(kernel.device(), kernel.name(), choice.as<MatmulAlgorithm>(), false);
  }
};

const RegisterCore<CublasLtCore> kRegisteredCublasLt;

}  // namespace
}  // namespace tenon::cuda
