// Z-Image from single files: names and types that other programs give its parts, against the same model in a folder,
// and errors about invalid files.
#include <cmath>
#include <regex>

#include "tenon/core/dtype.h"
#include "tenon/pipelines/language_model.h"
#include "tenon/pipelines/model_parts.h"
#include "tenon/pipelines/model_report.h"
#include "tests/gguf/gguf_bytes.h"
#include "tests/pipelines/z_image_fixture.h"
#include "tests/support/close.h"

namespace tenon {
namespace {
namespace fs = std::filesystem;

struct FileTensor {
  Shape shape;
  std::vector<float> values;
};
using FileTensors = std::map<std::string, FileTensor>;

std::string replaced(std::string name, std::initializer_list<std::pair<const char*, const char*>> pairs) {
  for (const auto& [from, to] : pairs) name = std::regex_replace(name, std::regex(from), to);
  return name;
}

std::vector<float> numbers_of(const HostView& view) {
  std::vector<float> out;
  for (int64_t i = 0; i < view.shape.numel(); ++i)
    out.push_back(static_cast<float>(load_element(view.dtype, view.data, i)));
  return out;
}

FileTensors tensors_of(const ZImageModel& model, const std::string& component) {
  FileTensors out;
  const auto weights = model.weights(component);
  for (const auto& [name, shape] : model.shapes(component)) out[name] = {shape, numbers_of(weights->find(name))};
  return out;
}

// ComfyUI's names, with queries, keys and values joined.
FileTensors comfy_names(const FileTensors& tensors, const std::string& prefix = "") {
  FileTensors out;
  for (const auto& [name, tensor] : tensors) {
    if (std::regex_search(name, std::regex("attention\\.to_[kv]\\."))) continue;
    FileTensor t = tensor;
    if (const size_t at = name.find("to_q."); at != std::string::npos) {
      for (const char* other : {"to_k.", "to_v."}) {
        const std::vector<float>& more = tensors.at(std::string(name).replace(at, 5, other)).values;
        t.values.insert(t.values.end(), more.begin(), more.end());
      }
      t.shape = {3 * t.shape[0], t.shape[1]};
    }
    out[prefix + replaced(name, {{"^all_x_embedder\\.2-1", "x_embedder"},
                                 {"^all_final_layer\\.2-1", "final_layer"},
                                 {"attention\\.to_q", "attention.qkv"},
                                 {"attention\\.to_out\\.0", "attention.out"},
                                 {"attention\\.norm_([qk])", "attention.$1_norm"}})] = t;
  }
  return out;
}

FileTensors ldm_names(const FileTensors& tensors, const std::string& prefix = "") {
  FileTensors out;
  for (const auto& [name, tensor] : tensors) {
    FileTensor t = tensor;
    if (name.find("attentions.0.to_") != std::string::npos && t.shape.rank() == 2)
      t.shape = {t.shape[0], t.shape[1], 1, 1};
    std::string to = replaced(name, {{"down_blocks\\.(\\d)\\.resnets", "down.$1.block"},
                                     {"down_blocks\\.(\\d)\\.downsamplers\\.0", "down.$1.downsample"},
                                     {"up_blocks\\.(\\d)\\.resnets", "up.$1.block"},
                                     {"up_blocks\\.(\\d)\\.upsamplers\\.0", "up.$1.upsample"},
                                     {"mid_block\\.resnets\\.0", "mid.block_1"},
                                     {"mid_block\\.resnets\\.1", "mid.block_2"},
                                     {"mid_block\\.attentions\\.0", "mid.attn_1"},
                                     {"attn_1\\.group_norm", "attn_1.norm"},
                                     {"attn_1\\.to_([qkv])", "attn_1.$1"},
                                     {"attn_1\\.to_out\\.0", "attn_1.proj_out"},
                                     {"conv_shortcut", "nin_shortcut"},
                                     {"conv_norm_out", "norm_out"}});
    if (const size_t at = to.find("decoder.up."); at == 0) to[11] = static_cast<char>('0' + '3' - to[11]);
    out[prefix + to] = t;
  }
  return out;
}

std::vector<std::byte> bytes_of(const std::vector<float>& values, DType type) {
  std::vector<std::byte> out(values.size() * static_cast<size_t>(size_of(type)));
  for (size_t i = 0; i < values.size(); ++i) store_element(type, out.data(), static_cast<int64_t>(i), values[i]);
  return out;
}

void write_tensors(
    const fs::path& file, const FileTensors& tensors,
    const std::function<DType(const std::string&)>& type_of = [](auto&) { return DType::F32; }) {
  std::vector<std::vector<std::byte>> data;
  std::vector<TensorData> all;
  data.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    data.push_back(bytes_of(tensor.values, type_of(name)));
    all.push_back({name, type_of(name), tensor.shape, data.back()});
  }
  write_safetensors(file, all);
}

// Rows of 32 as Q8_0 blocks; `values` become the numbers that these represent.
std::string q8_blocks(std::vector<float>& values) {
  std::string out;
  for (size_t begin = 0; begin < values.size(); begin += 32) {
    float most = 0;
    for (size_t i = begin; i < begin + 32; ++i) most = std::max(most, std::abs(values[i]));
    uint16_t bits = 0;
    store_element(DType::F16, &bits, 0, most / 127);
    const auto d = static_cast<float>(load_element(DType::F16, &bits, 0));
    out.append(reinterpret_cast<const char*>(&bits), 2);
    for (size_t i = begin; i < begin + 32; ++i) {
      const auto q = static_cast<int8_t>(std::lround(values[i] / d));
      out += static_cast<char>(q);
      values[i] = d * static_cast<float>(q);
    }
  }
  return out;
}

// With `quantised`, matrices with whole blocks are stored in Q8_0, and `tensors` become the values of those.
void write_gguf(const fs::path& file, gguf_test::GgufBytes bytes, FileTensors& tensors, bool quantised) {
  std::string data;
  for (auto& [name, t] : tensors) {
    std::vector<uint64_t> extents;
    for (int i = t.shape.rank() - 1; i >= 0; --i) extents.push_back(static_cast<uint64_t>(t.shape[i]));
    const bool blocks = quantised && t.shape.rank() == 2 && t.shape[1] % 32 == 0;
    data.resize((data.size() + 31) / 32 * 32);
    bytes.tensor(name, extents, static_cast<uint32_t>(blocks ? BlockType::Q8_0 : BlockType::F32), data.size());
    if (blocks)
      data += q8_blocks(t.values);
    else
      data.append(reinterpret_cast<const char*>(t.values.data()), t.values.size() * sizeof(float));
  }
  data.resize((data.size() + 31) / 32 * 32);
  const std::string all = bytes.data(0).raw(data).bytes();
  std::ofstream(file, std::ios::binary).write(all.data(), static_cast<std::streamsize>(all.size()));
}

class ZImageFiles : public ZImageFolder {
 protected:
  ZImageFiles() {
    folder_ = ZImageModel::open(path.string());
    fs::create_directories(files);
    parts.text_encoder = (path / "text_encoder").string();
    parts.vae = (path / "vae").string();
  }
  FileTensors tensors(const char* component) const { return tensors_of(*folder_, component); }

  void write_transformer(const FileTensors& all, bool quantised = false) const {
    FileTensors copy = all;
    gguf_test::GgufBytes bytes;
    bytes.header(copy.size(), 1).string_key("general.architecture", "lumina2");
    write_gguf(files / "t.gguf", bytes, copy, quantised);
  }
  void write_text_gguf(FileTensors all, const std::string& architecture = "qwen3") const {
    FileTensors named;
    for (const auto& [name, t] : all)
      named[replaced(name, {{"^model\\.embed_tokens", "token_embd"},
                            {"^model\\.norm", "output_norm"},
                            {"^model\\.layers\\.", "blk."},
                            {"input_layernorm", "attn_norm"},
                            {"self_attn\\.([qkv])_proj", "attn_$1"},
                            {"self_attn\\.o_proj", "attn_output"},
                            {"self_attn\\.([qk])_norm", "attn_$1_norm"},
                            {"post_attention_layernorm", "ffn_norm"},
                            {"mlp\\.(gate|up|down)_proj", "ffn_$1"}})] = t;
    const DecoderConfig& c = folder_->text();
    gguf_test::GgufBytes bytes;
    bytes.header(named.size(), 10).string_key("general.architecture", architecture);
    const auto number = [&](const std::string& key, int64_t value) {
      bytes.key(architecture + "." + key, GgufType::U32).number(static_cast<uint32_t>(value));
    };
    number("embedding_length", c.width);
    number("block_count", c.layers);
    number("feed_forward_length", c.hidden);
    number("attention.head_count", c.heads);
    number("attention.head_count_kv", c.key_heads);
    number("attention.key_length", c.head_width);
    number("context_length", 1024);
    bytes.key(architecture + ".attention.layer_norm_rms_epsilon", GgufType::F32).number(1e-6f);
    bytes.key(architecture + ".rope.freq_base", GgufType::F32).number(1e6f);
    write_gguf(files / "q.gguf", bytes, named, false);
  }

  std::vector<float> drawn(const std::string& spec, const PartPaths& from) const {
    PipelineOptions o;
    o.type = DType::F32;
    ImageRequest r;
    r.prompt = "a red circle";
    r.width = 32;
    r.height = 16;
    r.steps = 2;
    return ZImageGenerator(ZImageModel::open(spec, 0, from), o).generate(r).latents;
  }
  std::vector<float> expected() const { return drawn(path.string(), {}); }

  void expect_error(const std::string& what, const std::string& spec, const PartPaths& from) const {
    try {
      const auto model = ZImageModel::open(spec, 0, from);
      model->require_all();
      for (const auto& [name, component] : model->components()) model->weights(name);
      ADD_FAILURE() << "opened; expected: " << what;
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::Model)) << e.what();
      EXPECT_THAT(e.what(), testing::HasSubstr(what));
    }
  }
  std::string at(const char* name) const { return (files / name).string(); }

  std::shared_ptr<const ZImageModel> folder_;
  fs::path files = path / "files";
  PartPaths parts;
};

// As a language model: tensors that the network has no place for are refused, since they would change the results.
TEST_F(ZImageFiles, ALanguageModelRefusesWhatItWouldDrop) {
  FileTensors all = tensors("text_encoder");
  const FileTensors read = all;  // a text encoder needs neither its last layer nor the final norm
  const FileTensor norm = all.at("model.layers.0.input_layernorm.weight");
  all.emplace("model.norm.weight", norm);
  for (const auto& [name, t] : read)
    if (name.starts_with("model.layers.0.")) all.emplace(replaced(name, {{"layers\\.0", "layers.2"}}), t);
  write_text_gguf(all);
  EXPECT_EQ(LanguageModel::open(at("q.gguf"))->config().layers, folder_->text().layers);
  for (const std::string name : {"rope_freqs.weight", "blk.1.attn_output.bias", "blk.1.ffn_up.bias"}) {
    FileTensors more = all;
    more[name] = norm;
    write_text_gguf(more);
    try {
      LanguageModel::open(at("q.gguf"));
      ADD_FAILURE() << name << " was dropped";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Model);
      EXPECT_NE(std::string(e.what()).find(name.substr(0, 4) == "rope" ? "rope_freqs.weight" : "has no tensor"),
                std::string::npos)
          << e.what();
    }
    PartPaths with = parts;
    with.text_encoder = at("q.gguf");
    expect_error(name.starts_with("rope") ? "rope_freqs.weight" : "has no tensor", (path / "transformer").string(),
                 with);
  }
}

TEST_F(ZImageFiles, TransformersOfOtherPrograms) {
  const std::vector<float> want = expected();
  for (const char* prefix : {"", "model.diffusion_model."}) {
    FileTensors t = comfy_names(tensors("transformer"), prefix);
    t[std::string(prefix) + "norm_final.weight"] = {{3}, {1, 2, 3}};
    write_tensors(files / "t.safetensors", t);
    EXPECT_TRUE(ZImageCheckpoint::reads(files / "t.safetensors"));
    EXPECT_EQ(drawn(at("t.safetensors"), parts), want) << prefix;
  }
  EXPECT_EQ(family_of(at("t.safetensors")).name, "z-image");
  // diffusers' own names in one file, instead of the folder's transformer
  write_tensors(files / "d.safetensors", tensors("transformer"));
  fs::remove(path / "transformer/diffusion_pytorch_model-00002-of-00002.safetensors");
  EXPECT_EQ(drawn(path.string(), {.diffusion_model = at("d.safetensors")}), want);
  const auto alone = ZImageModel::open(at("d.safetensors"));  // without a VAE, latents are those of the published one
  EXPECT_EQ(alone->vae().latent_channels, alone->transformer().channels);
  EXPECT_EQ(alone->vae().latent_of(1), flux_vae().latent_of(1));
}

TEST_F(ZImageFiles, EveryPartAFile) {
  write_tensors(files / "t.safetensors", comfy_names(tensors("transformer")));
  write_tensors(files / "ae.safetensors", ldm_names(tensors("vae")));
  fs::create_directories(files / "llm");
  const auto text = SafetensorsFile::open(path / "text_encoder/model.safetensors");
  FileTensors all;
  for (const auto& [name, view] : text.tensors())
    all["model." + name] = {view.shape, numbers_of({view.dtype, view.shape, view.data})};
  write_tensors(files / "llm/qwen.safetensors", all);
  const PartPaths alone{.text_encoder = at("llm/qwen.safetensors"), .vae = at("ae.safetensors")};
  expect_error("has no folder tokenizer/", at("t.safetensors"), alone);
  fs::rename(path / "tokenizer", files / "llm/tokenizer");
  const auto model = ZImageModel::open(at("t.safetensors"), 0, alone);
  EXPECT_EQ(model->text().heads, 4);
  EXPECT_EQ(model->text().head_width, 16);
  EXPECT_EQ(model->transformer().axis_depths, folder_->transformer().axis_depths);
  EXPECT_EQ(model->vae().shift_factor, 0.1159);
  const std::vector<float> found = drawn(at("t.safetensors"), alone);
  fs::rename(files / "llm/tokenizer", path / "tokenizer");
  EXPECT_EQ(found, expected());
}

TEST_F(ZImageFiles, EverythingInOneFile) {
  FileTensors all = comfy_names(tensors("transformer"), "model.diffusion_model.");
  all.merge(ldm_names(tensors("vae"), "vae."));
  const auto text = SafetensorsFile::open(path / "text_encoder/model.safetensors");
  for (const auto& [name, view] : text.tensors())
    all["text_encoders.qwen3_4b.transformer.model." + name] = {view.shape,
                                                               numbers_of({view.dtype, view.shape, view.data})};
  all["text_encoders.qwen3_4b.logit_scale"] = {{1}, {4}};
  write_tensors(files / "all.safetensors", all);
  fs::copy(path / "tokenizer", files / "tokenizer");
  EXPECT_EQ(drawn(at("all.safetensors"), {}), expected());
  const ModelReport report = family_of(at("all.safetensors")).inspect(files / "all.safetensors");
  EXPECT_TRUE(report.usable);
  EXPECT_EQ(report.components.size(), 3U);
  EXPECT_EQ(report.kind, "safetensors file");
}

// Elements with fewer bits, read in place; scales of eight-bit ones.
TEST_F(ZImageFiles, TypesAndScales) {
  const FileTensors all = tensors("transformer");
  const std::string name = "layers.1.attention.to_k.weight";
  const auto read = [&](const FileTensors& stored, DType type) {
    write_tensors(files / "t.safetensors", stored, [&](const std::string& n) {
      return n.ends_with("attention.qkv.weight") || n.ends_with("ffn_norm1.weight") ? type : DType::F32;
    });
    const auto model = ZImageModel::open(at("t.safetensors"), 0, parts);
    return numbers_of(model->weights("transformer")->find(name));
  };
  const std::vector<float>& exact = all.at(name).values;
  const auto rounded = [&](DType type, size_t i, float scale = 1) {
    uint64_t bits = 0;
    store_element(type, &bits, 0, exact[i]);
    return static_cast<float>(load_element(type, &bits, 0)) * scale;
  };
  FileTensors stored = comfy_names(all);
  for (const DType type : {DType::BF16, DType::F16, DType::E4M3}) {
    const std::vector<float> found = read(stored, type);
    ASSERT_EQ(found.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(found[i], rounded(type, i)) << name_of(type);
  }
  stored["scaled_fp8"] = {{1}, {0}};
  stored["layers.1.attention.qkv.scale_weight"] = {{1}, {0.25f}};
  stored["layers.1.attention.qkv.scale_input"] = {{1}, {3}};
  std::vector<float> found = read(stored, DType::E4M3);
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(found[i], rounded(DType::E4M3, i, 0.25f));
  FileTensor rows{{288, 1}, {}};
  for (int i = 0; i < 288; ++i) rows.values.push_back(static_cast<float>(i));
  stored.erase("layers.1.attention.qkv.scale_weight");
  stored["layers.1.attention.qkv.weight_scale"] = rows;
  found = read(stored, DType::E4M3);
  for (size_t i = 0; i < exact.size(); ++i)
    ASSERT_EQ(found[i], rounded(DType::E4M3, i, static_cast<float>(96 + i / 96)));
  stored["layers.1.attention.qkv.weight_scale"] = {{6}, {1, 2, 3, 4, 5, 6}};
  write_tensors(files / "t.safetensors", stored, [](const std::string& n) {
    return n.find("qkv.weight") != n.npos && !n.ends_with("scale") ? DType::E4M3 : DType::F32;
  });
  expect_error("has scales f32[2]; expected one number, or one per row", at("t.safetensors"), parts);
  stored["layers.1.attention.qkv.weight_scale"] = {{1}, {0.25f}};
  write_tensors(files / "t.safetensors", stored, [](const std::string&) { return DType::BF16; });
  expect_error("is of type bf16 and has scales, expected them beside e4m3 only", at("t.safetensors"), parts);
}

TEST_F(ZImageFiles, Gguf) {
  const std::vector<float> want = expected();
  FileTensors stored = comfy_names(tensors("transformer"));
  for (const char* row : {"x_pad_token", "cap_pad_token"}) stored.at(row).shape = {96};
  write_transformer(stored);
  const SafetensorsFile text = SafetensorsFile::open(path / "text_encoder/model.safetensors");
  FileTensors all;
  for (const auto& [name, view] : text.tensors())
    all["model." + name] = {view.shape, numbers_of({view.dtype, view.shape, view.data})};
  write_text_gguf(all);
  fs::copy(path / "tokenizer", files / "tokenizer");
  EXPECT_TRUE(ZImageCheckpoint::reads(files / "t.gguf"));
  EXPECT_EQ(drawn(at("t.gguf"), {.text_encoder = at("q.gguf"), .vae = parts.vae}), want);
  EXPECT_EQ(family_of(at("t.gguf")).inspect(files / "t.gguf").kind, "GGUF file");
  // The transformer alone can be inspected.
  const auto alone = open_parts(at("t.gguf"));
  EXPECT_EQ(alone->parts(), std::vector<std::string>{"transformer"});
  PartRequest small;
  small.width = small.height = 32;
  EXPECT_GT(alone->plan("transformer", small, {}).phases.size(), 0U);
}

// Blocks are converted to the numbers that they represent, which are used in the computation.
TEST_F(ZImageFiles, GgufInBlocks) {
  FileTensors stored = comfy_names(tensors("transformer")), meant = stored;
  write_transformer(stored, true);
  for (auto& [name, t] : meant)
    if (t.shape.rank() == 2 && t.shape[1] % 32 == 0) q8_blocks(t.values);
  EXPECT_NE(meant.at("layers.0.attention.qkv.weight").values, stored.at("layers.0.attention.qkv.weight").values);
  write_tensors(files / "meant.safetensors", meant);
  EXPECT_EQ(drawn(at("t.gguf"), parts), drawn(at("meant.safetensors"), parts));
  // Numbers are recomputed after they were freed.
  const auto model = ZImageModel::open(at("t.gguf"), 0, parts);
  const auto weights = model->weights("transformer");
  const std::string name = "layers.0.feed_forward.w2.weight";
  const std::vector<float> first = numbers_of(weights->find(name));
  weights->done(name);
  EXPECT_EQ(numbers_of(weights->find(name)), first);
  EXPECT_EQ(first, meant.at(name).values);
}

TEST_F(ZImageFiles, PartsThatAreMissingOrOthers) {
  FileTensors t = comfy_names(tensors("transformer"));
  write_tensors(files / "t.safetensors", t);
  expect_error("has no text_encoder, which is needed to generate (pass its file or folder with --llm)",
               at("t.safetensors"), {.vae = parts.vae});
  expect_error("has no vae, which is needed to generate", at("t.safetensors"), {.text_encoder = parts.text_encoder});
  expect_error("no model at", at("t.safetensors"), {.vae = at("none")});
  expect_error("has no config.json", at("t.safetensors"), {.vae = files.string()});
  expect_error("not a VAE of a supported kind", at("t.safetensors"), {.vae = at("t.safetensors")});
  expect_error("not a Qwen3 text encoder", at("t.safetensors"), {.text_encoder = at("t.safetensors")});
  write_transformer(t);
  expect_error("architecture 'lumina2', not a vae; a VAE is read from a .safetensors file", at("t.gguf"),
               {.vae = at("t.gguf")});
  write_text_gguf({}, "llama");
  expect_error("is a GGUF file of architecture 'llama'; expected qwen3 for the text encoder", at("t.gguf"),
               {.text_encoder = at("q.gguf")});
  try {
    ZImageModel::open("random:z-image", 0, parts);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::Usage));
  }
}

TEST_F(ZImageFiles, FilesThatAreWrong) {
  const FileTensors right = comfy_names(tensors("transformer"));
  const auto changed = [&](const std::string& what, const std::function<void(FileTensors&)>& change) {
    FileTensors t = right;
    change(t);
    write_tensors(files / "t.safetensors", t);
    expect_error(what, at("t.safetensors"), parts);
    write_transformer(t);
    expect_error(what, at("t.gguf"), parts);
  };
  const std::string joined = "layers.0.attention.qkv.weight";
  changed("1 missing: layers.1.ffn_norm1.weight", [](FileTensors& t) { t.erase("layers.1.ffn_norm1.weight"); });
  changed("of the wrong shape: layers.0.feed_forward.w2.weight", [](FileTensors& t) {
    FileTensor& w = t.at("layers.0.feed_forward.w2.weight");
    w.shape = {w.shape[1], w.shape[0]};
  });
  changed("times as many rows as a query has", [&](FileTensors& t) {
    t.at(joined) = {{4, 96}, std::vector<float>(4 * 96)};
  });
  changed("two tensors map to 'layers.0.attention.to_k.weight'",
          [&](FileTensors& t) { t["layers.0.attention.to_k.weight"] = t.at("layers.0.attention.out.weight"); });
  changed("shows heads of 7 elements", [&](FileTensors& t) {
    t.at("layers.0.attention.q_norm.weight") = {{7}, std::vector<float>(7)};
  });
  write_transformer(right);
  fs::resize_file(files / "t.gguf", fs::file_size(files / "t.gguf") / 2);
  expect_error("t.gguf]", at("t.gguf"), parts);
  const auto drawing = [&](const char* file) {
    try {
      PipelineOptions options;
      options.parts = parts;
      open_as<ImageGenerator>(at(file), options);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(drawing("t.gguf"), testing::ContainsRegex("t.gguf] .*(truncated|beyond|exceed|bytes)"));
  write_text_gguf(tensors("text_encoder"), "flux");
  EXPECT_THAT(drawing("q.gguf"),
              testing::EndsWith("] is a GGUF file of architecture 'flux'; expected lumina2 (z-image)"));
  try {
    family_of(at("q.gguf"));
    ADD_FAILURE();
  } catch (const Error& e) {  // for any purpose
    EXPECT_THAT(e.what(), testing::EndsWith("expected llama (language model) or qwen2 (language model) or qwen3 "
                                            "(language model) or lumina2 (z-image)"));
  }
  std::ofstream(files / "t.safetensors") << "GGUF";
  expect_error("not a safetensors file", at("t.safetensors"), parts);
}

TEST_F(ZImageFiles, SwishIsAnotherNameOfSilu) {
  const std::vector<float> silu = expected();
  edit("text_encoder/config.json", [](nlohmann::json& c) { c["hidden_act"] = "swish"; });
  EXPECT_EQ(expected(), silu);
}

// Refiners that add nothing: the last scale of each of their branches is 0.
TEST_F(ZImageFiles, WithoutRefiners) {
  FileTensors all = tensors("transformer");
  int silent = 0;
  for (auto& [name, tensor] : all)
    if (std::regex_search(name, std::regex("_refiner\\..*_norm2\\.weight")) && ++silent)
      std::ranges::fill(tensor.values, 0.0F);
  EXPECT_EQ(silent, 8);  // two blocks, each for pictures and texts
  const fs::path folder = path / "transformer";
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != "config.json") fs::remove(entry.path());
  write_tensors(folder / "diffusion_pytorch_model.safetensors", all);
  const std::vector<float> with = expected();
  edit("transformer/config.json", [](nlohmann::json& c) { c["n_refiner_layers"] = 0; });
  EXPECT_TRUE(close_to_largest(expected(), with, 1e-5));
}

}  // namespace
}  // namespace tenon
