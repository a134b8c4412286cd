// Which files a model is: what its hash in pictures covers, and what encodings for training depend on.
#include "tenon/pipelines/model_files.h"

#include "tenon/pipelines/families/z_image/training.h"
#include "tests/pipelines/z_image_fixture.h"

namespace tenon {
namespace {
namespace fs = std::filesystem;
using testing::ElementsAre;

class ModelFiles : public ZImageFolder {
 protected:
  std::vector<std::string> names(const std::vector<fs::path>& files) const {
    std::vector<std::string> out;
    for (const fs::path& f : files) out.push_back(f.lexically_relative(path).string());
    return out;
  }
};

TEST_F(ModelFiles, ShardsAreFilesOfTheModel) {
  EXPECT_THAT(names(open()->files()), ElementsAre("text_encoder/model.safetensors",
                                                  "transformer/diffusion_pytorch_model-00001-of-00002.safetensors",
                                                  "transformer/diffusion_pytorch_model-00002-of-00002.safetensors",
                                                  "transformer/diffusion_pytorch_model.safetensors.index.json",
                                                  "vae/diffusion_pytorch_model.safetensors"));
}

TEST_F(ModelFiles, EncodingsDependOnConfigurationsAndTheTokenizerToo) {
  const auto training = z_image_training(ZImageModel::open(path.string()), {.backend = make_backend("cpu")});
  const std::vector<std::string> all = names(training->files());
  for (const char* name :
       {"text_encoder/config.json", "tokenizer/chat_template.jinja", "tokenizer/tokenizer.json",
        "transformer/config.json", "transformer/diffusion_pytorch_model-00002-of-00002.safetensors", "vae/config.json"})
    EXPECT_THAT(all, testing::Contains(name));
}

// So that the hash is the file's own.
TEST_F(ModelFiles, AFileOfAllPartsCountsOnce) {
  std::vector<WeightSet> sets;
  std::vector<TensorData> all;
  for (const auto& [file, prefix] :
       {std::pair("transformer/diffusion_pytorch_model.safetensors.index.json", "model.diffusion_model."),
        std::pair("text_encoder/model.safetensors", "text_encoders.qwen3_4b.transformer."),
        std::pair("vae/diffusion_pytorch_model.safetensors", "vae.")}) {
    sets.push_back(open_weights(path / file));
    for (const auto& [name, view] : sets.back().tensors)
      all.push_back({prefix + name, view.dtype, view.shape, {view.data, view.size}});
  }
  const fs::path one = path / "all.safetensors";
  write_safetensors(one, all);
  EXPECT_THAT(ZImageGenerator(ZImageModel::open(one.string()), {}).files(), ElementsAre(one));
}

}  // namespace
}  // namespace tenon
