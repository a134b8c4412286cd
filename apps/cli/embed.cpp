// tenon embed: computes features of pictures.
#include <sys/resource.h>

#include <iostream>
#include <list>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/cli/output_names.h"
#include "apps/cli/parts.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/io/files.h"
#include "tenon/io/json.h"
#include "tenon/io/npy.h"
#include "tenon/pipelines/image_embedder.h"

namespace tenon::cli {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct EmbedFlags {
  std::vector<std::string> images;
  std::string model, output = "features.npy", patches, pca, type, deterministic;
  EmbeddingOptions options;
  bool no_fusion = false, no_fold = false, overwrite = false;
};

Overwrite overwrite(const EmbedFlags& f) { return f.overwrite ? Overwrite::Yes : Overwrite::No; }

// All outputs are open before the first one is renamed into place.
void allow_open_files(size_t count) {
  constexpr rlim_t kOthers = 64;  // weights, devices, the standard streams
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + kOthers) return;
  TENON_CHECK(Usage, limit.rlim_max >= count + kOthers, "--pca")
      << count << " files to write, and no more than " << limit.rlim_max << " may be open at once (ulimit -Hn)";
  limit.rlim_cur = count + kOthers;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Checks all output files before any work.
std::vector<fs::path> check_outputs(const EmbedFlags& f) {
  check_ending("--output", f.output, {".npy", ".json"});
  std::vector<fs::path> all{f.output}, pictures;
  if (!f.patches.empty()) {
    check_ending("--patches", f.patches, {".npy"});
    all.emplace_back(f.patches);
  }
  if (!f.pca.empty()) pictures = output_names("--pca", f.pca, static_cast<int>(f.images.size()), 0);
  all.insert(all.end(), pictures.begin(), pictures.end());
  std::set<fs::path> read, seen;
  std::error_code unreadable;  // reading it reports the error
  for (const std::string& image : f.images) read.insert(fs::canonical(image, unreadable));
  for (const fs::path& p : all) {
    const fs::path place = output_place(p);
    TENON_CHECK(Usage, seen.insert(place).second, p.string()) << "would be written twice";
    check_output(p, overwrite(f), kOverwriteHint);
    TENON_CHECK(Usage, !read.count(place), p.string()) << "is one of the pictures to read: choose another name";
  }
  allow_open_files(all.size());
  return pictures;
}

std::vector<float> concatenated(const std::vector<Embedding>& all, std::vector<float> Embedding::*part) {
  std::vector<float> out;
  for (const Embedding& e : all) out.insert(out.end(), (e.*part).begin(), (e.*part).end());
  return out;
}

void write_features(AtomicFile& file, const EmbedFlags& f, const std::string& model,
                    const std::vector<Embedding>& all) {
  const int64_t count = static_cast<int64_t>(all.size()), width = static_cast<int64_t>(all[0].feature.size());
  if (has_ending(f.output, {".npy"})) return write_npy(file, {count, width}, concatenated(all, &Embedding::feature));
  ordered_json out{{"model", model}, {"width", width}, {"images", ordered_json::array()}};
  for (size_t i = 0; i < all.size(); ++i) out["images"].push_back({{"path", f.images[i]}, {"feature", all[i].feature}});
  const std::string text = json_text(out) + "\n";
  file.write(std::as_bytes(std::span(text)));
}

// Writes all files or, if one cannot be written, none.
void write_outputs(const EmbedFlags& f, const ImageEmbedder& embed, const std::vector<Embedding>& all,
                   const std::vector<fs::path>& pictures) {
  std::list<AtomicFile> files;
  write_features(files.emplace_back(f.output, overwrite(f)), f, embed.name(), all);
  const Embedding& first = all[0];
  if (!f.patches.empty())
    write_npy(files.emplace_back(f.patches, overwrite(f)),
              {static_cast<int64_t>(all.size()), first.rows, first.columns, static_cast<int64_t>(first.feature.size())},
              concatenated(all, &Embedding::patches));
  if (!pictures.empty()) {
    const std::vector<Image> drawn = principal_components(all, embed.patch_side());
    for (size_t i = 0; i < drawn.size(); ++i)
      files.emplace_back(pictures[i], overwrite(f)).write(encode_image(pictures[i], drawn[i]));
  }
  for (AtomicFile& file : files) file.sync();
  for (AtomicFile& file : files) file.commit();
}

// Prints one JSON line per picture, else the paths of the files written.
void print(const EmbedFlags& f, const ImageEmbedder& embed, const std::vector<Embedding>& all,
           const std::vector<fs::path>& pictures, bool as_json) {
  if (!as_json) {
    std::cout << escaped(f.output) << "\n";
    if (!f.patches.empty()) std::cout << escaped(f.patches) << "\n";
    for (const fs::path& p : pictures) std::cout << escaped(p.native()) << "\n";
    return;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    ordered_json line{{"image", f.images[i]},
                      {"output", f.output},
                      {"row", i},
                      {"width", all[i].feature.size()},
                      {"grid", {all[i].rows, all[i].columns}},
                      {"preprocessing", embed.preprocessing().kind},
                      {"side", embed.preprocessing().crop},
                      {"type", embed.type().text()}};
    if (!f.patches.empty()) line["patches"] = f.patches;
    if (!pictures.empty()) line["pca"] = pictures[i].string();
    std::cout << json_text(line) << "\n";
  }
}

int run(EmbedFlags f, const Common& common) {
  const std::vector<fs::path> pictures = check_outputs(f);
  f.options.device = common.device_name();
  f.options.threads = common.backend_options().threads;
  if (!f.type.empty()) f.options.type = NetworkType::parse(f.type);
  f.options.fusion = !fusion_is_off(f.no_fusion);
  f.options.fold_scales = !folding_is_off(f.no_fold);
  f.options.batch_invariant = is_batch_invariant(f.deterministic);
  f.options.patches = !f.patches.empty() || !f.pca.empty();
  std::vector<Image> headers;  // all files are opened before any work, but one picture at a time is kept
  for (const std::string& path : f.images) headers.push_back(read_image_header(path));
  const std::unique_ptr<ImageEmbedder> model = open_as<ImageEmbedder>(f.model, f.options);
  const ImagePreprocessing& seen = model->preprocessing();
  for (size_t i = 0; i < headers.size(); ++i) model->check(headers[i], f.images[i]);
  spdlog::info("{}: {}, {} preprocessing, {}x{}, {}, {}", model->name(), counted(std::ssize(headers), "picture"),
               seen.kind, seen.crop, seen.crop, model->type().text(), model->backend().describe());
  const std::vector<Embedding> all = (*model)(f.images.size(), [&](size_t i) { return read_image(f.images[i]); });
  check_stop();
  write_outputs(f, *model, all, pictures);
  print(f, *model, all, pictures, common.json);
  return 0;
}

Action declare_embed(CLI::App& app, const Common& common) {
  const auto f = std::make_shared<EmbedFlags>();
  app.add_option("IMAGE", f->images, "PNG or JPEG files")->required();
  offer(app.add_option("-m,--model", f->model,
                       "vision transformer: a folder, a .safetensors file, or random:NAME for random weights"),
        random_models(ImageEmbedder::kAbility), Beside::Files)
      ->required();
  app.add_option("-o,--output", f->output, "output file for the features, one row per picture: .npy or .json")
      ->capture_default_str();
  app.add_option("--patches", f->patches,
                 "also write the features of the patches, [pictures, rows, columns, width], to this .npy file");
  app.add_option("--pca", f->pca,
                 "also write the first three principal components of the patches as colours: one picture each, "
                 "named as by generate -o");
  offer(app.add_option("--preprocessing", f->options.preprocessing,
                       "preprocessing, timm or hf (default: that of the program that wrote the checkpoint)"),
        {"timm", "hf"});
  app.add_option("--size", f->options.side, "side of the square input in pixels (default: the preprocessing's)")
      ->transform(whole_number())
      ->check(CLI::Range(int64_t{1}, kMaxImageSide));
  app.add_option("--batch-size", f->options.batch, "maximum number of pictures computed together")
      ->transform(whole_number())
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  declare_type(app, f->type);
  declare_deterministic(app, f->deterministic);
  app.add_flag("--no-fusion", f->no_fusion, "run every node as its own launch, for comparison");
  app.add_flag("--no-fold", f->no_fold, "do not fold constant scales into the weights of linear layers");
  app.add_flag("--overwrite", f->overwrite, "replace existing files");
  return [f, &common] { return run(*f, common); };
}

const RegisterVerb kEmbed{{"embed", "compute features of pictures", declare_embed}};

}  // namespace
}  // namespace tenon::cli
