// Cores of products and convolutions: ways to multiply on this device, ours or a library's. A core reports what it can
// do for a product and with which tiles, and makes the kernel. It registers itself: adding one takes only its file.
#pragma once
#include <any>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/backend/cuda/libraries/matmul_library.h"
#include "tenon/backend/cuda/products/core_call.h"
#include "tenon/backend/cuda/products/core_names.h"

namespace tenon::cuda {

class ProductCore;
class ProductKernel;
struct TunedCall;

enum class ProductKind { Gemm, Conv2d };

struct ProductShape {
  ProductKind kind = ProductKind::Gemm;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int64_t taps = 1;  ///< of a convolution, k / taps channels each
  int lanes = 1;
  int64_t element_bytes = 2;
  /// Number of tiles along m, given a tile's rows, if TMA can load boxes of the operands; else empty.
  std::function<int64_t(int rows)> boxed_tiles_m = {};
  bool counts = false;  ///< the epilogue counts statistics, which takes registers
  /// Operands lie in memory as they are multiplied: no rows are computed before the product, no image is upsampled on
  /// read.
  bool in_memory = true;
  bool b_in_columns = false;  ///< B is stored transposed, [K][rows]
  bool few_rows = false;      ///< rows are few enough, and type and B are suitable: takes_few_rows (operands.h)
  bool branches = false;      ///< a narrow product is added before the epilogue
  bool behind_norm = false;   ///< rows of A are reduced beside the product, and factors of them applied to the sums
  bool in_ranges = false;     ///< sum in the order of GemmSizes::range, if a core for many rows supports it
  int64_t front = 0;          ///< shared memory taken by rows computed before the product
  bool factor = false;        ///< rows of A are reduced alongside the product, on the skinny core
  std::string key = {};       ///< equal for products that take equal time on the same core: "gemm 8192x320x320 lanes 1"

  std::string like = {};  ///< the key of a similar product, used while this one has not been measured; or empty

  /// If a library could do the whole product: what its epilogue adds (NativeEpilogue::words), the problem in its terms,
  /// and the library or null, looked up only when needed. Else empty.
  std::string epilogue = {};
  MatmulProblem matmul = {};
  std::function<MatmulLibrary*()> library = {};
  /// The key of measurements with this epilogue.
  std::string epilogue_key() const { return key + " epilogue " + epilogue; }
};

struct TileChoice {
  const ProductCore* core = nullptr;
  std::any tile = {};  ///< of the core's own type
  int splits = 1;      ///< parts into which K is split (split-K)
  double time = 0;     ///< estimate, in units comparable between choices of one product

  template <class Tile>
  const Tile& as() const {
    return std::any_cast<const Tile&>(tile);
  }
  /// True if both use the same core, tile and splits; estimates are ignored.
  bool same_as(const TileChoice& other) const {
    return core == other.core && splits == other.splits && text() == other.text();
  }
  /// "wgmma 128x160 stages 5 resident 1 cluster 1 splits 1", "skinny groups 1 warps 8", "cublaslt 13.1.0
  /// 42-1500000000", and back; empty for text that is not a choice.
  std::string text() const;
  static std::optional<TileChoice> parse(const std::string& text);
};

/// A core's tiles as statistics in its epilogue see them: rows per tile, rows that one warp adds up, and whether a
/// convolution's tiles are boxes of pixels. 0 rows: the core cannot count.
struct CountedRows {
  int tile = 0, warp = 0;
  bool boxes = false;
};

class ProductCore {
 public:
  virtual ~ProductCore() = default;
  /// The first word of its choices' text, and a value of TENON_CUDA_CORE.
  virtual std::string_view name() const = 0;
  /// Its choices worth trying, with estimated times; none if it cannot do the product. For a library: some choices,
  /// those that it ranks fastest first.
  virtual std::vector<TileChoice> choices(const ProductShape& product, const DeviceFacts& facts) const = 0;
  /// The text of its choice after the core's name, and back. A choice whose text differs after parsing is rejected.
  virtual std::string text(const TileChoice& choice) const = 0;
  virtual std::optional<TileChoice> parse(const std::string& text) const = 0;
  /// What the kernel call of a choice needs; known before anything is compiled.
  virtual CallNeeds needs(const ProductKernel& kernel, const TileChoice& choice) const = 0;
  /// The kernel of a choice.
  virtual TunedCall call(ProductKernel& kernel, const TileChoice& choice) const = 0;
  /// Whether and how its epilogue can count statistics of what it stores.
  virtual CountedRows counted_rows(const TileChoice&, int /*lanes*/) const { return {}; }
  /// True if it can add a narrow product (a branch) before its epilogue.
  virtual bool adds_branch() const { return false; }
  /// True if it can apply a norm of operand A to its sums (ProductShape::behind_norm).
  virtual bool applies_norm() const { return false; }
  /// True if it may run products that none of the selected cores can do.
  virtual bool stands_in() const { return false; }

  /// A library is used only where measured, reads weights in plain order and has its own workspace.
  virtual bool library() const { return false; }
  /// For a library: true if the installed one can run a measured choice.
  virtual bool runs(const TileChoice&, const ProductShape&) const { return true; }
  /// Kernels that its call starts.
  virtual int kernels(const ProductKernel&, const TileChoice&) const { return 1; }
};

/// Adds a core to the registry for the life of the process: `const RegisterCore<MmaCore> kRegisteredMma;`
void register_core(const ProductCore* core);
template <class T>
struct RegisterCore {
  T core;
  RegisterCore() { register_core(&core); }
};
/// All registered cores, sorted by name.
std::span<const ProductCore* const> product_cores();

/// "128x64 stages 4" for the pattern "#x# stages #", and back: false for any other text.
std::string tile_text(std::string_view pattern, std::initializer_list<int> numbers);
bool read_tile(std::string_view text, std::string_view pattern, std::initializer_list<int*> numbers);

}  // namespace tenon::cuda
