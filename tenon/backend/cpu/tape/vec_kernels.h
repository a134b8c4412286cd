// Pointwise functions, conversions and reductions over vectors V of kLanes floats, written once for all instruction
// sets. Included only by the files of one instruction set, after their definitions of V, kLanes and the f16
// conversions. All names have internal linkage, and nodes' `eval` is instantiated for V, which no other file uses: code
// compiled for one instruction set cannot be linked into code for another.
#pragma once
#include "tenon/backend/cpu/tape/vec_convert.h"
#include "tenon/expr/ops.h"

namespace tenon::cpu {
namespace {

// ---- pointwise ----

// Without row-uniform operands, contiguous rows are treated as one long row.
template <int kOperands>
inline PointwiseArgs flattened(const PointwiseArgs& a, unsigned mask) {
  bool flat = mask == 0 && a.cols % 16 == 0 && a.dst_ld == a.cols;
  for (int i = 0; i < kOperands; ++i) flat = flat && a.src_ld[i] == a.cols;
  PointwiseArgs out = a;
  if (flat) {
    out.cols = a.rows * a.cols;
    out.rows = 1;
  }
  return out;
}

// Stores eval(x) for every vector of n operands. Bits of kMask mark row-uniform operands.
template <int n, unsigned kMask, class Eval>
[[gnu::always_inline]] inline void over_vectors(const PointwiseArgs& a, const Eval& eval) {
  for (int64_t r = 0; r < a.rows; ++r) {
    V x[n];
    const float* src[n];
    for (int i = 0; i < n; ++i) {
      src[i] = a.src[i] + r * a.src_ld[i];
      if (kMask >> i & 1) x[i] = splat(*src[i]);
    }
    float* dst = a.dst + r * a.dst_ld;
    for (int64_t c = 0; c < a.cols; c += kLanes) {
#pragma GCC unroll 4
      for (int i = 0; i < n; ++i)
        if (!(kMask >> i & 1)) x[i] = load_v(src[i] + c);
      store_v(dst + c, eval(x));
    }
  }
}

template <class T, unsigned kMask>
void pointwise(const PointwiseArgs& args) {
  constexpr int n = T::kArity;
  const PointwiseArgs a = flattened<n>(args, kMask);
  over_vectors<n, kMask>(a, [&a](const V(&x)[n]) { return tenon::detail::call_eval<T, V>(x, a.params); });
}

struct Functions {
  PointwiseFn by_mask[1 << kMaxOperands] = {};
};

template <class T>
constexpr Functions functions_of() {
  Functions b;
  if constexpr (T::family == Family::Pointwise) {
    static_assert(T::kArity <= kMaxOperands, "raise kMaxOperands");
    [&]<size_t... M>(std::index_sequence<M...>) { ((b.by_mask[M] = &pointwise<T, M>), ...); }
    (std::make_index_sequence<(1u << T::kArity)>{});
  }
  return b;
}

// x in a register, rounded as it would be in memory: prevents contraction with the operation that produced it.
inline V rounded(V x) {
  asm("" : "+v"(x));
  return x;
}

struct Nothing {
  template <class X>
  static X eval(X x) {
    return x;
  }
};

template <class After, bool kSubtracts, bool kLeft, bool kRight, unsigned kMask>
void products(const PointwiseArgs& a) {
  constexpr int n = 2 + kLeft + kRight, second = 1 + kLeft;
  over_vectors<n, kMask>(a, [](const V(&x)[n]) {
    const V left = kLeft ? rounded(x[0] * x[1]) : x[0], right = kRight ? rounded(x[second] * x[n - 1]) : x[second];
    return After::template eval<V>(kSubtracts ? left - right : left + right);
  });
}

template <class After, bool kSubtracts, bool kLeft, bool kRight>
constexpr Functions product_functions() {
  Functions b;
  [&]<size_t... M>(std::index_sequence<M...>) {
    ((b.by_mask[M] = &products<After, kSubtracts, kLeft, kRight, M>), ...);
  }
  (std::make_index_sequence<(1u << (2 + kLeft + kRight))>{});
  return b;
}

template <class After>
const PointwiseFn* products_before(const ProductSum& sum) {
  static constexpr Functions all[2][3] = {
      {product_functions<After, false, false, true>(), product_functions<After, false, true, false>(),
       product_functions<After, false, true, true>()},
      {product_functions<After, true, false, true>(), product_functions<After, true, true, false>(),
       product_functions<After, true, true, true>()}};
  return all[sum.subtracts][sum.left_product + sum.left_product * sum.right_product].by_mask;
}

const PointwiseFn* products_of(const ProductSum& sum) {
  if (sum.after < 0) return products_before<Nothing>(sum);
  const PointwiseFn* found = nullptr;
  const auto try_node = [&]<class T>(TypeList<T>) {
    if (node_types()[static_cast<size_t>(sum.after)] == &node_type<T>()) found = products_before<T>(sum);
  };
  try_node(TypeList<nodes::Sign>{});
  try_node(TypeList<nodes::Neg>{});
  try_node(TypeList<nodes::Abs>{});
  try_node(TypeList<nodes::Relu>{});
  return found;
}

constexpr auto kFunctions = []<class... T>(TypeList<T...>) {
  return std::array<Functions, sizeof...(T)>{functions_of<T>()...};
}(AllNodes{});

const PointwiseFn* pointwise_functions(int node) { return kFunctions[static_cast<size_t>(node)].by_mask; }

void expand_rows(const PointwiseArgs& a) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const V x = splat(a.src[0][r * a.src_ld[0]]);
    for (int64_t c = 0; c < a.cols; c += kLanes) store_v(a.dst + r * a.dst_ld + c, x);
  }
}

template <class C>
void round_rows(const PointwiseArgs& args) {
  const PointwiseArgs a = flattened<1>(args, 0);
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t c = 0; c < a.cols; c += kLanes)
      store_v(a.dst + r * a.dst_ld + c, C::widen(C::narrow(load_v(a.src[0] + r * a.src_ld[0] + c))));
}

template <DType kType>
void round_scalars(const PointwiseArgs& a) {
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t c = 0; c < a.cols; ++c)
      a.dst[r * a.dst_ld + c] = static_cast<float>(round_to(kType, static_cast<double>(a.src[0][r * a.src_ld[0] + c])));
}

PointwiseFn round_of(DType t) {
  switch (t) {
    case DType::F32:
    case DType::F64:
      return &round_rows<AsF32>;
    case DType::BF16:
      return &round_rows<AsBf16>;
    case DType::F16:
      return &round_rows<AsF16>;
    case DType::E4M3:
      return &round_rows<AsE4m3>;
    case DType::I64:
      return &round_scalars<DType::I64>;
    case DType::I32:
      return &round_scalars<DType::I32>;
    case DType::I16:
      return &round_scalars<DType::I16>;
    case DType::I8:
      return &round_scalars<DType::I8>;
    case DType::U8:
      return &round_scalars<DType::U8>;
    case DType::Bool:
      return &round_scalars<DType::Bool>;
  }
  return nullptr;
}

// ---- reductions over a row ----

constexpr int kChains = 64 / kLanes;  // 64 partial results, whatever the vector width
constexpr int64_t kReduceBlock = 4096;

template <class T, class X>
inline X combine(X a, X b) {
  if constexpr (requires { T::template combine<X>(a, b); })
    return T::template combine<X>(a, b);
  else
    return T::template step<X>(a, b);
}

// The partial result of up to kReduceBlock columns.
template <class T>
inline float reduce_block(const float* x, int64_t n) {
  V acc[kChains];
  for (V& a : acc) a = splat(static_cast<float>(T::init));
  int64_t c = 0;
  for (; c + kChains * kLanes <= n; c += kChains * kLanes)
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) acc[i] = T::template step<V>(acc[i], load_v(x + c + i * kLanes));
  for (int i = 0; c < n; ++i, c += kLanes) {
    const V next = T::template step<V>(acc[i], first_lanes(x + c, n - c));
    acc[i] = n - c >= kLanes ? next : keep_first(next, acc[i], n - c);
  }
  for (int width = kChains / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) acc[i] = combine<T, V>(acc[i], acc[i + width]);
  float lanes[kLanes];
  store_v(lanes, acc[0]);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] = combine<T, float>(lanes[i], lanes[i + width]);
  return lanes[0];
}

template <class T>
void reduce_rows(const ReduceArgs& a) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* x = a.x + r * a.ld;
    float total = reduce_block<T>(x, a.cols < kReduceBlock ? a.cols : kReduceBlock);
    for (int64_t c = kReduceBlock; c < a.cols; c += kReduceBlock)
      total = combine<T, float>(total, reduce_block<T>(x + c, a.cols - c < kReduceBlock ? a.cols - c : kReduceBlock));
    a.out[r] = T::template finish<float>(total, static_cast<float>(a.cols));
  }
}

template <class T>
constexpr ReduceFn reduction_of() {
  if constexpr (requires { T::init; })
    return &reduce_rows<T>;
  else
    return nullptr;
}

constexpr auto kReductions = []<class... T>(TypeList<T...>) {
  return std::array<ReduceFn, sizeof...(T)>{reduction_of<T>()...};
}(AllNodes{});

ReduceFn reduction(int node) { return kReductions[static_cast<size_t>(node)]; }

// ---- moments of columns ----

// Deviations are taken from the median of three rows: from an outlier, all others' deviations would be large. From 0 if
// that is infinite: an infinity's deviation from it would be NaN.
inline V median(V a, V b, V c) {
  const V m = hd::max<V>(hd::min<V>(a, b), hd::min<V>(hd::max<V>(a, b), c));
  return hd::select<V>(hd::abs<V>(m) < splat(INFINITY), m, splat(0));
}

// Sums eight rows at a time in f32, so that a large square costs only those few rows their last bits.
template <int kVectors>
inline void strip_moments(const float* x, int64_t ld, int64_t rows, const float* from, double* sum, double* squares) {
  constexpr int kColumns = kVectors * kLanes, kTogether = 8;
  V about[kVectors];
  double of_rows[kColumns] = {}, of_squares[kColumns] = {};
  for (int i = 0; i < kVectors; ++i) {
    const float* at = x + i * kLanes;
    about[i] = median(load_v(at), load_v(at + rows / 2 * ld), load_v(at + (rows - 1) * ld));
  }
  for (int64_t first = 0; first < rows; first += kTogether) {
    V s[kVectors] = {}, q[kVectors] = {};
    for (int64_t r = first; r < std::min(rows, first + kTogether); ++r)
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        const V d = load_v(x + r * ld + i * kLanes) - about[i];
        s[i] += d;
        q[i] += d * d;
      }
    float sums[kColumns], squared[kColumns];
    for (int i = 0; i < kVectors; ++i) {
      store_v(sums + i * kLanes, s[i]);
      store_v(squared + i * kLanes, q[i]);
    }
    for (int c = 0; c < kColumns; ++c) {
      of_rows[c] += static_cast<double>(sums[c]);
      of_squares[c] += static_cast<double>(squared[c]);
    }
  }
  float reference[kColumns];
  for (int i = 0; i < kVectors; ++i) store_v(reference + i * kLanes, about[i]);
  const double count = static_cast<double>(rows);
  for (int c = 0; c < kColumns; ++c) {
    const double apart = static_cast<double>(reference[c]) - static_cast<double>(from[c]);
    sum[c] += of_rows[c] + count * apart;
    squares[c] += of_squares[c] + apart * (2 * of_rows[c] + count * apart);
  }
}

void column_moments(const float* x, int64_t ld, int64_t rows, int64_t cols, const float* from, double* sum,
                    double* squares) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= cols; c += 4 * kLanes) strip_moments<4>(x + c, ld, rows, from + c, sum + c, squares + c);
  for (; c < cols; c += kLanes) strip_moments<1>(x + c, ld, rows, from + c, sum + c, squares + c);
}

constexpr VecOps make_table(const char* name) {
  return {name,      &pointwise_functions, &products_of, &round_of,      &load_of,
          &store_of, &reduction,           &expand_rows, &column_moments};
}

}  // namespace
}  // namespace tenon::cpu
