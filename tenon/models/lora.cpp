#include "tenon/models/lora.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "tenon/core/error.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/models/decoder_adapter.h"
#include "tenon/models/lora_scale.h"

namespace tenon {
namespace {

// The role of a tensor in its layer.
enum class Part : uint8_t { Down, Up, Alpha, W1, W1a, W1b, W2, W2a, W2b, Unread };

struct Ending {
  std::string_view text;
  Part part;
};
constexpr std::array<Ending, 25> kEndings = {{{nn::kSideDown, Part::Down},
                                              {nn::kSideUp, Part::Up},
                                              {".lora_down.weight", Part::Down},
                                              {".lora_up.weight", Part::Up},
                                              {".lora.down.weight", Part::Down},
                                              {".lora.up.weight", Part::Up},
                                              {".lora_linear_layer.down.weight", Part::Down},
                                              {".lora_linear_layer.up.weight", Part::Up},
                                              {"_lora.down.weight", Part::Down},
                                              {"_lora.up.weight", Part::Up},
                                              {".alpha", Part::Alpha},
                                              {".lokr_w1", Part::W1},
                                              {".lokr_w1_a", Part::W1a},
                                              {".lokr_w1_b", Part::W1b},
                                              {".lokr_w2", Part::W2},
                                              {".lokr_w2_a", Part::W2a},
                                              {".lokr_w2_b", Part::W2b},
                                              {".lokr_t2", Part::Unread},
                                              {".lora_mid.weight", Part::Unread},
                                              {".dora_scale", Part::Unread},
                                              {".lora_magnitude_vector", Part::Unread},
                                              {".lora_B.bias", Part::Unread},
                                              {".diff", Part::Unread},
                                              {".diff_b", Part::Unread},
                                              {".b_norm", Part::Unread}}};

// Older diffusers name a layer of attention behind its processor.
std::string without_processor(std::string name) {
  if (const size_t at = name.find(".processor."); at != name.npos)
    name.erase(at, std::string_view(".processor").size());
  return name;
}

// The magnitudes that a DoRA has beside A and B.
bool is_magnitude(const std::string& tensor) {
  return tensor.find(".dora_scale") != tensor.npos || tensor.find(".lora_magnitude_vector") != tensor.npos;
}

// Layer and part from a tensor's name; empty for names that no LoRA uses.
std::optional<std::pair<std::string, Part>> split(std::string name) {
  // PEFT may include the adapter's name: ".lora_A.default.weight".
  for (const std::string_view letter : {".lora_A.", ".lora_B."}) {
    const size_t at = name.rfind(letter);
    if (at == name.npos || !name.ends_with(".weight")) continue;
    const size_t from = at + letter.size() - 1, to = name.size() - std::string_view(".weight").size();
    if (to > from && name.find('.', from + 1) >= to) name.erase(from, to - from);
  }
  for (const auto& [text, part] : kEndings) {
    if (!name.ends_with(text) || name.size() == text.size()) continue;
    name.resize(name.size() - text.size());
    return std::pair(without_processor(name), part);
  }
  return {};
}

// The tensors of the file that make up a layer.
struct Layer {
  std::map<Part, std::string> parts;  // names of tensors
  std::vector<std::string> all;
  bool has(Part p) const { return parts.contains(p); }
};

class Reader {
 public:
  Reader(const SafetensorsFile& file, const LoraNames& names, LoraRest rest, const nlohmann::json& config)
      : file_(file), names_(names), rest_(rest), scale_(notes_of(file, config), file.name()) {
    out_.file = file.name();
  }

  Lora run() {
    collect();
    // Unfused layers first: a fused one may repeat what the file also has unfused.
    for (const bool fused : {false, true})
      for (const auto& [name, layer] : layers_) {
        const std::vector<LoraTarget>* targets = names_.find(name);
        if (!targets || targets->empty() || layer.has(Part::Unread)) continue;
        if (targets->front().fused == fused) read(name, layer, *targets);
      }
    for (const auto& [name, layer] : layers_) {
      const std::vector<LoraTarget>* targets = names_.find(name);
      if (targets && targets->empty())
        skip(layer);
      else if (!targets || layer.has(Part::Unread))
        leave_out(layer);
      unread_ = unread_ || (targets && !targets->empty() && layer.has(Part::Unread));
    }
    judge();
    return std::move(out_);
  }

 private:
  static nlohmann::json notes_of(const SafetensorsFile& file, const nlohmann::json& config) {
    const auto it = file.metadata().find("lora_adapter_metadata");
    return it == file.metadata().end() ? config : parse_json(it->second, file.name() + " lora_adapter_metadata");
  }

  void collect() {
    std::vector<std::string> others;
    const auto take = [&](const std::string& tensor) {
      const auto known = split(tensor);
      if (!known) {
        others.push_back(tensor);
        return;
      }
      Layer& layer = layers_[known->first];
      const auto [at, added] = layer.parts.emplace(known->second, tensor);
      TENON_CHECK(Model, added || known->second == Part::Unread, file_.name())
          << "tensors '" << shown(at->second) << "' and '" << shown(tensor) << "' hold the same part of one layer";
      layer.all.push_back(tensor);
    };
    for (const auto& [name, tensor] : file_.tensors()) take(name);
    for (const auto& [name, tensor] : file_.unsupported()) take(name);
    for (const std::string& tensor : others) {
      if (Layer* const layer = layer_around(tensor)) {
        layer->parts.emplace(Part::Unread, tensor);
        layer->all.push_back(tensor);
      } else {
        out_.report.unmatched.push_back(tensor);
      }
    }
  }

  // The layer of the file that a tensor of unknown kind is part of: without that part its other tensors mean a
  // different change.
  Layer* layer_around(const std::string& tensor) {
    std::string name = without_processor(tensor);
    for (size_t dot = name.rfind('.'); dot != name.npos; dot = name.rfind('.')) {
      name.resize(dot);
      if (const auto it = layers_.find(name); it != layers_.end()) return &it->second;
    }
    return nullptr;
  }

  // Messages name the first tensor of those left out: lists the one that is the reason first.
  void leave_out(const Layer& layer) {
    const auto why = layer.parts.find(Part::Unread);
    std::vector<std::string>& unmatched = out_.report.unmatched;
    if (why != layer.parts.end()) unmatched.push_back(why->second);
    for (const std::string& tensor : layer.all)
      if (why == layer.parts.end() || tensor != why->second) unmatched.push_back(tensor);
  }

  void skip(const Layer& layer) {
    out_.report.redundant.insert(out_.report.redundant.end(), layer.all.begin(), layer.all.end());
  }

  void read(const std::string& name, const Layer& layer, const std::vector<LoraTarget>& targets) {
    check_stop(file_.name());
    if (targets.front().fused && known(targets)) {
      skip(layer);
      return;
    }
    const Shape& shape = targets.front().shape;
    LoraMatrix m;
    for (const LoraTarget& t : targets) m.rows += t.shape[0];
    m.columns = shape.numel() / std::max<int64_t>(shape[0], 1);
    constexpr std::array kFactors = {Part::W1, Part::W1a, Part::W1b, Part::W2, Part::W2a, Part::W2b};
    const bool kronecker = !layer.has(Part::Down) && !layer.has(Part::Up) &&
                           std::ranges::any_of(kFactors, [&](Part p) { return layer.has(p); });
    if (kronecker)
      read_kronecker(name, layer, m);
    else
      read_low_rank(name, layer, targets.front().component, m);
    out_.report.rank = std::max(out_.report.rank, m.rank);
    const auto matrix = std::make_shared<const LoraMatrix>(std::move(m));
    for (const LoraTarget& t : targets) {
      const bool added = out_.changes[t.component].emplace(t.tensor, LoraChange{t, matrix}).second;
      TENON_CHECK(Model, added, file_.name())
          << "two layers change '" << t.tensor << "', one of them '" << shown(name) << "'";
      ++out_.report.layers[t.component];
    }
  }

  bool known(const std::vector<LoraTarget>& targets) const {
    return std::ranges::all_of(targets, [&](const LoraTarget& t) {
      const auto it = out_.changes.find(t.component);
      return it != out_.changes.end() && it->second.contains(t.tensor);
    });
  }

  void read_low_rank(const std::string& name, const Layer& layer, const std::string& component, LoraMatrix& m) const {
    const Shape down = shape_of(name, layer, Part::Down), up = shape_of(name, layer, Part::Up);
    m.rank = down.rank() ? down[0] : 0;
    const std::string& a = layer.parts.at(Part::Down);
    TENON_CHECK(Model, down.rank() >= 2 && m.rank > 0 && down.numel() / m.rank == m.columns, file_.name())
        << "tensor '" << shown(a) << "' is " << down.str() << ", but this model's weight needs [r," << m.columns
        << "]; is the LoRA for another model?";
    const std::string& b = layer.parts.at(Part::Up);
    TENON_CHECK(Model, up.rank() >= 2 && up[0] == m.rows && up[1] == m.rank && up.numel() == m.rows * m.rank,
                file_.name())
        << "tensor '" << shown(b) << "' is " << up.str() << ", expected [" << m.rows << "," << m.rank << "] for rank "
        << m.rank;
    m.down = values(a);
    m.up = values(b);
    m.scale = layer.has(Part::Alpha) ? alpha(layer) / static_cast<double>(m.rank)
                                     : scale_.of(component, name, m.rank, names_);
  }

  // One factor of a Kronecker product: whole, or a product of two matrices of rank r.
  struct Factor {
    int64_t rows = 0, columns = 0, rank = 0;
    std::vector<float> whole, a, b;
  };
  Factor factor(const std::string& name, const Layer& layer, Part whole, Part a, Part b) const {
    Factor f;
    const auto two = [&](Part p) {
      const Shape s = shape_of(name, layer, p);
      TENON_CHECK(Model, s.rank() >= 2 && s.numel() > 0, file_.name())
          << "tensor '" << shown(layer.parts.at(p)) << "' is " << s.str() << ", expected a matrix";
      return std::pair(s[0], s.numel() / s[0]);
    };
    if (layer.has(whole)) {
      std::tie(f.rows, f.columns) = two(whole);
      f.whole = values(layer.parts.at(whole));
      return f;
    }
    int64_t inner = 0;
    std::tie(f.rows, f.rank) = two(a);
    std::tie(inner, f.columns) = two(b);
    TENON_CHECK(Model, inner == f.rank, file_.name())
        << "tensor '" << shown(layer.parts.at(b)) << "' has " << inner << " rows, expected " << f.rank;
    f.a = values(layer.parts.at(a));
    f.b = values(layer.parts.at(b));
    return f;
  }

  void read_kronecker(const std::string& name, const Layer& layer, LoraMatrix& m) const {
    Factor w1 = factor(name, layer, Part::W1, Part::W1a, Part::W1b);
    Factor w2 = factor(name, layer, Part::W2, Part::W2a, Part::W2b);
    // Refuses extents beyond the weight's before multiplying them.
    const bool fits = w1.rows <= m.rows && w1.columns <= m.columns && w2.rows <= m.rows && w2.columns <= m.columns &&
                      w1.rows * w2.rows == m.rows && w1.columns * w2.columns == m.columns;
    TENON_CHECK(Model, fits, file_.name())
        << "layer '" << shown(name) << "' is a product of [" << w1.rows << "," << w1.columns << "] and [" << w2.rows
        << "," << w2.columns << "], but this model's weight is [" << m.rows << "," << m.columns << "]";
    m.inner_rows = w2.rows;
    m.inner_columns = w2.columns;
    const int64_t rank = w2.rank ? w2.rank : w1.rank;
    m.scale = rank && layer.has(Part::Alpha) ? alpha(layer) / static_cast<double>(rank) : 1;
    m.down = product(std::move(w1));
    m.up = product(std::move(w2));
  }

  static std::vector<float> product(Factor f) {
    if (!f.rank) return std::move(f.whole);
    const LoraMatrix m{
        .rows = f.rows, .columns = f.columns, .rank = f.rank, .down = std::move(f.b), .up = std::move(f.a)};
    std::vector<float> out(static_cast<size_t>(f.rows * f.columns));
    for (int64_t i = 0; i < f.rows; ++i)
      m.add_row(i, 1, std::span(out).subspan(static_cast<size_t>(i * f.columns), static_cast<size_t>(f.columns)));
    return out;
  }

  Shape shape_of(const std::string& name, const Layer& layer, Part p) const {
    if (layer.has(p)) return file_.at(layer.parts.at(p)).shape;
    const auto* ending = std::ranges::find(kEndings, p, &Ending::part);
    throw Error(ErrorKind::Model, file_.name(),
                "layer '" + shown(name) + "' has no '" + std::string(ending->text.substr(1)) + "' beside '" +
                    shown(layer.all.front()) + "'");
  }

  std::vector<float> values(const std::string& tensor) const {
    const TensorView& t = file_.at(tensor);
    TENON_CHECK(Model, is_float(t.dtype), file_.name())
        << "tensor '" << shown(tensor) << "' is of type " << name_of(t.dtype) << ", expected floating point";
    std::vector<float> out(static_cast<size_t>(t.shape.numel()));
    load_floats(t.dtype, t.data, out);
    for (size_t i = 0; i < out.size(); ++i)
      TENON_CHECK(Model, std::isfinite(out[i]), file_.name())
          << "tensor '" << shown(tensor) << "' holds " << out[i] << " at element " << i;
    return out;
  }

  double alpha(const Layer& layer) const {
    const std::string& name = layer.parts.at(Part::Alpha);
    const TensorView& t = file_.at(name);
    TENON_CHECK(Model, t.shape.numel() == 1, file_.name())
        << "tensor '" << shown(name) << "' is " << t.shape.str() << ", expected one number";
    const double value = load_element(t.dtype, t.data, 0);
    TENON_CHECK(Model, std::isfinite(value), file_.name()) << "tensor '" << shown(name) << "' holds " << value;
    return value;
  }

  void judge() {
    const std::vector<std::string>& rest = out_.report.unmatched;
    const std::string first = rest.empty() ? "" : ", such as '" + shown(rest.front()) + "'";
    if (out_.changes.empty() && unread_) refuse_kind();
    TENON_CHECK(Model, !out_.changes.empty(), file_.name())
        << "is not a LoRA for this model: no layer matches any of its "
        << file_.tensors().size() + file_.unsupported().size() << " tensors" << first;
    if (rest.empty() || rest_ == LoraRest::LeftOut) return;
    throw Error(ErrorKind::Model, file_.name(),
                std::to_string(rest.size()) + " of " +
                    std::to_string(file_.tensors().size() + file_.unsupported().size()) +
                    " tensors match no layer of this model or are of an unsupported kind" + first,
                "--lora-partial (Python: partial=True) applies the others");
  }

  // For a file that changes this model, but has no layer of a kind that is read.
  [[noreturn]] void refuse_kind() const {
    const std::vector<std::string>& rest = out_.report.unmatched;
    const auto magnitude = std::ranges::find_if(rest, is_magnitude);
    throw Error(ErrorKind::Model, file_.name(),
                magnitude != rest.end()
                    ? "is a DoRA, which is not supported: it holds '" + shown(*magnitude) + "'"
                    : "has only layers of kinds that are not supported: it holds '" + shown(rest.front()) + "'");
  }

  const SafetensorsFile& file_;
  const LoraNames& names_;
  LoraRest rest_;
  LoraScale scale_;
  std::map<std::string, Layer> layers_;
  bool unread_ = false;  // whether a layer of this model is of a kind that is not read
  Lora out_;
};

}  // namespace

void LoraMatrix::add_row(int64_t row, double factor, std::span<float> values) const {
  const auto s = static_cast<float>(factor * scale);
  if (rank == 0) {  // down and up are the Kronecker factors
    const int64_t outer = columns / inner_columns;
    const float* const w1 = down.data() + row / inner_rows * outer;
    const float* const w2 = up.data() + row % inner_rows * inner_columns;
    for (int64_t j = 0; j < outer; ++j)
      for (int64_t k = 0; k < inner_columns; ++k)
        values[static_cast<size_t>(j * inner_columns + k)] += s * (w1[j] * w2[k]);
    return;
  }
  std::vector<float> sum(values.size());
  for (int64_t r = 0; r < rank; ++r) {
    const float b = up[static_cast<size_t>(row * rank + r)];
    const float* const a = down.data() + r * columns;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += b * a[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) values[i] += s * sum[i];
}

std::string LoraReport::str() const {
  std::string out;
  for (const auto& [component, count] : layers)
    out += (out.empty() ? "" : ", ") + std::to_string(count) +
           (out.empty() ? count == 1 ? " layer of " : " layers of " : " of ") + component;
  return rank ? out + ", rank " + std::to_string(rank) : out;
}

Lora read_lora(const SafetensorsFile& file, const LoraNames& names, LoraRest rest, const nlohmann::json& config) {
  return Reader(file, names, rest, config).run();
}

Lora read_lora(const std::filesystem::path& path, const LoraNames& names, LoraRest rest) {
  const std::filesystem::path beside = path.parent_path() / kAdapterConfig;
  const bool peft = path.filename() == kAdapterWeights && file_exists(beside);
  return read_lora(SafetensorsFile::open(path), names, rest, peft ? read_json(beside) : nlohmann::json());
}

}  // namespace tenon
