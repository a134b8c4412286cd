#include "tenon/backend/cuda/libraries/cublaslt.h"

#include <algorithm>

#include "tenon/backend/cuda/libraries/cublaslt_api.h"
#include "tenon/core/error.h"

namespace tenon::cuda {
using namespace lt;

// The library's handle.
struct CublasLt::Session {
  Session(LoadedLibrary library, MakeCurrent make_current) : api(std::move(library)), current(std::move(make_current)) {
    const std::shared_ptr<void> scope = current();
    api.check(api.Create(&handle), "cannot start");
  }
  ~Session() {
    try {
      const std::shared_ptr<void> scope = current();
      api.Destroy(handle);
    } catch (const Error&) {  // the GPU is gone (fault or process exit), and the handle with it
    }
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Api api;
  MakeCurrent current;
  Handle handle = nullptr;
};

namespace {

template <class T>
using Owned = std::unique_ptr<T, Status (*)(T*)>;

Algorithm algorithm_of(const MatmulAlgorithm& a) {
  Algorithm out;
  std::copy(a.words.begin(), a.words.end(), out.words);
  return out;
}

DataType data_type(DType t) { return t == DType::F16 ? kFloat16 : kBFloat16; }

// A problem in the library's terms.
class Description {
 public:
  Description(const Api& api, const MatmulProblem& p)
      : api_(api),
        descriptor_(make_descriptor(api)),
        a_(layout(data_type(p.type), p.k, p.m, p.a, p.batch)),
        b_(layout(data_type(p.type), p.k, p.n, p.b, p.batch)),
        c_(layout(data_type(p.type), p.n, p.m, p.beta == 0 ? p.d : p.c, p.batch)),
        d_(layout(data_type(p.type), p.n, p.m, p.d, p.batch)) {
    set(DescriptorAttribute::TransposeA, kTransposed);
    set(DescriptorAttribute::TransposeB, kAsItIs);
    set(DescriptorAttribute::Epilogue, static_cast<uint32_t>(p.bias ? kBias : kPlain));
    if (!p.bias) return;
    set(DescriptorAttribute::BiasType, static_cast<int32_t>(data_type(p.type)));
    set_bias(reinterpret_cast<const void*>(kAlignment));  // not read before a call: only tells its alignment
  }

  void set_bias(const void* address) { set(DescriptorAttribute::BiasPointer, address); }
  std::vector<Result> heuristics(Handle handle, int most) const {
    PreferenceTag* made = nullptr;
    api_.check(api_.MatmulPreferenceCreate(&made), "cannot set its preferences");
    const Owned<PreferenceTag> preference(made, api_.MatmulPreferenceDestroy);
    const auto prefer = [&](PreferenceAttribute what, auto value) {
      api_.check(api_.MatmulPreferenceSetAttribute(made, what, &value, sizeof(value)), "cannot set its preferences");
    };
    prefer(PreferenceAttribute::WorkspaceBytes, static_cast<uint64_t>(CublasLt::kMaxWorkspace));
    // Split-K sums must be combined in a fixed order, in f32: no in-place counters, no sums in the result's type.
    prefer(PreferenceAttribute::Reductions, static_cast<uint32_t>(kInComputeType));
    for (const PreferenceAttribute what : {PreferenceAttribute::AlignmentA, PreferenceAttribute::AlignmentB,
                                           PreferenceAttribute::AlignmentC, PreferenceAttribute::AlignmentD})
      prefer(what, static_cast<uint32_t>(kAlignment));
    std::vector<Result> results(static_cast<size_t>(most));
    int found = 0;
    const Status status = api_.MatmulAlgoGetHeuristic(handle, descriptor_.get(), b_.get(), a_.get(), c_.get(), d_.get(),
                                                      made, most, results.data(), &found);
    if (status == kNotSupported || status == kInvalidValue) return {};
    api_.check(status, "cannot choose an algorithm");
    results.resize(static_cast<size_t>(found));
    return results;
  }
  // The algorithm's requirements, or empty if it cannot do it.
  std::optional<Result> checked(Handle handle, const Algorithm& algorithm) const {
    Result result;
    const Status status =
        api_.MatmulAlgoCheck(handle, descriptor_.get(), b_.get(), a_.get(), c_.get(), d_.get(), &algorithm, &result);
    if (status != lt::kSuccess || result.workspace_bytes > static_cast<size_t>(CublasLt::kMaxWorkspace)) return {};
    return result;
  }
  // d = alpha a b + beta c
  struct Operands {
    float alpha;
    const void *a, *b;
    float beta;
    const void* c;
    void* d;
  };
  struct Workspace {
    void* start;
    size_t bytes;
  };
  Status multiply(Handle handle, const Operands& x, const Algorithm& algorithm, const Workspace& workspace,
                  void* stream) const {
    return api_.Matmul(handle, descriptor_.get(), &x.alpha, x.b, b_.get(), x.a, a_.get(), &x.beta, x.c, c_.get(), x.d,
                       d_.get(), &algorithm, workspace.start, workspace.bytes, stream);
  }

 private:
  static constexpr uintptr_t kAlignment = 16;  // bytes, of every address and stride

  static Owned<DescriptorTag> make_descriptor(const Api& api) {
    DescriptorTag* made = nullptr;
    api.check(api.MatmulDescCreate(&made, kComputeFloat32, kFloat32), "cannot describe a product");
    return {made, api.MatmulDescDestroy};
  }
  Owned<LayoutTag> layout(DataType type, int64_t rows, int64_t columns, const MatrixStrides& strides,
                          int64_t batch) const {
    LayoutTag* made = nullptr;
    api_.check(
        api_.MatrixLayoutCreate(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), strides.row),
        "cannot describe a matrix");
    Owned<LayoutTag> out(made, api_.MatrixLayoutDestroy);
    if (batch == 1) return out;
    const int32_t count = static_cast<int32_t>(batch);
    const auto set = [&](LayoutAttribute what, const void* value, size_t size) {
      api_.check(api_.MatrixLayoutSetAttribute(made, what, value, size), "cannot describe a batch of matrices");
    };
    set(LayoutAttribute::Batch, &count, sizeof(count));
    set(LayoutAttribute::BatchStride, &strides.batch, sizeof(strides.batch));
    return out;
  }
  template <class T>
  void set(DescriptorAttribute what, const T& value) {
    api_.check(api_.MatmulDescSetAttribute(descriptor_.get(), what, &value, sizeof(value)),
               "cannot describe a product");
  }

  const Api& api_;
  Owned<DescriptorTag> descriptor_;
  Owned<LayoutTag> a_, b_, c_, d_;
};

class CublasLtCall : public LibraryCall {
 public:
  CublasLtCall(std::shared_ptr<const CublasLt::Session> session, const MatmulProblem& problem,
               std::unique_ptr<Description> description, const Algorithm& algorithm, size_t workspace_bytes)
      : session_(std::move(session)),
        problem_(problem),
        description_(std::move(description)),
        algorithm_(algorithm),
        workspace_bytes_(workspace_bytes) {}

  int64_t workspace_bytes() const override { return static_cast<int64_t>(workspace_bytes_); }
  void enqueue(void* stream, std::span<void* const> addresses, void* workspace) override {
    const bool adds = problem_.beta != 0;
    TENON_CHECK(Internal, addresses.size() == 3 + size_t{adds} + size_t{problem_.bias}, "cublaslt")
        << "wrong number of operands for a product: " << addresses.size();
    if (problem_.bias) description_->set_bias(addresses.back());
    const Description::Operands operands{problem_.alpha,          addresses[0], addresses[1], problem_.beta,
                                         addresses[adds ? 3 : 2], addresses[2]};
    session_->api.check(
        description_->multiply(session_->handle, operands, algorithm_, {workspace, workspace_bytes_}, stream),
        "cannot multiply " + std::to_string(problem_.m) + "x" + std::to_string(problem_.n) + "x" +
            std::to_string(problem_.k));
  }

 private:
  std::shared_ptr<const CublasLt::Session> session_;
  MatmulProblem problem_;
  std::unique_ptr<Description> description_;
  Algorithm algorithm_;
  size_t workspace_bytes_;
};

}  // namespace

CublasLt::CublasLt(LoadedLibrary library, MakeCurrent current)
    : session_(std::make_shared<const Session>(std::move(library), std::move(current))) {}

std::vector<MatmulAlgorithm> CublasLt::likeliest(const MatmulProblem& problem, int most) {
  const std::shared_ptr<void> scope = session_->current();
  const Description description(session_->api, problem);
  std::vector<MatmulAlgorithm> out;
  for (const Result& result : description.heuristics(session_->handle, most)) {
    if (result.status != lt::kSuccess || !description.checked(session_->handle, result.algorithm)) continue;
    MatmulAlgorithm& a = out.emplace_back();
    a.version = session_->api.version();
    std::copy(std::begin(result.algorithm.words), std::end(result.algorithm.words), a.words.begin());
  }
  return out;
}

std::shared_ptr<LibraryCall> CublasLt::plan(const MatmulProblem& problem, const MatmulAlgorithm& algorithm) {
  if (algorithm.version != session_->api.version()) return nullptr;
  const std::shared_ptr<void> scope = session_->current();
  auto description = std::make_unique<Description>(session_->api, problem);
  const Algorithm words = algorithm_of(algorithm);
  const std::optional<Result> result = description->checked(session_->handle, words);
  if (!result) return nullptr;
  return std::make_shared<CublasLtCall>(session_, problem, std::move(description), words, result->workspace_bytes);
}

std::string CublasLt::describe(const MatmulAlgorithm& algorithm) {
  const Algorithm words = algorithm_of(algorithm);
  std::string out = "cublaslt";
  // A cluster's shape is a 16-bit number.
  const auto say = [&]<class T>(const char* name, ConfigAttribute what, T value) {
    size_t written = 0;
    if (session_->api.MatmulAlgoConfigGetAttribute(&words, what, &value, sizeof(value), &written) == lt::kSuccess)
      ((out += ' ') += name) += ' ' + std::to_string(value);
  };
  say("algorithm", ConfigAttribute::Id, int32_t{});
  say("tile", ConfigAttribute::Tile, uint32_t{});
  say("stages", ConfigAttribute::Stages, uint32_t{});
  say("cluster", ConfigAttribute::Cluster, uint16_t{});
  say("splits", ConfigAttribute::Splits, int32_t{});
  return out;
}

}  // namespace tenon::cuda
