// tenon.train.Trainer: parameters, gradients of a loss written in Python, and an optimizer.
#include <algorithm>
#include <cstring>

#include "apps/python/devices.h"
#include "apps/python/gil.h"
#include "apps/python/graph.h"
#include "apps/python/process.h"
#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/train/checkpoint.h"
#include "tenon/train/gradients.h"
#include "tenon/train/schedule.h"
#include "tenon/train/updater.h"

namespace tenon::python {
namespace {

// An array's elements in row-major order. Error(Usage) if they are in GPU memory.
std::vector<std::byte> dense_bytes(const Array& a, const std::string& name) {
  TENON_CHECK(Usage, a.device.backend == "cpu", name) << "expected an array in host memory, got " << a.str();
  const auto size = static_cast<size_t>(size_of(a.dtype));
  std::vector<std::byte> out(static_cast<size_t>(a.shape.numel()) * size);
  if (out.empty()) return out;
  if (a.contiguous()) {
    std::memcpy(out.data(), a.data, out.size());
    return out;
  }
  for (int64_t i = 0; i < a.shape.numel(); ++i) {
    int64_t rest = i, offset = 0;
    for (int axis = a.shape.rank() - 1; axis >= 0; --axis) {
      offset += rest % a.shape[axis] * a.strides[static_cast<size_t>(axis)];
      rest /= a.shape[axis];
    }
    std::memcpy(out.data() + static_cast<size_t>(i) * size, a.data + offset * static_cast<int64_t>(size), size);
  }
  return out;
}

bool reads(const Plan& plan, const std::string& name) {
  return std::ranges::any_of(plan.buffers, [&](const Buffer& b) { return b.name == name; });
}

class Trainer {
 public:
  Trainer(const std::string& device, const nb::dict& arrays, const std::string& optimizer,
          const OptimizerOptions& options, double clip, double ema) {
    const auto source = std::make_shared<HostWeights>();
    WeightShapes shapes;
    for (const auto& [key, value] : arrays) {
      const std::string name = nb::cast<std::string>(key);
      const Array a = read_array(value, name);
      TENON_CHECK(Usage, is_float(a.dtype) && a.shape.numel() > 0, name)
          << "expected at least one number of a floating-point type, got " << a.str();
      held_.push_back(dense_bytes(a, name));
      source->add(name, {a.dtype, a.shape, held_.back().data()});
      shapes[name] = a.shape;
    }
    TENON_CHECK(Usage, !shapes.empty(), "parameters") << "expected at least one parameter";
    const GilReleased released;
    const std::shared_ptr<Backend> backend = make_backend(device, {.threads = chosen_threads()});
    backend_ = std::make_unique<std::shared_ptr<Backend>>(backend);
    auto made = make_optimizer(optimizer, backend, options);
    parameters_ = std::make_unique<train::Parameters>(backend, source, shapes, made->moments().size(), ema > 0);
    updater_ = std::make_unique<train::Updater>(*parameters_, std::move(made), clip, ema);
    arena_ = std::make_shared<Arena>(backend);
  }

  bool knows(const std::string& key) const { return gradients_.contains(key); }
  void plan(const std::string& key, const Value& loss, bool accumulates) {
    const GilReleased released;
    gradients_[key] =
        std::make_unique<train::Gradients>(*parameters_, train::differentiate(loss.expr),
                                           train::GradientOptions{.accumulates = accumulates, .arena = arena_});
  }
  double run(const std::string& key, const nb::dict& batch, bool first) {
    train::Gradients& gradients = *gradients_.at(key);
    for (const auto& [of_batch, value] : batch) {
      const std::string name = nb::cast<std::string>(of_batch);
      if (!reads(gradients.plan(), name)) continue;
      if (!is_array(value)) {
        gradients.set_scalar(name, nb::cast<double>(value));
        continue;
      }
      const Array a = read_array(value, name);
      const std::vector<std::byte> bytes = dense_bytes(a, name);
      gradients.set(name, HostView{a.dtype, a.shape, bytes.data()});
    }
    const GilReleased released;
    return gradients.run(first);
  }
  double update(double lr, int64_t runs) {
    const GilReleased released;
    return updater_->step(lr, runs).norm;
  }
  int64_t steps() const { return updater_->steps(); }
  // `options`: JSON; `state`: text that is stored as is, because this JSON library's numbers differ from Python's.
  void save(const std::filesystem::path& folder, int64_t keep, const std::string& options,
            const std::string& state) const {
    const GilReleased released;
    train::CheckpointContent content;
    content.step = updater_->steps();
    content.file = kFile;
    content.run = {{"options", parse_json(options, "options")}, {"state", state}};
    write_checkpoint(train::RunFolder(folder), *parameters_, updater_->optimizer(), content, keep);
  }
  // False if there is no checkpoint. `accept` gets the state before anything changes, and may raise.
  bool resume(const std::filesystem::path& folder, const std::string& options, const nb::callable& accept) {
    const auto check = [&](const train::Resumed& r) {
      const std::string place = shown((folder / ("checkpoint-" + std::to_string(r.step))).string());
      TENON_CHECK(Model, r.run.contains("state") && r.run["state"].is_string(), place)
          << "has no state as Trainer.save writes it";
      const GilTaken gil;
      accept(place, r.run["state"].get<std::string>());
    };
    const GilReleased released;
    // RunFolder would create the folder, and a lock in it.
    if (!file_exists(folder) || train::checkpoint_steps(folder).empty()) return false;
    const std::optional<train::Resumed> r =
        read_newest(train::RunFolder(folder), parse_json(options, "options"), "is of a trainer with other options",
                    kFile, *parameters_, updater_->optimizer(), check);
    if (r) updater_->set_steps(r->step);
    return r.has_value();
  }
  // Copies a parameter, or its average, into an f32 array.
  void read(const std::string& name, bool averaged, const nb::object& into) const {
    const auto& all = parameters_->all();
    const auto p = std::ranges::find(all, name, &train::Parameter::name);
    TENON_CHECK(Usage, p != all.end(), name) << "is not a parameter";
    TENON_CHECK(Usage, !averaged || p->average, "averages") << "are not kept: create the Trainer with ema";
    const Array to = read_array(into, name);
    TENON_CHECK(Internal, to.contiguous() && to.dtype == DType::F32 && to.shape == p->shape, name) << to.str();
    const std::vector<float> values = parameters_->values(averaged ? p->average : p->master, p->count());
    std::memcpy(to.data, values.data(), values.size() * sizeof(float));
  }

 private:
  static inline const train::ParameterFile kFile{"model.safetensors", "", "", {{"format", "pt"}}};
  MadeHere<std::shared_ptr<Backend>> backend_;  // keeps it alive in a forked child
  std::vector<std::vector<std::byte>> held_;    // for the store to pack first
  std::unique_ptr<train::Parameters> parameters_;
  std::unique_ptr<train::Updater> updater_;
  std::shared_ptr<Arena> arena_;                                        // shared by all gradients
  std::map<std::string, std::unique_ptr<train::Gradients>> gradients_;  // by the batch's names, types and shapes
};

double learning_rate(double peak, const std::string& decay, int64_t warm_up, int64_t steps, int64_t number) {
  const train::Schedule s{peak, train::decay_of(decay), warm_up, steps};
  train::check_schedule(s);
  return s.rate(number);
}

}  // namespace

void bind_trainer(nb::module_& m) {
  nb::class_<Trainer>(m, "Trainer")
      .def(
          "__init__",
          [](Trainer* at, const std::string& device, const nb::dict& parameters, const std::string& optimizer,
             double beta1, double beta2, double eps, double weight_decay, double clip, double ema) {
            new (at) Trainer(device, parameters, optimizer, {beta1, beta2, eps, weight_decay}, clip, ema);
          },
          nb::arg("device"), nb::arg("parameters"), nb::arg("optimizer"), nb::arg("beta1"), nb::arg("beta2"),
          nb::arg("eps"), nb::arg("weight_decay"), nb::arg("clip"), nb::arg("ema"))
      .def("knows", &Trainer::knows)
      .def("plan", &Trainer::plan, nb::arg("key"), nb::arg("loss"), nb::arg("accumulates"))
      .def("run", &Trainer::run, nb::arg("key"), nb::arg("batch"), nb::arg("first"))
      .def("update", &Trainer::update, nb::arg("lr"), nb::arg("runs"))
      .def("read", &Trainer::read, nb::arg("name"), nb::arg("averaged"), nb::arg("into"))
      .def("save", &Trainer::save, nb::arg("folder"), nb::arg("keep"), nb::arg("options"), nb::arg("state"))
      .def("resume", &Trainer::resume, nb::arg("folder"), nb::arg("options"), nb::arg("accept"))
      .def_prop_ro("steps", &Trainer::steps);
  m.def("learning_rate", &learning_rate, nb::arg("peak"), nb::arg("decay"), nb::arg("warm_up"), nb::arg("steps"),
        nb::arg("number"));
}

}  // namespace tenon::python
