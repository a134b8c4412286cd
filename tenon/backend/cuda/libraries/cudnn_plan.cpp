#include "tenon/backend/cuda/libraries/cudnn_plan.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "tenon/core/error.h"

namespace tenon::cuda {
namespace {

using Attribute = CudnnAttribute;
using Descriptors = std::vector<std::shared_ptr<const CudnnDescriptor>>;

// Objects of an attribute, at most `most` (0: all): cuDNN fills existing descriptors.
Descriptors objects(const std::shared_ptr<const CudnnApi>& api, const CudnnDescriptor& of, Attribute attribute,
                    CudnnKind kind, int64_t most) {
  int64_t count = most;
  if (!most) api->check(api->get(of.get(), attribute, CudnnType::Object, 0, &count, nullptr), "count its results");
  Descriptors found;
  std::vector<CudnnObject> raw;
  for (int64_t i = 0; i < count; ++i) {
    found.push_back(std::make_shared<CudnnDescriptor>(api, kind));
    raw.push_back(found.back()->get());
  }
  if (count) api->check(api->get(of.get(), attribute, CudnnType::Object, count, &count, raw.data()), "get its results");
  found.resize(static_cast<size_t>(count));
  return found;
}

template <class T>
T number(const CudnnApi& api, const CudnnDescriptor& of, Attribute attribute, CudnnType type) {
  T value{};
  int64_t count = 0;
  api.check(api.get(of.get(), attribute, type, 1, &count, &value),
            "get attribute " + std::to_string(static_cast<int>(attribute)));
  return value;
}

std::vector<int> notes(const CudnnApi& api, const CudnnDescriptor& engine, Attribute attribute, CudnnType type) {
  std::vector<int> out(32);
  int64_t count = 0;
  api.check(api.get(engine.get(), attribute, type, static_cast<int64_t>(out.size()), &count, out.data()),
            "get an engine's notes");
  out.resize(static_cast<size_t>(count));
  return out;
}

// Reads a configuration's engine name and whether it compiles; false if its results do not qualify.
bool read_engine(const std::shared_ptr<const CudnnApi>& api, CudnnConfig& config) {
  constexpr int kDownConverts = 1, kReducedSums = 2, kFourier = 3, kNondeterministic = 4, kLastWinograd = 8;
  constexpr int kCompilesAtRunTime = 0, kMaxKnobs = 64;
  const CudnnDescriptor& made = *config.made_of.back();
  const Descriptors engines = objects(api, made, Attribute::EngineConfigEngine, CudnnKind::Engine, 1);
  TENON_CHECK(Device, engines.size() == 1, "cudnn") << "a configuration has no engine";
  const CudnnDescriptor& engine = *engines.front();
  std::ostringstream name;
  name << "engine " << number<int64_t>(*api, engine, Attribute::EngineIndex, CudnnType::Int64);
  const char* separator = " knobs ";
  for (const auto& knob : objects(api, made, Attribute::EngineConfigKnobChoices, CudnnKind::KnobChoice, kMaxKnobs)) {
    name << separator << number<int>(*api, *knob, Attribute::KnobChoiceType, CudnnType::KnobType) << ':'
         << number<int64_t>(*api, *knob, Attribute::KnobChoiceValue, CudnnType::Int64);
    separator = " ";
  }
  config.engine = name.str();
  const std::vector<int> behavior = notes(*api, engine, Attribute::EngineBehaviorNotes, CudnnType::BehaviorNote);
  config.compiles = std::count(behavior.begin(), behavior.end(), kCompilesAtRunTime) > 0;
  const std::vector<int> numbers = notes(*api, engine, Attribute::EngineNumericalNotes, CudnnType::NumericalNote);
  static_assert(kDownConverts < kReducedSums && kFourier < kNondeterministic && kNondeterministic < kLastWinograd);
  return std::none_of(numbers.begin(), numbers.end(),
                      [](int note) { return note >= kDownConverts && note <= kLastWinograd; });
}

// The device in cuDNN's format. What DeviceFacts lacks is taken from an H200 or an L4.
std::string description(const DeviceFacts& facts) {
  const bool hopper = facts.arch == "sm_90a";
  std::ostringstream out;
  out << R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
      << R"("warpSize":32,"maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,)"
      << R"("maxRegistersPerSM":65536,"maxThreadsPerBlock":1024,"isTccDriver":0,"supportCoopLaunch":1,)"
      << R"("cudaDeviceId":0,"driverVer":13000)";
  const auto add = [&out](const char* name, int64_t value) { out << ",\"" << name << "\":" << value; };
  add("multiProcessorCount", facts.multiprocessors);
  add("maxSharedMemoryPerBlockOptin", facts.shared_bytes);
  add("totalGlobalMem", facts.memory_bytes);
  add("maxCtasPerSM", hopper ? 32 : 24);
  add("maxThreadsPerSM", hopper ? 2048 : 1536);
  add("pciDeviceId", hopper ? 0x2335 : 0x27b8);
  add("smClockRateKHz", hopper ? 1980000 : 2040000);
  add("memClockRateKHz", hopper ? 3201000 : 6251000);
  add("l2CacheSize", hopper ? 60 << 20 : 48 << 20);
  add("deviceVer", hopper ? 900 : 890);
  out << ",\"deviceName\":\"" << facts.name << "\"}";
  return out.str();
}

}  // namespace

CudnnPlan::CudnnPlan(CudnnConfig config) : config_(std::move(config)) {
  const std::shared_ptr<const CudnnApi>& api = config_.graph->api();
  plan_ = std::make_shared<CudnnDescriptor>(api, CudnnKind::Plan);
  plan_->set(Attribute::PlanEngineConfig, *config_.made_of.back());
  const CudnnStatus status = plan_->try_finalize();
  loaded_ = !config_.compiles || status != kCudnnDriverFailed;
  if (!loaded_) return;
  api->check(status, "prepare " + config_.engine);
  workspace_bytes_ = number<int64_t>(*api, *plan_, Attribute::PlanWorkspaceSize, CudnnType::Int64);
}

void CudnnPlan::execute(CudnnHandle handle, std::span<void* const> addresses, void* workspace) const {
  const CudnnGraph& graph = *config_.graph;
  TENON_CHECK(Internal, loaded_ && static_cast<int>(addresses.size()) == graph.tensors(), "cudnn")
      << "expected a loaded plan and " << graph.tensors() << " addresses, got " << addresses.size();
  std::vector<void*> pointers(addresses.begin(), addresses.end());
  for (const float& scalar : graph.scalars()) pointers.push_back(const_cast<float*>(&scalar));
  std::vector<int64_t> ids(pointers.size());
  std::iota(ids.begin(), ids.end(), 1);
  CudnnDescriptor pack(graph.api(), CudnnKind::VariantPack);
  pack.set(Attribute::PackIds, ids)
      .set(Attribute::PackPointers, CudnnType::Pointer, static_cast<int64_t>(pointers.size()), pointers.data())
      .set(Attribute::PackWorkspace, CudnnType::Pointer, 1, &workspace)
      .finalize();
  graph.api()->check(graph.api()->execute(handle, plan_->get(), pack.get()), "run " + engine());
}

CudnnPlanner::CudnnPlanner(std::shared_ptr<const CudnnApi> api, CudnnHandle handle)
    : api_(std::move(api)), handle_(handle) {}

CudnnPlanner::CudnnPlanner(std::shared_ptr<const CudnnApi> api, const DeviceFacts& facts) : api_(std::move(api)) {
  const std::string json = description(facts);
  const auto properties = std::make_shared<CudnnDescriptor>(api_, CudnnKind::DeviceProperties);
  properties->set(Attribute::DevicePropertiesJson, CudnnType::Char, static_cast<int64_t>(json.size()), json.data())
      .finalize();
  properties_ = properties;
}

std::vector<CudnnConfig> CudnnPlanner::configs(const DnnProblem& problem) const {
  const auto graph = std::make_shared<const CudnnGraph>(api_, problem);
  const auto operations = std::make_shared<CudnnDescriptor>(api_, CudnnKind::OperationGraph);
  operations->set(Attribute::OperationGraphOperations, graph->operations());
  if (handle_) operations->set(Attribute::OperationGraphHandle, CudnnType::Handle, 1, &handle_);
  operations->finalize();
  const auto heuristics = std::make_shared<CudnnDescriptor>(api_, CudnnKind::Heuristics);
  constexpr int kModeA = 3;
  heuristics->set(Attribute::HeuristicsGraph, *operations)
      .set(Attribute::HeuristicsMode, CudnnType::HeuristicsMode, 1, &kModeA);
  if (properties_) heuristics->set(Attribute::HeuristicsDeviceProperties, *properties_);
  heuristics->finalize();
  std::vector<CudnnConfig> out;
  for (const auto& made : objects(api_, *heuristics, Attribute::HeuristicsResults, CudnnKind::EngineConfig, 0)) {
    CudnnConfig config;
    config.graph = graph;
    config.made_of = {properties_, operations, heuristics, made};
    if (read_engine(api_, config)) out.push_back(std::move(config));
  }
  return out;
}

}  // namespace tenon::cuda
