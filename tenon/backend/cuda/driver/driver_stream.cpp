#include "tenon/backend/cuda/driver/driver_stream.h"

#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

constexpr int kRelaxedCapture = 2;  // allows memory allocation and module loading during capture
constexpr unsigned kEventWithoutTime = 2;

class DriverEvent : public Event {
 public:
  DriverEvent(std::shared_ptr<DriverContext> context, StreamHandle stream, const DriverStream* of)
      : recording(of), context_(std::move(context)) {
    context_->check(context_->api().create_event(&handle, kEventWithoutTime), "create an event");
    const DriverResult marked = context_->api().record_event(handle, stream);
    if (marked != kSuccess) context_->api().destroy_event(handle);
    context_->check(marked, "record an event");
  }
  ~DriverEvent() override {
    const KeptContext kept(*context_, std::nothrow);
    context_->api().destroy_event(handle);
  }
  DriverEvent(const DriverEvent&) = delete;
  DriverEvent& operator=(const DriverEvent&) = delete;

  EventHandle handle = nullptr;
  const DriverStream* recording;  ///< the recording it belongs to, or null

 private:
  std::shared_ptr<DriverContext> context_;
};

}  // namespace

DriverStream::DriverStream(std::shared_ptr<DriverContext> context) : context_(std::move(context)), own_(true) {
  const KeptContext kept(*context_);
  context_->check(context_->api().create_stream(&handle_, kNonBlockingStream), "create a stream");
}

DriverStream::DriverStream(std::shared_ptr<DriverContext> context, StreamHandle borrowed)
    : context_(std::move(context)), handle_(borrowed) {}

DriverStream::~DriverStream() {
  if (!own_) return;
  const KeptContext kept(*context_, std::nothrow);
  abandon_capture();
  context_->api().destroy_stream(handle_);
}

bool DriverStream::is_of(const Stream& stream, const DriverContext& context) {
  const auto* const own = dynamic_cast<const DriverStream*>(&stream);
  return own && own->context_.get() == &context;
}

DriverStream& DriverStream::of(Stream& stream, const DriverContext& context) {
  TENON_CHECK(Internal, is_of(stream, context), context.facts().name) << "got a stream of another device";
  return static_cast<DriverStream&>(stream);
}

void DriverStream::synchronize() {
  const KeptContext kept(*context_);
  context_->check(context_->api().synchronize(handle_), "finish the enqueued work");
  context_->waited(handle_);
}

std::shared_ptr<const Event> DriverStream::mark() {
  const KeptContext kept(*context_);
  return std::make_shared<DriverEvent>(context_, handle_, recording());
}

void DriverStream::wait(const Event& event) {
  const auto* const mark = dynamic_cast<const DriverEvent*>(&event);
  TENON_CHECK(Internal, mark, context_->facts().name) << "got an event of another backend";
  if (mark->recording != recording()) not_capturing("wait for work that is not recorded");
  TENON_CHECK(Internal, mark->recording == recording(), "cuda")
      << "cannot wait outside a recording for an event inside it";
  const KeptContext kept(*context_);
  context_->check(context_->api().wait_event(handle_, mark->handle, 0), "wait for another stream");
  waited_ = true;
}

DriverStream& DriverStream::beside() {
  if (!beside_) {
    beside_ = std::make_unique<DriverStream>(context_);
    beside_->main_ = this;
  }
  return *beside_;
}

void DriverStream::begin_capture() {
  TENON_CHECK(Internal, !capturing_, "cuda") << "a recording is already under way";
  const KeptContext kept(*context_);
  context_->check(context_->api().begin_capture(handle_, kRelaxedCapture), "begin to record kernel calls");
  capturing_ = true;
  captured_ = 0;
}

void DriverStream::not_capturing(const char* action) const {
  TENON_CHECK(Internal, !recording(), "cuda") << "cannot " << action << " while kernel calls are recorded";
}

GraphExecHandle DriverStream::end_capture() {
  TENON_CHECK(Internal, capturing_, "cuda") << "no recording is under way";
  const KeptContext kept(*context_);
  const DriverApi& api = context_->api();
  capturing_ = false;
  GraphHandle graph = nullptr;
  context_->check(api.end_capture(handle_, &graph), "record kernel calls");
  GraphExecHandle exec = nullptr;
  const DriverResult made = api.instantiate(&exec, graph, 0);
  api.destroy_graph(graph);
  context_->check(made, "create a graph of the recorded kernel calls");
  DriverResult uploaded = api.upload_graph(exec, handle_);
  if (uploaded == kSuccess) uploaded = api.synchronize(handle_);  // other streams will start it
  if (uploaded != kSuccess) api.destroy_graph_exec(exec);
  context_->check(uploaded, "upload a graph to the GPU");
  return exec;
}

int DriverStream::count_captured() {
  TENON_CHECK(Internal, capturing_, "cuda") << "no recording is under way";
  const KeptContext kept(*context_);
  capturing_ = false;
  GraphHandle graph = nullptr;
  context_->check(context_->api().end_capture(handle_, &graph), "record kernel calls");
  size_t nodes = 0;
  const DriverResult counted = context_->api().graph_nodes(graph, nullptr, &nodes);
  context_->api().destroy_graph(graph);
  context_->check(counted, "count the nodes of a graph");
  return static_cast<int>(nodes);
}

void DriverStream::abandon_capture() noexcept {
  if (!capturing_) return;
  capturing_ = false;
  GraphHandle graph = nullptr;
  if (context_->api().end_capture(handle_, &graph) == kSuccess && graph) context_->api().destroy_graph(graph);
}

void DriverStream::enqueued(const std::string& kernel) {
  if (capturing_)
    ++captured_;
  else
    context_->enqueued(handle_, kernel);
}

}  // namespace tenon::cuda
