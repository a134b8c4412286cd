// Checkpoints: every layout gives the same names, and anything that is not a checkpoint is refused.
#include "tenon/models/stable_diffusion_checkpoint.h"

#include <fstream>
#include <set>

#include "tenon/models/stable_diffusion_names.h"
#include "tests/io/io_test_tools.h"

namespace {
using namespace io_test;
using namespace tenon;

const std::string kText = "text_model.embeddings.token_embedding.weight";

TEST(LdmNames, EqualToDiffusersConverter) {
  std::ifstream in(fixture("io/ldm_names.tsv"));
  std::set<std::string> seen;
  for (std::string line; std::getline(in, line);) {
    const size_t tab = line.find('\t');
    std::string name = line.substr(0, tab);
    const bool unet = name.starts_with("model.diffusion_model.");
    name.erase(0, unet ? 22 : 18);
    const std::string mapped = unet ? unet_name_from_ldm(name) : vae_name_from_ldm(name, 4);
    EXPECT_EQ(mapped, line.substr(tab + 1)) << line;
    EXPECT_TRUE(seen.insert((unet ? "unet." : "vae.") + mapped).second) << line;
  }
  EXPECT_EQ(seen.size(), 686u + 248u);
}

TEST(LdmNames, UnknownNamesHaveNoCounterpart) {
  for (const char* name :
       {"", "input_blocks", "input_blocks.", "input_blocks.x.0", "input_blocks.1.7.a", "input_blocks.3.0.x",
        "input_blocks.1.0.in_layers.9.weight", "input_blocks.0.1.weight", "output_blocks.1.2.weight",
        "output_blocks.99999999999.0.a", "middle_block.3.weight", "time_embed.1.weight", "label_emb.0.0.weight"})
    EXPECT_EQ(unet_name_from_ldm(name), "") << name;
  for (const char* name : {"", "encoder.down.9.block.0.norm1.weight", "encoder.down.0.block.x",
                           "encoder.mid.attn_1.z.weight", "encoder.down.0.attn.0.q.weight", "loss.logvar"})
    EXPECT_EQ(vae_name_from_ldm(name, 4), "") << name;
}

TEST(LdmNames, OldAttentionAndTextPrefix) {
  EXPECT_EQ(vae_name_from_old("encoder.mid_block.attentions.0.query.weight"),
            "encoder.mid_block.attentions.0.to_q.weight");
  EXPECT_EQ(vae_name_from_old("decoder.mid_block.attentions.0.proj_attn.bias"),
            "decoder.mid_block.attentions.0.to_out.0.bias");
  EXPECT_EQ(vae_name_from_old("decoder.mid_block.attentions.0.to_k.bias"), "decoder.mid_block.attentions.0.to_k.bias");
  EXPECT_EQ(text_name_with_prefix("encoder.layers.0.mlp.fc1.weight"), "text_model.encoder.layers.0.mlp.fc1.weight");
  EXPECT_EQ(text_name_with_prefix(kText), kText);
}

// A folder in diffusers' layout with one or two tensors per component.
void write_folder(const TempFolder& f, const std::string& variant = "") {
  put(f / "model_index.json", R"({"_class_name":"StableDiffusionPipeline"})");
  put(f / "unet/config.json", R"({"in_channels":4})");
  put(f / "scheduler/scheduler_config.json", R"({"beta_end":0.012,"lambda_min_clipped":-Infinity})");
  put(f / "tokenizer/vocab.json", "{}");
  write_f32(f / ("unet/diffusion_pytorch_model" + variant + ".safetensors"),
            {{"conv_in.weight", {8, 4, 3, 3}}, {"conv_in.bias", {8}}});
  write_f32(f / ("vae/diffusion_pytorch_model" + variant + ".safetensors"),
            {{"encoder.mid_block.attentions.0.query.weight", {8, 8}}, {"quant_conv.bias", {8}}});
  write_f32(f / ("text_encoder/model" + variant + ".safetensors"),
            {{"embeddings.token_embedding.weight", {10, 8}}, {"text_model.embeddings.position_ids", {1, 7}}});
}

TEST(Checkpoint, DiffusersFolder) {
  const TempFolder folder;
  write_folder(folder);
  const StableDiffusionCheckpoint c = StableDiffusionCheckpoint::open(folder.path());
  EXPECT_EQ(c.kind(), CheckpointKind::DiffusersFolder);
  EXPECT_EQ(c.components().size(), 3u);
  EXPECT_EQ(c.component("unet").config["in_channels"], 4);
  EXPECT_TRUE(c.component("vae").config.is_null());
  EXPECT_EQ(c.scheduler_config()["beta_end"], 0.012);
  EXPECT_TRUE(c.scheduler_config()["lambda_min_clipped"].is_null());
  EXPECT_EQ(c.model_index()["_class_name"], "StableDiffusionPipeline");
  EXPECT_EQ(c.tokenizer(), folder / "tokenizer");
  EXPECT_EQ(c.component("vae").at("encoder.mid_block.attentions.0.to_q.weight").shape, (Shape{8, 8}));
  EXPECT_TRUE(c.component("text_encoder").tensors.contains(kText));
  EXPECT_EQ(c.component("text_encoder").ignored, std::vector<std::string>{"text_model.embeddings.position_ids"});
  EXPECT_EQ(c.component("unet").parameters(), 8 * 4 * 9 + 8);
  EXPECT_EQ(c.component("unet").bytes(), 4 * (8 * 4 * 9 + 8));
  EXPECT_EQ(c.component("unet").types(), (std::map<std::string, int64_t>{{"f32", 2}}));
  EXPECT_EQ(c.component("unet").files, std::vector<fs::path>{folder / "unet/diffusion_pytorch_model.safetensors"});
  EXPECT_EQ(c.architecture(), Architecture::StableDiffusion1);
  EXPECT_NO_THROW(c.require_stable_diffusion_1());
}

TEST(Checkpoint, VariantsAndShards) {
  for (const char* variant : {".fp16", ".non_ema"}) {
    const TempFolder folder;
    write_folder(folder, variant);
    EXPECT_EQ(StableDiffusionCheckpoint::open(folder.path()).components().size(), 3u);
    EXPECT_EQ(StableDiffusionCheckpoint::open(folder.path(), {std::string(variant + 1), false}).components().size(),
              3u);
    expect_error(ErrorKind::Model, "has no weights; looked for model.none.safetensors", [&] {
      StableDiffusionCheckpoint::open(folder.path(), {"none", false});
    });
  }
  const TempFolder folder;
  write_f32(folder / "unet/a.safetensors", {{"conv_in.weight", {8, 4, 3, 3}}});
  write_f32(folder / "unet/b.safetensors", {{"conv_in.bias", {8}}});
  put(folder / "unet/diffusion_pytorch_model.safetensors.index.fp16.json",
      R"({"weight_map":{"conv_in.weight":"a.safetensors","conv_in.bias":"b.safetensors"}})");
  const Component unet = StableDiffusionCheckpoint::open(folder.path()).component("unet");
  EXPECT_EQ(unet.tensors.size(), 2u);
  EXPECT_EQ(unet.files, (std::vector<fs::path>{folder / "unet/diffusion_pytorch_model.safetensors.index.fp16.json",
                                               folder / "unet/a.safetensors", folder / "unet/b.safetensors"}));
}

TEST(Checkpoint, SingleFile) {
  const TempFolder folder;
  write_f32(folder / "sd.safetensors",
            {{"model.diffusion_model.input_blocks.0.0.weight", {8, 4, 3, 3}},
             {"model.diffusion_model.unheard.of", {1}},
             {"model_ema.diffusion_modelinput_blocks00weight", {8, 4, 3, 3}},
             {"model_ema.diffusion_modelunheardof", {1}},
             {"model_ema.decay", {}},
             {"betas", {1000}},
             {"sqrt_alphas_cumprod", {1000}},
             {"first_stage_model.decoder.up.1.block.0.conv1.weight", {8, 8, 3, 3}},
             {"first_stage_model.encoder.mid.attn_1.q.weight", {8, 8, 1, 1}},
             {"first_stage_model.decoder.mid.attn_1.proj_out.weight", {8, 8, 1}},
             {"first_stage_model.loss.logvar", {}},
             {"cond_stage_model.transformer.text_model.embeddings.token_embedding.weight", {10, 8}},
             {"cond_stage_model.transformer.encoder.layers.0.mlp.fc1.bias", {8}},
             {"cond_stage_model.transformer.text_model.embeddings.position_ids", {1, 7}},
             {"something.else", {1}}});
  const StableDiffusionCheckpoint c = StableDiffusionCheckpoint::open(folder / "sd.safetensors");
  EXPECT_EQ(c.kind(), CheckpointKind::SingleFile);
  EXPECT_EQ(first_value(c.component("unet").at("conv_in.weight")), 0.0f);
  EXPECT_EQ(c.component("unet").tensors.size(), 1u);
  const Component& vae = c.component("vae");
  EXPECT_EQ(vae.at("encoder.mid_block.attentions.0.to_q.weight").shape, (Shape{8, 8}));
  EXPECT_EQ(vae.at("decoder.mid_block.attentions.0.to_out.0.weight").shape, (Shape{8, 8}));
  EXPECT_TRUE(vae.tensors.count("decoder.up_blocks.0.resnets.0.conv1.weight"));  // the file's names show two levels
  EXPECT_TRUE(c.component("text_encoder").tensors.count(kText));
  EXPECT_TRUE(c.component("text_encoder").tensors.count("text_model.encoder.layers.0.mlp.fc1.bias"));
  EXPECT_EQ(c.unexpected(), (std::vector<std::string>{"model.diffusion_model.unheard.of", "something.else"}));
  EXPECT_EQ(c.ignored().size(), 5u);
  EXPECT_FALSE(c.uses_ema());
  EXPECT_FALSE(c.tokenizer().has_value());

  put(folder / "tokenizer/vocab.json", "{}");  // next to the file, where a user can put one
  EXPECT_EQ(StableDiffusionCheckpoint::open(folder / "sd.safetensors").tokenizer(), folder / "tokenizer");

  const StableDiffusionCheckpoint averaged = StableDiffusionCheckpoint::open(folder / "sd.safetensors", {"", true});
  EXPECT_TRUE(averaged.uses_ema());
  EXPECT_EQ(first_value(averaged.component("unet").at("conv_in.weight")), 2.0f);
}

TEST(Checkpoint, BareComponents) {
  const TempFolder folder;
  write_f32(folder / "vae.safetensors", {{"decoder.conv_in.weight", {8, 4, 3, 3}}, {"decoder.mid.attn_1.k.bias", {8}}});
  const StableDiffusionCheckpoint vae = StableDiffusionCheckpoint::open(folder / "vae.safetensors");
  EXPECT_EQ(vae.kind(), CheckpointKind::ComponentFile);
  EXPECT_TRUE(vae.component("vae").tensors.count("decoder.mid_block.attentions.0.to_k.bias"));
  expect_error(ErrorKind::Model, "has no unet (it has: vae)", [&] { vae.component("unet"); });
  expect_error(ErrorKind::Model, "there is no tensor 'x'", [&] { vae.component("vae").at("x"); });
  expect_error(ErrorKind::Model, "found no UNet", [&] { vae.require_stable_diffusion_1(); });

  write_f32(folder / "te.safetensors",
            {{"embeddings.token_embedding.weight", {10, 8}}, {"encoder.layers.0.mlp.fc1.bias", {8}}});
  EXPECT_EQ(StableDiffusionCheckpoint::open(folder / "te.safetensors").component("text_encoder").tensors.size(), 2u);

  write_f32(folder / "x/diffusion_pytorch_model.safetensors", {{"conv_in.weight", {8, 4, 3, 3}}});
  put(folder / "x/config.json", R"({"in_channels":4})");
  EXPECT_EQ(StableDiffusionCheckpoint::open(folder / "x").component("unet").config["in_channels"], 4);
}

TEST(Checkpoint, ArchitectureFromTheWeights) {
  struct Case {
    std::vector<NamedShape> tensors;
    Architecture architecture;
    std::string message;
  };
  const std::string cross = "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight";
  const std::vector<Case> cases = {
      {{{"conv_in.weight", {8, 9, 3, 3}}}, Architecture::Inpainting, "9 input channels: Stable Diffusion inpainting"},
      {{{"conv_in.weight", {8, 8, 3, 3}}}, Architecture::InstructPix2Pix, "8 input channels: InstructPix2Pix"},
      {{{"conv_in.weight", {8, 7, 3, 3}}}, Architecture::Unknown, "found a UNet with 7 input channels"},
      {{{"conv_in.bias", {8}}}, Architecture::Unknown, "without a convolution conv_in"},
      {{{"conv_in.weight", {8, 4, 3, 3}}, {cross, {8, 1024}}},
       Architecture::StableDiffusion2,
       "cross-attention of width 1024"},
      {{{"conv_in.weight", {8, 4, 3, 3}}, {cross, {8, 2048}}},
       Architecture::StableDiffusionXL,
       "cross-attention of width 2048"},
      {{{"conv_in.weight", {8, 4, 3, 3}}, {"add_embedding.linear_1.weight", {8, 8}}},
       Architecture::StableDiffusionXL,
       "add_embedding"},
      {{{"model.diffusion_model.input_blocks.0.0.weight", {8, 4, 3, 3}},
        {"cond_stage_model.model.ln_final.weight", {8}}},
       Architecture::StableDiffusion2,
       "Stable Diffusion 2.x, which is not supported"},
      {{{"conditioner.embedders.0.x", {8}}}, Architecture::StableDiffusionXL, "Stable Diffusion XL"},
      {{{kText, {10, 1024}}}, Architecture::StableDiffusion2, "a text encoder of width 1024"}};
  for (const Case& c : cases) {
    const TempFolder folder;
    write_f32(folder / "m.safetensors", c.tensors);
    const StableDiffusionCheckpoint checkpoint = StableDiffusionCheckpoint::open(folder / "m.safetensors");
    EXPECT_EQ(checkpoint.architecture(), c.architecture) << name_of(c.architecture);
    expect_error(ErrorKind::Model, c.message, [&] { checkpoint.require_stable_diffusion_1(); });
  }
}

TEST(Checkpoint, UnsupportedElementTypesAreNamed) {
  const TempFolder folder;
  put(folder / "m.safetensors",
      safetensors_bytes(R"({"conv_in.weight":{"dtype":"F8_E5M2","shape":[1,4,1,1],"data_offsets":[0,4]}})", 4));
  const StableDiffusionCheckpoint c = StableDiffusionCheckpoint::open(folder / "m.safetensors");
  expect_error(ErrorKind::Model, "[1,4,1,1] has the unsupported element type F8_E5M2",
               [&] { c.component("unet").at("conv_in.weight"); });
  expect_error(ErrorKind::Model, "'conv_in.weight' [1,4,1,1] has the unsupported element type F8_E5M2",
               [&] { c.require_stable_diffusion_1(); });
}

TEST(Checkpoint, Refusals) {
  const TempFolder folder;
  const auto expect = [&](const std::string& name, const std::string& part, const CheckpointOptions& options = {}) {
    expect_error(ErrorKind::Model, part, [&] { StableDiffusionCheckpoint::open(folder / name, options); });
  };
  expect("missing", "does not exist; expected a diffusers folder");
  put(folder / "a.ckpt", "anything");
  expect("a.ckpt", "is a Python pickle, which is not supported (a pickle can run code");
  put(folder / "zip.safetensors", "PK\x03\x04 and more bytes");
  expect("zip.safetensors", "is a Python pickle");
  put(folder / "pickle.safetensors", "\x80\x02}q");
  // A header may have the length that a pickle's first bytes encode.
  for (const uint64_t length : {0x030280u, 0x7d0580u}) {
    std::string header = R"({"__metadata__":{"a":"b"}})";
    header.resize(length, ' ');
    put(folder / "length.safetensors", safetensors_bytes(header, 0));
    expect("length.safetensors", "holds no UNet, VAE or text encoder");
  }
  expect("pickle.safetensors", "is a Python pickle");
  put(folder / "empty/notes.txt", "");
  expect("empty", "is not a model folder: looked for model_index.json");
  put(folder / "bin/unet/diffusion_pytorch_model.bin", "x");
  expect("bin", "is a Python pickle");
  put(folder / "none/unet/config.json", "{}");
  expect("none", "has no weights; looked for diffusion_pytorch_model.safetensors");
  put(folder / "index/model_index.json", "[]");
  expect("index", "expected an object, found array");
  write_f32(folder / "lora.safetensors", {{"lora_unet_x.lora_down.weight", {1}}});
  expect("lora.safetensors", "its tensors begin with: lora_unet_x.lora_down.weight");
  write_f32(folder / "plain.safetensors", {{"model.diffusion_model.input_blocks.0.0.weight", {8, 4, 3, 3}}});
  expect("plain.safetensors", "EMA weights were requested", {"", true});
  write_f32(folder / "twice.safetensors", {{"first_stage_model.quant_conv.bias", {8}}, {"vae.quant_conv.bias", {8}}});
  expect("twice.safetensors", "two tensors map to 'quant_conv.bias' of the vae");
  write_f32(folder / "mixed/model.safetensors", {{"quant_conv.bias", {8}}, {kText, {10, 8}}});
  expect("mixed", "expected the tensors of one component in model.safetensors, found those of 2");
}

}  // namespace
