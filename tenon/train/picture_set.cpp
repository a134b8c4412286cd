#include "tenon/train/picture_set.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/core/utf8.h"
#include "tenon/io/files.h"
#include "tenon/io/image_resize.h"
#include "tenon/io/safetensors.h"
#include "tenon/pipelines/picture_text.h"
#include "tenon/train/checkpoint.h"

namespace tenon::train {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxCaption = 1 << 16;
constexpr std::string_view kBlanks = " \t\r\n";
constexpr const char *kTensor = "values", *kCaption = ".txt";

bool is_picture(const fs::path& path) { return has_ending(path, {".png", ".jpg", ".jpeg", ".jfif"}); }

// A folder may hold other files too, but a picture or caption that is left out without a word changes what is learnt.
void check_unread(const fs::path& path) {
  TENON_CHECK(Usage, !has_ending(path, {".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", ".heic", ".heif", ".jxl"}),
              path.string())
      << "is a picture that cannot be read: convert it to PNG or JPEG, or remove it";
  TENON_CHECK(Usage, path.extension() == kCaption || !has_ending(path, {kCaption}), path.string())
      << "is a caption that would not be read: rename it to end in " << kCaption;
}

std::string read_caption(const fs::path& file) {
  const std::string read = read_argument_file(file, kMaxCaption);
  const std::string_view text = without_byte_order_mark(read);
  // UTF-16 without a mark is valid UTF-8 if its letters are ASCII: every other byte is zero.
  TENON_CHECK(Usage, !first_invalid_utf8(text) && text.find('\0') == text.npos, file.string()) << "is not UTF-8 text";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlanks) + 1 - first));
}

// A file without text counts as none, and in `empty`.
std::string caption_of(const fs::path& picture, const std::optional<std::string>& fallback, int64_t& empty) {
  const fs::path file = fs::path(picture).replace_extension(kCaption);
  const bool there = file_exists(file);
  if (there)
    if (std::string text = read_caption(file); !text.empty()) return text;
  TENON_CHECK(Usage, fallback, picture.string())
      << "has no caption: " << (there ? "" : "expected ") << file.filename().string() << " beside it"
      << (there ? " is empty; fill it, or give" : ", or") << " --caption TEXT for all";
  empty += there;
  return *fallback;
}

Image mirrored(const Image& image) {
  Image out = image;
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x)
      std::copy_n(image.pixels.begin() + (y * image.width + image.width - 1 - x) * image.channels, image.channels,
                  out.pixels.begin() + (y * image.width + x) * image.channels);
  return out;
}

Image fitted_to(const CaptionedPicture& picture, PictureSize size) {
  try {
    return fit(picture.image, size.width, size.height, ResizeMode::Crop);
  } catch (const Error& e) {
    throw Error(e.kind(), picture.name, e.what());
  }
}

std::map<PictureSize, std::vector<size_t>> by_size(const std::vector<CaptionedPicture>& pictures,
                                                   const std::vector<PictureSize>& sizes) {
  std::map<PictureSize, std::vector<size_t>> out;
  for (size_t i = 0; i < pictures.size(); ++i)
    out[nearest_shape(sizes, {pictures[i].image.width, pictures[i].image.height})].push_back(i);
  return out;
}

std::string hash_of(const std::string& text) { return sha256_hex(std::as_bytes(std::span(text))); }

// Tensors by key, one file each; a file that is incomplete, of another shape, or has non-finite values counts as
// absent.
class EncodingCache {
 public:
  explicit EncodingCache(fs::path folder) : folder_(std::move(folder)) { make_cache(folder_); }

  std::optional<TextFeatures> find(const std::string& key, const Shape& shape) const {
    if (folder_.empty() || !file_exists(place(key))) return {};
    try {
      const SafetensorsFile file = SafetensorsFile::open(place(key));
      const TensorView& t = file.at(kTensor);
      TENON_CHECK(Model, t.dtype == DType::F32 && t.shape.rank() == 2, file.name()) << "is not an encoding";
      TextFeatures out{std::vector<float>(static_cast<size_t>(t.shape.numel())), t.shape[0], t.shape[1]};
      if (t.size > 0) std::memcpy(out.values.data(), t.data, t.size);
      const auto bad = std::ranges::find_if_not(out.values, [](float v) { return std::isfinite(v); });
      TENON_CHECK(Model, bad == out.values.end(), file.name()) << "holds " << *bad;
      TENON_CHECK(Model, t.shape == shape, file.name()) << "is " << t.shape.str() << ", expected " << shape.str();
      return out;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Model) throw;
      spdlog::warn("{}; encoding it again", e.what());
      return {};
    }
  }
  void keep(const std::string& key, const TextFeatures& f) const {
    if (folder_.empty()) return;
    const TensorData tensor{kTensor, DType::F32, {f.rows, f.width}, std::as_bytes(std::span(f.values))};
    write_safetensors(place(key), std::span(&tensor, 1));
  }

 private:
  fs::path place(const std::string& key) const { return folder_ / (key + ".safetensors"); }
  fs::path folder_;
};

}  // namespace

std::string identity_of(const TrainableDenoiser& model, DType type) {
  return model.name() + "\n" + std::string(name_of(type)) + "\n" + hash_of_files(model.files());
}

void make_cache(const fs::path& folder) {
  if (!folder.empty()) create_folder(folder);
}

std::vector<CaptionedPicture> read_pictures(const fs::path& folder, const std::optional<std::string>& caption) {
  std::error_code error;
  TENON_CHECK(Usage, fs::is_directory(folder, error), folder.string())
      << "is not a folder of pictures: " << (fs::exists(folder, error) ? "it is a file" : "it does not exist");
  std::vector<CaptionedPicture> out;
  std::map<fs::path, fs::path> stems;
  int64_t empty = 0;
  const std::vector<fs::path> files = list_folder(folder);
  for (const fs::path& file : files) {
    check_unread(file);
    if (fs::is_directory(file, error) && !file.filename().string().starts_with('.'))
      spdlog::warn("{} is a folder; pictures in it are not read", file.string());
    if (!is_picture(file)) continue;
    check_stop("pictures");
    const auto [other, alone] = stems.emplace(fs::path(file).replace_extension(), file);
    TENON_CHECK(Usage, alone, file.string())
        << "and " << other->second.filename().string() << " would share one caption; rename one of them";
    out.push_back({file.string(), read_image(file), sha256_file(file), caption_of(file, caption, empty)});
  }
  for (const fs::path& file : files)
    TENON_CHECK(Usage,
                out.empty() || file.extension() != kCaption || stems.contains(fs::path(file).replace_extension()),
                file.string())
        << "is a caption without a picture: expected a picture of the same name beside it";
  TENON_CHECK(Usage, !out.empty(), folder.string()) << "holds no pictures: expected .png, .jpg or .jpeg files";
  if (empty)
    spdlog::warn("{}: {} {} empty; --caption is used instead", folder.string(), counted(empty, "caption file"),
                 empty == 1 ? "is" : "are");
  return out;
}

PictureSet encode_pictures(TrainableDenoiser& model, DType type, const std::vector<CaptionedPicture>& pictures,
                           const PictureSetOptions& options, const fs::path& cache) {
  const EncodingCache kept(cache);
  const std::string identity = identity_of(model, type);
  PictureSet out;
  std::string all = identity;
  const auto key_of = [&](const std::string& what) { return hash_of(identity + "\n" + what); };
  const auto made = [&](const std::string& what, const Shape& shape, const auto& encode) {
    check_stop("encoding");
    const std::string key = key_of(what);
    if (std::optional<TextFeatures> known = kept.find(key, shape)) return std::move(*known);
    TextFeatures fresh = encode();
    for (const float v : fresh.values)
      TENON_CHECK(Numeric, std::isfinite(v), what) << "the model's encoder gives " << v;
    kept.keep(key, fresh);
    ++out.made;
    return fresh;
  };
  const auto moments_of = [&](const CaptionedPicture& p, PictureSize size, bool flipped) {
    const std::string sides = std::to_string(size.width) + "x" + std::to_string(size.height);
    const Shape shape{1, 2 * model.latent_shape(size.height, size.width).numel()};
    const std::string what = "picture " + p.sha256 + " " + sides + (flipped ? " flipped" : "");
    all += "\n" + key_of(what);
    return made(what, shape, [&] {
      const Image fitted = fitted_to(p, size);
      const std::vector<float> moments = model.encode_picture(flipped ? mirrored(fitted) : fitted);
      return TextFeatures{moments, 1, std::ssize(moments)};
    });
  };
  // Pictures of one size together, then texts of like length: some models keep only one encoder ready at a time.
  out.pictures.resize(pictures.size());
  for (const auto& [size, numbers] : by_size(pictures, options.sizes))
    for (const size_t i : numbers) {
      EncodedPicture& encoded = out.pictures[i];
      encoded.size = size;
      encoded.moments.push_back(moments_of(pictures[i], size, false).values);
      if (options.flip) encoded.moments.push_back(moments_of(pictures[i], size, true).values);
    }
  std::map<std::string, size_t> texts;
  std::multimap<int64_t, std::string> by_rows;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const std::string& caption = pictures[i].caption;
    const auto [text, fresh] = texts.emplace(caption, texts.size());
    if (fresh) {
      by_rows.emplace(model.text_shape(caption)[0], caption);
      all += "\n" + key_of("text " + caption);
    }
    out.pictures[i].text = text->second;
    all += "\n" + caption;
  }
  out.texts.resize(texts.size());
  for (const auto& entry : by_rows) {
    const std::string& caption = entry.second;
    out.texts[texts.at(caption)] =
        made("text " + caption, model.text_shape(caption), [&] { return model.encode_text(caption); });
  }
  out.sha256 = hash_of(all);
  return out;
}

}  // namespace tenon::train
