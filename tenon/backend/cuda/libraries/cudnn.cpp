#include "tenon/backend/cuda/libraries/cudnn.h"

#include <mutex>

#include "tenon/core/error.h"
#include "tenon/core/log.h"

namespace tenon::cuda {

// The library's handle.
struct Cudnn::Session {
  Session(std::shared_ptr<const CudnnApi> library, MakeCurrent make_current)
      : api(std::move(library)), current(std::move(make_current)) {
    const std::shared_ptr<void> scope = current();
    api->check(api->create_handle(&handle), "start");
  }
  ~Session() {
    try {
      const std::shared_ptr<void> scope = current();
      api->destroy_handle(handle);
    } catch (const Error&) {  // the GPU is gone (fault or process exit), and the handle with it
    }
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  std::shared_ptr<const CudnnApi> api;
  MakeCurrent current;
  CudnnHandle handle = nullptr;
  mutable std::mutex mutex;  ///< guards the handle, which has one stream at a time
};

namespace {

class CudnnCall : public LibraryCall {
 public:
  CudnnCall(std::shared_ptr<const Cudnn::Session> session, CudnnPlan plan)
      : session_(std::move(session)), plan_(std::move(plan)) {}

  int64_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  void enqueue(void* stream, std::span<void* const> addresses, void* workspace) override {
    const std::lock_guard lock(session_->mutex);
    session_->api->check(session_->api->set_stream(session_->handle, stream), "take a stream");
    plan_.execute(session_->handle, addresses, workspace);
  }

 private:
  std::shared_ptr<const Cudnn::Session> session_;
  CudnnPlan plan_;
};

// Limit on a plan's workspace: plans that need more copy tensors into their own layouts.
constexpr int64_t kMaxWorkspace = int64_t{64} << 20;

std::string key_of(const DnnProblem& problem, const std::string& engine) { return describe(problem) + " " + engine; }

}  // namespace

std::string cudnn_name(const CudnnApi& api) { return "cudnn " + version_text(Library::Cudnn, api.version()); }

Cudnn::Cudnn(const std::shared_ptr<const CudnnApi>& api, MakeCurrent current)
    : session_(std::make_shared<const Session>(api, std::move(current))), name_(cudnn_name(*api)) {}

std::vector<DnnPlan> Cudnn::likeliest(const DnnProblem& problem, size_t most) {
  const std::lock_guard lock(session_->mutex);
  const std::shared_ptr<void> scope = session_->current();
  std::vector<DnnPlan> out;
  for (const CudnnConfig& config : CudnnPlanner(session_->api, session_->handle).configs(problem)) {
    if (out.size() >= most) break;
    if (std::shared_ptr<LibraryCall> call = prepared(problem, config))
      out.push_back({config.engine, config.compiles, call});
  }
  return out;
}

std::shared_ptr<LibraryCall> Cudnn::plan(const DnnProblem& problem, const std::string& engine) {
  const std::lock_guard lock(session_->mutex);
  if (const auto it = calls_.find(key_of(problem, engine)); it != calls_.end()) return it->second;
  const std::shared_ptr<void> scope = session_->current();
  for (const CudnnConfig& config : CudnnPlanner(session_->api, session_->handle).configs(problem))
    if (config.engine == engine) return prepared(problem, config);
  return calls_[key_of(problem, engine)] = nullptr;
}

// The call for a configuration of the problem; null if it cannot be run. Requires the GPU's context to be current and
// the session to be locked.
std::shared_ptr<LibraryCall> Cudnn::prepared(const DnnProblem& problem, const CudnnConfig& config) {
  const std::string key = key_of(problem, config.engine);
  if (const auto it = calls_.find(key); it != calls_.end()) return it->second;
  std::shared_ptr<LibraryCall> call;
  try {
    CudnnPlan made(config);
    if (made.loaded() && made.workspace_bytes() <= kMaxWorkspace)
      call = std::make_shared<CudnnCall>(session_, std::move(made));
  } catch (const Error& e) {  // a plan that the heuristics suggest but the engine rejects
    spdlog::debug("{}: {}", describe(problem), e.what());
  }
  return calls_[key] = call;
}

}  // namespace tenon::cuda
