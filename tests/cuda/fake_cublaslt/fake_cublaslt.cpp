#include "tests/cuda/fake_cublaslt/fake_cublaslt.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "tenon/core/dtype.h"

// Numbers copied from NVIDIA's documentation, independently: an error in the engine's header fails here.
namespace {

constexpr int kSuccess = 0, kInvalidValue = 7, kNotSupported = 15;
constexpr int kFloat16 = 2, kBFloat16 = 14;

FakeCublasLtState state;

struct Descriptor {
  int transpose_a = 0, transpose_b = 0, bias_type = -1;
  unsigned epilogue = 1;
  const void* bias = nullptr;
};
struct Layout {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t stride = 0, batch_stride = 0;
  int batch = 1;
};
struct Preference {
  uint64_t workspace = 0;
  unsigned reductions = 7, alignment[4] = {256, 256, 256, 256};
};
struct Algorithm {
  uint64_t words[8];
};
struct Result {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

int once(int& failure) {
  const int code = failure;
  failure = 0;
  return code;
}

template <class T>
int take(T& field, const void* value, size_t size) {
  if (size != sizeof(T)) return kInvalidValue;
  std::memcpy(&field, value, size);
  return kSuccess;
}

// Algorithms: 66 with two configurations, the second of which uses 4096 bytes of workspace, and 67, which needs K to be
// a multiple of 64.
constexpr Algorithm kAlgorithms[] = {
    {{66 | uint64_t{21} << 32, 36, 1}}, {{66 | uint64_t{24} << 32, 36, 4}}, {{67, 0, 1}}};
std::optional<size_t> workspace_of(const Algorithm& a, uint64_t k) {
  for (size_t i = 0; i < 3; ++i)
    if (std::memcmp(&a, &kAlgorithms[i], sizeof a) == 0)
      return i == 2 && k % 64 ? std::nullopt : std::optional<size_t>(i == 1 ? 4096 : 0);
  return std::nullopt;
}

float element(const void* at, int64_t index, int type) {
  const uint16_t bits = static_cast<const uint16_t*>(at)[index];
  return type == kFloat16 ? tenon::f16_value(bits) : tenon::bf16_value(bits);
}
void put(void* at, int64_t index, int type, float value) {
  static_cast<uint16_t*>(at)[index] = type == kFloat16 ? tenon::f16_bits(value) : tenon::bf16_bits(value);
}

bool good(const Layout& l) {
  return (l.type == kFloat16 || l.type == kBFloat16) && l.stride >= static_cast<int64_t>(l.rows) && l.stride % 8 == 0;
}
// d [rows x columns] = op(a) [rows x k] op(b) [k x columns]; only a transposed and b plain are supported here.
bool fits(const Descriptor& d, const Layout& a, const Layout& b, const Layout& c, const Layout& out) {
  const bool types = a.type == b.type && b.type == c.type && c.type == out.type;
  const bool sizes = a.rows == b.rows && a.columns == out.rows && b.columns == out.columns && c.rows == out.rows &&
                     c.columns == out.columns;
  const bool batches = a.batch == b.batch && b.batch == c.batch && c.batch == out.batch;
  const bool bias = d.epilogue == 1 || (d.epilogue == 4 && d.bias_type == out.type);
  return types && sizes && batches && bias && d.transpose_a == 1 && d.transpose_b == 0 && good(a) && good(b) &&
         good(c) && good(out);
}
bool aligned(const void* p) { return p != nullptr && reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

extern "C" {

FakeCublasLtState* fake_cublaslt_state() { return &state; }

size_t cublasLtGetVersion() { return state.version; }
const char* cublasLtGetStatusName(int status) {
  return status == kNotSupported   ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == kInvalidValue ? "CUBLAS_STATUS_INVALID_VALUE"
                                   : "CUBLAS_STATUS_EXECUTION_FAILED";
}

int cublasLtCreate(void** handle) {
  if (const int failure = once(state.fail_create)) return failure;
  ++state.handles;
  return *handle = &state, kSuccess;
}
int cublasLtDestroy(void*) { return --state.handles, kSuccess; }

int cublasLtMatmulDescCreate(Descriptor** made, int compute, int scale) {
  if (compute != 68 || scale != 0) return kNotSupported;
  ++state.descriptors;
  return *made = new Descriptor, kSuccess;
}
int cublasLtMatmulDescDestroy(Descriptor* d) {
  delete d;
  return --state.descriptors, kSuccess;
}
int cublasLtMatmulDescSetAttribute(Descriptor* d, int what, const void* value, size_t size) {
  if (what == 3) return take(d->transpose_a, value, size);
  if (what == 4) return take(d->transpose_b, value, size);
  if (what == 7) return take(d->epilogue, value, size);
  if (what == 8) return take(d->bias, value, size);
  return what == 26 ? take(d->bias_type, value, size) : kInvalidValue;
}

int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  ++state.layouts;
  *made = new Layout{.type = type, .rows = rows, .columns = columns, .stride = stride};
  return kSuccess;
}
int cublasLtMatrixLayoutDestroy(Layout* l) {
  delete l;
  return --state.layouts, kSuccess;
}
int cublasLtMatrixLayoutSetAttribute(Layout* l, int what, const void* value, size_t size) {
  return what == 5 ? take(l->batch, value, size) : what == 6 ? take(l->batch_stride, value, size) : kInvalidValue;
}

int cublasLtMatmulPreferenceCreate(Preference** made) {
  ++state.preferences;
  return *made = new Preference, kSuccess;
}
int cublasLtMatmulPreferenceDestroy(Preference* p) {
  delete p;
  return --state.preferences, kSuccess;
}
int cublasLtMatmulPreferenceSetAttribute(Preference* p, int what, const void* value, size_t size) {
  if (what == 1) return take(p->workspace, value, size);
  if (what == 3) return take(p->reductions, value, size);
  return what >= 5 && what <= 8 ? take(p->alignment[what - 5], value, size) : kInvalidValue;
}

int cublasLtMatmulAlgoCheck(void*, Descriptor* d, Layout* a, Layout* b, Layout* c, Layout* out,
                            const Algorithm* algorithm, Result* result) {
  const std::optional<size_t> workspace = workspace_of(*algorithm, a->rows);
  if (!fits(*d, *a, *b, *c, *out)) return kInvalidValue;
  if (!workspace) return kNotSupported;
  result->workspace = *workspace;
  return kSuccess;
}
int cublasLtMatmulAlgoGetHeuristic(void* handle, Descriptor* d, Layout* a, Layout* b, Layout* c, Layout* out,
                                   Preference* p, int most, Result* results, int* found) {
  if (const int failure = once(state.fail_heuristic)) return failure;
  state.reductions_allowed = p->reductions;
  *found = 0;
  for (const Algorithm& algorithm : kAlgorithms) {
    Result r{};
    r.algorithm = algorithm;
    if (*found == most || cublasLtMatmulAlgoCheck(handle, d, a, b, c, out, &algorithm, &r) != kSuccess) continue;
    if (r.workspace <= p->workspace) results[(*found)++] = r;
  }
  return *found ? kSuccess : kNotSupported;
}
int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int what, void* value, size_t size,
                                         size_t* written) {
  const auto give = [&](auto number) {
    if (size != sizeof(number)) return kInvalidValue;
    std::memcpy(value, &number, size);
    return *written = size, kSuccess;
  };
  if (what == 0) return give(static_cast<int32_t>(algorithm->words[0]));
  if (what == 1) return give(static_cast<uint32_t>(algorithm->words[0] >> 32));
  if (what == 2) return give(static_cast<int32_t>(algorithm->words[2]));
  if (what == 6) return give(static_cast<uint32_t>(algorithm->words[1]));
  return what == 8 ? give(uint16_t{0}) : kInvalidValue;
}

int cublasLtMatmul(void*, Descriptor* d, const float* alpha, const void* a, Layout* la, const void* b, Layout* lb,
                   const float* beta, const void* c, Layout* lc, void* out, Layout* lo, const Algorithm* algorithm,
                   void* workspace, size_t workspace_bytes, void*) {
  if (const int failure = once(state.fail_multiply)) return failure;
  const std::optional<size_t> wanted = workspace_of(*algorithm, la->rows);
  const bool pointers =
      aligned(a) && aligned(b) && aligned(c) && aligned(out) && (d->epilogue == 1 || aligned(d->bias));
  if (!fits(*d, *la, *lb, *lc, *lo) || !wanted || *wanted > workspace_bytes || !pointers) return kInvalidValue;
  if (*wanted) std::memset(workspace, 0xff, *wanted);
  ++state.multiplications;
  state.epilogue = d->epilogue;
  state.alpha = *alpha;
  state.beta = *beta;
  state.batch = lo->batch;
  if (state.takes_us >= 0) return std::this_thread::sleep_for(std::chrono::microseconds(state.takes_us)), kSuccess;
  const int type = lo->type;
  for (int64_t matrix = 0; matrix < lo->batch; ++matrix)
    for (int64_t column = 0; column < static_cast<int64_t>(lo->columns); ++column)
      for (int64_t row = 0; row < static_cast<int64_t>(lo->rows); ++row) {
        double sum = 0;
        for (int64_t i = 0; i < static_cast<int64_t>(la->rows); ++i)
          sum += double{element(a, matrix * la->batch_stride + row * la->stride + i, type)} *
                 double{element(b, matrix * lb->batch_stride + column * lb->stride + i, type)};
        double value = double{*alpha} * sum;
        if (*beta != 0)
          value += double{*beta} * double{element(c, matrix * lc->batch_stride + column * lc->stride + row, type)};
        if (d->epilogue == 4) value += double{element(d->bias, row, type)};
        put(out, matrix * lo->batch_stride + column * lo->stride + row, type, static_cast<float>(value));
      }
  return kSuccess;
}

}  // extern "C"
