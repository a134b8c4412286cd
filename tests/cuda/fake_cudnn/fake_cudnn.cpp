#include "tests/cuda/fake_cudnn/fake_cudnn.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/backend/cuda/libraries/cudnn_api.h"
#include "tenon/core/dtype.h"

namespace {

using namespace tenon;
using namespace tenon::cuda;
using Kind = CudnnKind;
using At = CudnnAttribute;
using Type = CudnnType;

constexpr CudnnStatus kBadParameter = 2000, kNotSupported = 3000;

FakeCudnnState state;
std::string words;

CudnnStatus fail(CudnnStatus status, const std::string& why) {
  words = why;
  return status;
}

size_t size_of_type(Type type) {
  switch (type) {
    case Type::Boolean:
    case Type::Char:
      return 1;
    case Type::Int64:
    case Type::Pointer:
    case Type::Object:
    case Type::Handle:
      return 8;
    default:
      return 4;
  }
}

// A descriptor: its attributes as set.
struct Object {
  Kind kind;
  bool finalized = false;
  struct Value {
    Type type;
    int64_t count;
    std::vector<std::byte> bytes;
  };
  std::map<At, Value> values;

  bool has(At at) const { return values.contains(at); }
  template <class T>
  std::vector<T> all(At at) const {
    const auto it = values.find(at);
    if (it == values.end()) return {};
    std::vector<T> out(it->second.bytes.size() / sizeof(T));
    std::memcpy(out.data(), it->second.bytes.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  T one(At at) const {
    const std::vector<T> found = all<T>(at);
    return found.size() == 1 ? found.front() : T{};
  }
  const Object& object(At at) const { return *one<Object*>(at); }
  template <class T>
  void put(At at, Type type, const std::vector<T>& x) {
    Value v{type, static_cast<int64_t>(x.size()), std::vector<std::byte>(x.size() * sizeof(T))};
    std::memcpy(v.bytes.data(), x.data(), v.bytes.size());
    values[at] = v;
  }
};

Object* of(CudnnObject object) { return reinterpret_cast<Object*>(object); }

// Access to a tensor's elements by coordinates.
struct View {
  explicit View(const Object& tensor, const std::map<int64_t, void*>& pointers)
      : type(tensor.one<CudnnDataType>(At::TensorDataType) == CudnnDataType::Half ? DType::F16 : DType::BF16),
        dims(tensor.all<int64_t>(At::TensorDimensions)),
        strides(tensor.all<int64_t>(At::TensorStrides)),
        data(pointers.at(tensor.one<int64_t>(At::TensorId))) {}
  int64_t index(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
  double get(int64_t a, int64_t b, int64_t c, int64_t d) const { return load_element(type, data, index(a, b, c, d)); }
  void set(int64_t a, int64_t b, int64_t c, int64_t d, double x) const {
    store_element(type, data, index(a, b, c, d), x);
  }

  DType type;
  std::vector<int64_t> dims, strides;
  void* data;
};

using Pointers = std::map<int64_t, void*>;

void convolve(const Object& operation, const Object* bias, const Pointers& at) {
  const Object& what = operation.object(At::ForwardConvolution);
  const auto stride = what.all<int64_t>(At::ConvolutionStrides), pad = what.all<int64_t>(At::ConvolutionPrePaddings);
  const View x(operation.object(At::ForwardX), at), w(operation.object(At::ForwardW), at),
      y(bias ? bias->object(At::PointwiseY) : operation.object(At::ForwardY), at);
  for (int64_t n = 0; n < y.dims[0]; ++n)
    for (int64_t k = 0; k < y.dims[1]; ++k)
      for (int64_t p = 0; p < y.dims[2]; ++p)
        for (int64_t q = 0; q < y.dims[3]; ++q) {
          double sum = bias ? View(bias->object(At::PointwiseB), at).get(0, k, 0, 0) : 0;
          for (int64_t r = 0; r < w.dims[2]; ++r)
            for (int64_t s = 0; s < w.dims[3]; ++s) {
              const int64_t i = p * stride[0] - pad[0] + r, j = q * stride[1] - pad[1] + s;
              if (i < 0 || j < 0 || i >= x.dims[2] || j >= x.dims[3]) continue;
              for (int64_t c = 0; c < w.dims[1]; ++c) sum += x.get(n, c, i, j) * w.get(k, c, r, s);
            }
          y.set(n, k, p, q, sum);
        }
}

void attend(const Object& operation, const Pointers& at) {
  const View q(operation.object(At::AttentionQ), at), k(operation.object(At::AttentionK), at),
      v(operation.object(At::AttentionV), at), o(operation.object(At::AttentionO), at);
  const int64_t id = operation.object(At::AttentionScale).one<int64_t>(At::TensorId);
  const double scale = *static_cast<const float*>(at.at(id));
  const int64_t shared = q.dims[1] / k.dims[1];
  std::vector<double> weights(static_cast<size_t>(k.dims[2]));
  for (int64_t b = 0; b < q.dims[0]; ++b)
    for (int64_t h = 0; h < q.dims[1]; ++h)
      for (int64_t i = 0; i < q.dims[2]; ++i) {
        double sum = 0, most = -1e300;
        for (int64_t j = 0; j < k.dims[2]; ++j) {
          double score = 0;
          for (int64_t d = 0; d < q.dims[3]; ++d) score += q.get(b, h, i, d) * k.get(b, h / shared, j, d);
          most = std::max(most, weights[static_cast<size_t>(j)] = score * scale);
        }
        for (double& w : weights) sum += w = std::exp(w - most);
        for (int64_t d = 0; d < q.dims[3]; ++d) {
          double out = 0;
          for (int64_t j = 0; j < k.dims[2]; ++j) out += weights[static_cast<size_t>(j)] * v.get(b, h / shared, j, d);
          o.set(b, h, i, d, out / sum);
        }
      }
}

const Object& operations_of(const Object& config) { return config.object(At::HeuristicsGraph); }

bool is_attention(const Object& graph) {
  return graph.all<Object*>(At::OperationGraphOperations).front()->kind == Kind::OperationAttention;
}

// Attributes that each kind needs before it is finalized.
std::vector<At> wanted(Kind kind) {
  switch (kind) {
    case Kind::Tensor:
      return {At::TensorDataType, At::TensorDimensions, At::TensorStrides, At::TensorId, At::TensorAlignment};
    case Kind::Convolution:
      return {At::ConvolutionPrecision, At::ConvolutionMode,        At::ConvolutionSpatialDims,
              At::ConvolutionStrides,   At::ConvolutionPrePaddings, At::ConvolutionPostPaddings,
              At::ConvolutionDilations};
    case Kind::OperationConvolution:
      return {At::ForwardConvolution, At::ForwardX, At::ForwardW, At::ForwardY, At::ForwardAlpha, At::ForwardBeta};
    case Kind::OperationPointwise:
      return {At::PointwiseObject, At::PointwiseX, At::PointwiseB, At::PointwiseY};
    case Kind::OperationAttention:
      return {At::AttentionQ, At::AttentionK, At::AttentionV, At::AttentionO, At::AttentionScale};
    case Kind::Heuristics:
      return {At::HeuristicsGraph, At::HeuristicsMode};
    case Kind::VariantPack:
      return {At::PackIds, At::PackPointers, At::PackWorkspace};
    default:
      return {};
  }
}

std::vector<int> engines_for(const Object& graph) {
  if (!state.offers) return {};
  if (is_attention(graph)) return {kNondeterministic, kCompiled};
  return {kNondeterministic, kWinograd, kDownConverts, kPlain, kOther};
}

// Fills result descriptors: engine configurations, or a configuration's engine.
CudnnStatus give(const Object& from, At attribute, int64_t room, int64_t* count, void* elements) {
  std::vector<Object> found;
  if (attribute == At::HeuristicsResults)
    for (const int engine : engines_for(from.object(At::HeuristicsGraph))) {
      Object& config = found.emplace_back(Object{Kind::EngineConfig, true, {}});
      config.values[At::HeuristicsGraph] = from.values.at(At::HeuristicsGraph);
      config.put<int64_t>(At::EngineIndex, Type::Int64, {engine});
    }
  if (attribute == At::EngineConfigEngine) found.push_back(from), found.back().kind = Kind::Engine;
  if (attribute == At::EngineConfigKnobChoices && from.one<int64_t>(At::EngineIndex) == kOther) {
    Object& knob = found.emplace_back(Object{Kind::KnobChoice, true, {}});
    knob.put<int>(At::KnobChoiceType, Type::KnobType, {2});
    knob.put<int64_t>(At::KnobChoiceValue, Type::Int64, {16});
  }
  *count = room ? std::min<int64_t>(room, static_cast<int64_t>(found.size())) : static_cast<int64_t>(found.size());
  for (int64_t i = 0; room && i < *count; ++i) *static_cast<Object**>(elements)[i] = found[static_cast<size_t>(i)];
  return kCudnnSuccess;
}

std::vector<int> notes(const Object& engine, At attribute) {
  const int64_t e = engine.one<int64_t>(At::EngineIndex);
  if (attribute == At::EngineBehaviorNotes) return e == kCompiled ? std::vector<int>{0} : std::vector<int>{3};
  constexpr int kTensorCore = 0, kDown = 1, kRandom = 4, kWinogradTile = 7;
  if (e == kNondeterministic) return {kTensorCore, kRandom};
  if (e == kWinograd) return {kWinogradTile};
  if (e == kDownConverts) return {kDown};
  return {kTensorCore};
}

}  // namespace

extern "C" {

FakeCudnnState* fake_cudnn_state() { return &state; }
size_t cudnnGetVersion() { return state.version; }
const char* cudnnGetErrorString(CudnnStatus status) {
  return status == kNotSupported ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_OTHER";
}
void cudnnGetLastErrorString(char* text, size_t size) { std::strncpy(text, words.c_str(), size - 1); }

CudnnStatus cudnnCreate(CudnnHandle* handle) {
  if (state.fail_create) return fail(state.fail_create, "told to");
  ++state.handles;
  *handle = reinterpret_cast<CudnnHandle>(&state);
  return kCudnnSuccess;
}
CudnnStatus cudnnDestroy(CudnnHandle) {
  --state.handles;
  return kCudnnSuccess;
}
CudnnStatus cudnnSetStream(CudnnHandle, void* stream) {
  state.stream = reinterpret_cast<uintptr_t>(stream);
  return kCudnnSuccess;
}
CudnnStatus cudnnBackendCreateDescriptor(CudnnKind kind, CudnnObject* out) {
  ++state.objects;
  *out = reinterpret_cast<CudnnObject>(new Object{kind, false, {}});
  return kCudnnSuccess;
}
CudnnStatus cudnnBackendDestroyDescriptor(CudnnObject object) {
  --state.objects;
  delete of(object);
  return kCudnnSuccess;
}

CudnnStatus cudnnBackendSetAttribute(CudnnObject object, CudnnAttribute attribute, CudnnType type, int64_t count,
                                     const void* elements) {
  if (of(object)->finalized) return fail(kBadParameter, "it is finalized");
  if (type == Type::Object)
    for (int64_t i = 0; i < count; ++i)
      if (!static_cast<Object* const*>(elements)[i]->finalized) return fail(kBadParameter, "a part is not finalized");
  if (attribute == At::DevicePropertiesJson) {
    const std::string json(static_cast<const char*>(elements), static_cast<size_t>(count));
    if (json.find("\"deviceVer\":900") == std::string::npos) return fail(kBadParameter, "no device: " + json);
    state.described_device = true;
  }
  Object::Value& v = of(object)->values[attribute];
  v = {type, count, std::vector<std::byte>(static_cast<size_t>(count) * size_of_type(type))};
  std::memcpy(v.bytes.data(), elements, v.bytes.size());
  return kCudnnSuccess;
}

CudnnStatus cudnnBackendFinalize(CudnnObject object) {
  Object& o = *of(object);
  for (const At at : wanted(o.kind))
    if (!o.has(at)) return fail(kBadParameter, "no attribute " + std::to_string(static_cast<int>(at)));
  if (o.kind == Kind::Heuristics && state.fail_heuristics) return fail(state.fail_heuristics, "told to");
  state.heuristics += o.kind == Kind::Heuristics;
  if (o.kind == Kind::Plan) {
    const Object& config = o.object(At::PlanEngineConfig);
    if (config.one<int64_t>(At::EngineIndex) == state.fail_plan_of) return fail(state.fail_plan, "told to");
    ++state.plans;
  }
  o.finalized = true;
  return kCudnnSuccess;
}

CudnnStatus cudnnBackendGetAttribute(CudnnObject object, CudnnAttribute attribute, CudnnType type, int64_t room,
                                     int64_t* count, void* elements) {
  const Object& o = *of(object);
  if (!o.finalized) return fail(kBadParameter, "it is not finalized");
  if (type == Type::Object) return give(o, attribute, room, count, elements);
  std::vector<std::byte> bytes;
  const auto take = [&](const auto& x) {
    bytes.resize(x.size() * sizeof(x[0]));
    std::memcpy(bytes.data(), x.data(), bytes.size());
  };
  if (attribute == At::EngineNumericalNotes || attribute == At::EngineBehaviorNotes)
    take(notes(o, attribute));
  else if (attribute == At::PlanWorkspaceSize)
    take(std::vector<int64_t>{100});
  else
    bytes = o.values.at(attribute).bytes;
  *count = std::min<int64_t>(room, static_cast<int64_t>(bytes.size() / size_of_type(type)));
  std::memcpy(elements, bytes.data(), static_cast<size_t>(*count) * size_of_type(type));
  return kCudnnSuccess;
}

CudnnStatus cudnnBackendExecute(CudnnHandle, CudnnObject plan, CudnnObject pack) {
  if (state.fail_execute) return fail(state.fail_execute, "told to");
  const auto ids = of(pack)->all<int64_t>(At::PackIds);
  const auto addresses = of(pack)->all<void*>(At::PackPointers);
  if (ids.size() != addresses.size()) return fail(kBadParameter, "ids and pointers differ");
  if (!of(pack)->one<void*>(At::PackWorkspace)) return fail(kBadParameter, "no workspace");
  Pointers at;
  for (size_t i = 0; i < ids.size(); ++i) at[ids[i]] = addresses[i];
  const Object& config = of(plan)->object(At::PlanEngineConfig);
  const auto operations = operations_of(config).all<Object*>(At::OperationGraphOperations);
  ++state.executions;
  state.engine = static_cast<int>(config.one<int64_t>(At::EngineIndex));
  if (operations.front()->kind == Kind::OperationAttention)
    attend(*operations.front(), at);
  else
    convolve(*operations.front(), operations.size() > 1 ? operations[1] : nullptr, at);
  return kCudnnSuccess;
}

}  // extern "C"
