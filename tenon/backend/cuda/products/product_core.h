// Cores of products and convolutions: ways to multiply on this device, of ours or a library's. A core says what it
// can do for a product and with which tiles, and makes the kernel. It registers itself: its file is all there is to
// add.
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
#include "tenon/backend/cuda/products/core_launch.h"
#include "tenon/backend/cuda/products/core_names.h"

namespace tenon::cuda {

class ProductCore;
class ProductKernel;
struct TunedCall;

enum class ProductKind { Gemm, Conv2d };

struct ProductShape {
  ProductKind kind = ProductKind::Gemm;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int lanes = 1;
  int64_t element_bytes = 2;  ///< 4: f32, whose operands are computed where they are read
  /// Tiles of so many rows along m where the copy engine brings boxes of the operands; nothing where it cannot.
  std::function<int64_t(int rows)> boxed_tiles_m = {};
  bool counts = false;  ///< the epilogue counts what it stores, which takes registers
  /// Operands lie in memory as they are multiplied: no rows are computed in front, no image is seen at twice its size.
  bool in_memory = true;
  bool b_in_columns = false;  ///< B is [K][rows] in memory
  bool few_rows = false;      ///< few enough, of a type and an operand B that suit: takes_few_rows (operands.h)
  bool branches = false;      ///< a narrow product is added before the epilogue
  bool in_ranges = false;     ///< sums are wanted in the order of GemmSizes::range, where a core for many rows has it
  int64_t front = 0;          ///< bytes that rows computed in front of it take of a core's shared memory
  std::string key = {};       ///< equal for products that take equal time on equal cores: "gemm 8192x320x320 lanes 1"

  /// Where a library could do all of it: what its epilogue adds (NativeEpilogue::words), the problem in its terms, and
  /// the library or null, asked for only where it matters. Else empty.
  std::string epilogue = {};
  MatmulProblem matmul = {};
  std::function<MatmulLibrary*()> library = {};
  /// The key of what was measured with this epilogue.
  std::string epilogue_key() const { return key + " epilogue " + epilogue; }
};

struct TileChoice {
  const ProductCore* core = nullptr;
  std::any tile = {};  ///< of the core's own type
  int splits = 1;      ///< parts that K is cut into
  double time = 0;     ///< estimated, in units that choices of one product share

  template <class Tile>
  const Tile& as() const {
    return std::any_cast<const Tile&>(tile);
  }
  /// True if both run the same core, tile and splits, whatever was estimated.
  bool same_as(const TileChoice& other) const {
    return core == other.core && splits == other.splits && text() == other.text();
  }
  /// "wgmma 128x160 stages 5 resident 1 cluster 1 splits 1", "skinny groups 1 warps 8", "cublaslt 13.1.0
  /// 42-1500000000", and back; nothing for what is no choice.
  std::string text() const;
  static std::optional<TileChoice> parse(const std::string& text);
};

/// A core's tiles as statistics in its epilogue see them: rows of a tile, those of them that a warp adds up, and
/// whether a convolution's tiles are boxes of pixels. No rows: it cannot count.
struct CountedRows {
  int tile = 0, warp = 0;
  bool boxes = false;
};

class ProductCore {
 public:
  virtual ~ProductCore() = default;
  /// The first word of its choices, and a value of TENON_CUDA_CORE.
  virtual std::string_view name() const = 0;
  /// Its choices worth a try with estimated times; none where it cannot do the product. Of a library: some, those it
  /// holds fastest first.
  virtual std::vector<TileChoice> choices(const ProductShape& product, const DeviceFacts& facts) const = 0;
  /// A choice of its own behind the core's name, and back; what comes back with another text is none.
  virtual std::string text(const TileChoice& choice) const = 0;
  virtual std::optional<TileChoice> parse(const std::string& text) const = 0;
  /// How a choice is launched: known before anything is compiled.
  virtual CoreLaunch launch(const ProductKernel& kernel, const TileChoice& choice) const = 0;
  /// The kernel of a choice.
  virtual TunedCall call(ProductKernel& kernel, const TileChoice& choice) const = 0;
  /// Whether and how its epilogue can count what it stores.
  virtual CountedRows counted_rows(const TileChoice&, int /*lanes*/) const { return {}; }
  /// True if it adds a narrow product before its epilogue.
  virtual bool adds_branch() const { return false; }
  /// True if products that the cores asked for cannot do may run on it.
  virtual bool stands_in() const { return false; }

  /// A library takes what was measured only, reads weights in plain order and works in memory of its own.
  virtual bool library() const { return false; }
  /// Of a library: true if this one can run a choice that was measured.
  virtual bool runs(const TileChoice&, const ProductShape&) const { return true; }
  /// Kernels of its call.
  virtual int kernels(const ProductKernel&, const TileChoice&) const { return 1; }
};

/// Adds a core to the registry for the life of the process: `const RegisterCore<MmaCore> kRegisteredMma;`
void register_core(const ProductCore* core);
template <class T>
struct RegisterCore {
  T core;
  RegisterCore() { register_core(&core); }
};
/// All of them, by name.
std::span<const ProductCore* const> product_cores();

/// "128x64 stages 4" for the pattern "#x# stages #", and back: false for any other text.
std::string tile_text(std::string_view pattern, std::initializer_list<int> numbers);
bool read_tile(std::string_view text, std::string_view pattern, std::initializer_list<int*> numbers);

}  // namespace tenon::cuda
