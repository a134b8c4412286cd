// Sources of byte-level tokenizers: tokenizer.json, vocab.json with merges.txt, GGUF metadata.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"
#include "tenon/io/added_tokens.h"
#include "tenon/io/bpe.h"
#include "tenon/io/bpe_files.h"
#include "tenon/io/byte_level_tokenizer.h"
#include "tenon/io/files.h"
#include "tenon/io/gguf.h"
#include "tenon/io/json.h"
#include "tenon/io/pre_tokenizer.h"
#include "tenon/io/tokenizer_parts.h"

namespace tenon {
namespace fs = std::filesystem;
namespace {
using nlohmann::json;

const json& member(const json& object, const char* key) {
  static const json none;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? none : *found;
}

// A token's text, given directly or as an object with "content".
std::optional<std::string> token_text(const json& value, const char* key, const std::string& where) {
  const json& text = value.is_object() ? member(value, "content") : value;
  TENON_CHECK(Model, text.is_null() || text.is_string(), where)
      << key << ": expected a token, found " << shown_json(value);
  return text.is_string() ? std::optional(text.get<std::string>()) : std::nullopt;
}

// How a token is found in a text.
void read_matching(const json& object, AddedToken& token, const std::string& where) {
  token.normalized = json_flag(object, "normalized", where);
  token.lstrip = json_flag(object, "lstrip", where);
  token.rstrip = json_flag(object, "rstrip", where);
}

AddedToken added_token(const json& object, const json& id, const std::string& where) {
  TENON_CHECK(Model, object.is_object() && member(object, "content").is_string(), where)
      << "added token: expected an object with a string 'content', found " << shown_json(object);
  AddedToken out;
  out.content = object["content"].get<std::string>();
  TENON_CHECK(Model, id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(kMaxTokenId), where)
      << "added token '" << out.content << "': expected an id from 0 to " << kMaxTokenId - 1 << ", found "
      << shown_json(id);
  out.id = id.get<int32_t>();
  out.special = json_flag(object, "special", where);
  read_matching(object, out, where);
  TENON_CHECK(Model, !json_flag(object, "single_word", where), where)
      << "added token '" << out.content << "': single_word is not supported";
  return out;
}

// Whether text is normalised to NFC: the only normalizer supported for byte-level tokenizers.
bool read_normalizer(const json& normalizer, const std::string& where) {
  if (normalizer.is_null()) return false;
  const json& type = member(normalizer, "type");
  if (type == "NFC") return true;
  const json& list = member(normalizer, "normalizers");
  if (type == "Sequence" && list.is_array() && list.empty()) return false;
  if (type == "Sequence" && list.is_array() && list.size() == 1 && member(list[0], "type") == "NFC") return true;
  throw Error(ErrorKind::Model, where,
              "normalizer " + shown_json(normalizer) + " is not supported; expected none or NFC");
}

void read_model(const json& model, TokenizerParts& parts, const std::string& where) {
  TENON_CHECK(Model, member(model, "type").is_null() || model["type"] == "BPE", where)
      << "model type " << shown_json(member(model, "type")) << " is not supported; expected \"BPE\"";
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    TENON_CHECK(Model, member(model, key).is_null() || model[key] == json(""), where)
        << "model." << key << " " << shown_json(model[key]) << " is not supported; expected none";
  TENON_CHECK(Model, member(model, "dropout").is_null() || model["dropout"] == 0, where)
      << "model.dropout " << shown_json(model["dropout"]) << " is not supported; expected none";
  TENON_CHECK(Model, !json_flag(model, "byte_fallback", where), where)
      << "model.byte_fallback is not supported; expected a byte-level vocabulary";
  TENON_CHECK(Model, member(model, "vocab").is_object() && member(model, "merges").is_array(), where)
      << "expected an object 'model' with an object 'vocab' and an array 'merges'";
  parts.tokens = read_token_ids(model["vocab"], where);
  parts.merges = read_merges(model["merges"], where);
  parts.whole_words = json_flag(model, "ignore_merges", where);
  const auto unknown = token_text(member(model, "unk_token"), "model.unk_token", where);
  const bool has_all_bytes = std::all_of(byte_alphabet().begin(), byte_alphabet().end(),
                                         [&](const std::string& byte) { return parts.tokens.count(byte) > 0; });
  if (!unknown || has_all_bytes) return;
  const auto id = parts.tokens.find(*unknown);
  TENON_CHECK(Model, id != parts.tokens.end(), where) << "model.unk_token: there is no token '" << *unknown << "'";
  TENON_CHECK(Model, !json_flag(model, "fuse_unk", where), where) << "model.fuse_unk is not supported";
  parts.unknown = id->second;
}

// The ids that a template puts for one of its special tokens.
void add_ids(const json& special_tokens, const std::string& token, std::vector<int32_t>& out,
             const std::string& where) {
  const json& ids = member(member(special_tokens, token.c_str()), "ids");
  TENON_CHECK(Model, ids.is_array(), where) << "post_processor: token '" << token << "' has no array 'ids'";
  for (const json& id : ids) {
    TENON_CHECK(Model, id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(kMaxTokenId), where)
        << "post_processor: token '" << token << "': expected ids from 0 to " << kMaxTokenId - 1 << ", found "
        << shown_json(id);
    out.push_back(id.get<int32_t>());
  }
}

// Ids that a post-processor puts before a text: special tokens, then the text once. `found`: there was one already.
void read_post_processor(const json& processor, TokenizerParts& parts, const std::string& where, bool& found) {
  const json& type = member(processor, "type");
  if (processor.is_null() || type == "ByteLevel") return;
  if (type == "Sequence") {
    for (const json& item : member(processor, "processors")) {
      TENON_CHECK(Model, member(item, "type") != "Sequence", where) << "post_processor: nested Sequences";
      read_post_processor(item, parts, where, found);
    }
    return;
  }
  TENON_CHECK(Model, type == "TemplateProcessing" && member(processor, "single").is_array(), where)
      << "post_processor " << shown_json(type) << " is not supported; expected ByteLevel or TemplateProcessing";
  TENON_CHECK(Model, !std::exchange(found, true), where)
      << "post_processor: expected one TemplateProcessing, found two";
  bool behind = false;
  for (const json& item : processor["single"]) {
    const json& sequence = member(item, "Sequence");
    const auto token = token_text(member(member(item, "SpecialToken"), "id"), "post_processor", where);
    TENON_CHECK(Model, token || member(sequence, "id") == "A", where)
        << "post_processor: expected a SpecialToken or the Sequence A, found " << shown_json(item);
    TENON_CHECK(Model, !behind, where) << "post_processor: " << (token ? "a token after the text" : "the text twice")
                                       << " is not supported";
    if (token)
      add_ids(member(processor, "special_tokens"), *token, parts.prefix, where);
    else
      behind = true;
  }
  TENON_CHECK(Model, behind, where) << "post_processor: the template has no Sequence A, which is the text";
}

TokenizerParts read_tokenizer(const json& file, const std::string& where) {
  TENON_CHECK(Model, file.is_object() && member(file, "model").is_object(), where)
      << "expected an object with an object 'model'";
  TokenizerParts out;
  out.nfc = read_normalizer(member(file, "normalizer"), where);
  out.pre_tokenizer = PreTokenizer::from_json(member(file, "pre_tokenizer"), where);
  const json& decoder = member(file, "decoder");
  TENON_CHECK(Model, decoder.is_null() || member(decoder, "type") == "ByteLevel", where)
      << "decoder " << shown_json(member(decoder, "type")) << " is not supported; expected \"ByteLevel\"";
  read_model(file["model"], out, where);
  const json& added = member(file, "added_tokens");
  TENON_CHECK(Model, added.is_null() || added.is_array(), where) << "expected added_tokens to be an array";
  for (const json& token : added) out.added.push_back(added_token(token, member(token, "id"), where));
  bool found = false;
  read_post_processor(member(file, "post_processor"), out, where, found);
  return out;
}

// Positions of added tokens by their text.
using AddedPlaces = std::map<std::string, size_t>;

// A special token that a configuration names, under `key`. Like transformers, makes it an added token if it is only in
// the vocabulary. The token must exist: a new one would get an id that the model does not have.
const AddedToken& read_special(const json& value, const std::string& key, TokenizerParts& parts, AddedPlaces& known,
                               const std::string& where) {
  const auto token = token_text(value, key.c_str(), where);
  TENON_CHECK(Model, token, where) << key << ": expected a token, found " << shown_json(value);
  if (const auto added = known.find(*token); added != known.end()) return parts.added[added->second];
  const auto found = parts.tokens.find(*token);
  TENON_CHECK(Model, found != parts.tokens.end(), where) << key << ": there is no token '" << *token << "'";
  AddedToken added{found->second, *token};
  if (value.is_object()) read_matching(value, added, where);
  known.emplace(*token, parts.added.size());
  return parts.added.emplace_back(std::move(added));
}

// The special tokens of tokenizer_config.json: roles ("eos_token", "image_token"), and lists or objects of others.
void read_roles(const json& config, TokenizerParts& parts, AddedPlaces& known, const std::string& where) {
  const auto role = [&](const std::string& key, const json& value) {
    const AddedToken& token = read_special(value, key, parts, known, where);
    parts.named[key] = token.content;
    if (key == "bos_token") parts.bos = token.id;
    if (key == "eos_token") parts.eos = token.id;
    if (key == "pad_token") parts.pad = token.id;
  };
  static const std::set<std::string> kRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};
  for (const auto& [key, value] : config.items()) {
    const bool names_token = value.is_string() || member(value, "content").is_string();  // add_bos_token does not
    if (kRoles.contains(key) ? !value.is_null() : key.ends_with("_token") && names_token) role(key, value);
  }
  const json& extra = member(config, "extra_special_tokens");
  const json& more = extra.is_null() || extra.empty() ? member(config, "additional_special_tokens") : extra;
  const char* name = &more == &extra ? "extra_special_tokens" : "additional_special_tokens";
  TENON_CHECK(Model, more.is_null() || more.is_structured(), where)
      << name << ": expected an array or an object, found " << shown_json(more);
  for (const auto& [key, value] : more.items()) {
    if (more.is_object())
      role(key, value);
    else
      read_special(value, name, parts, known, where);
  }
}

// The template, or if there are several the one called "default".
std::optional<std::string> read_template(const json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  TENON_CHECK(Model, value.is_null() || value.is_array(), where)
      << "chat_template: expected a string or an array, found " << value.type_name();
  for (const json& item : value)
    if (member(item, "name") == "default" && member(item, "template").is_string())
      return item["template"].get<std::string>();
  return std::nullopt;
}

// Adds a token that another file than the tokenizer's lists. Where both do, its way of matching counts, as in
// transformers.
void add_token(AddedToken added, const char* file, TokenizerParts& parts, AddedPlaces& known,
               const std::string& where) {
  const auto [at, fresh] = known.emplace(added.content, parts.added.size());
  if (fresh) {
    parts.added.push_back(std::move(added));
    return;
  }
  AddedToken& own = parts.added[at->second];
  TENON_CHECK(Model, own.id == added.id, where)
      << file << ": '" << added.content << "' has id " << added.id << ", but " << own.id << " in the tokenizer";
  added.special |= own.special;
  own = std::move(added);
}

// Refuses settings with which transformers encodes texts differently from the tokenizer's own file.
void check_settings(const json& config, const TokenizerParts& parts, const std::string& where) {
  TENON_CHECK(Model, !json_flag(config, "split_special_tokens", where), where)
      << "split_special_tokens is not supported";
  const json& name = member(config, "tokenizer_class");
  const std::string type = name.is_string() ? name.get<std::string>() : "";
  const bool reads = type.starts_with("GPT2Tok") || type.starts_with("Qwen2Tok") || type.starts_with("CodeGenTok");
  if (!reads || member(config, "add_prefix_space").is_null()) return;
  const bool prefix = json_flag(config, "add_prefix_space", where);
  TENON_CHECK(Model, prefix == parts.pre_tokenizer.prefix_space(), where)
      << "add_prefix_space is " << (prefix ? "true" : "false") << ", unlike in the tokenizer, which is not supported";
}

// Texts of the special tokens that a configuration names.
std::set<std::string> special_tokens_of(const json& config) {
  std::set<std::string> out;
  const auto add = [&](const json& value) {
    const json& text = value.is_object() ? member(value, "content") : value;
    if (text.is_string()) out.insert(text.get<std::string>());
  };
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_token")) add(value);
    if (key == "additional_special_tokens" || key == "extra_special_tokens")
      for (const json& token : value) add(token);
  }
  return out;
}

// added_tokens.json: ids by text. transformers numbers the new ones itself, behind all others.
void read_added_ids(const fs::path& file, const std::set<std::string>& special_texts, TokenizerParts& parts,
                    AddedPlaces& known) {
  const std::string where = file.string();
  const json ids = read_json(file);
  TENON_CHECK(Model, ids.is_object(), where) << "expected an object, found " << ids.type_name();
  int32_t next = 0;
  for (const auto& [token, id] : parts.tokens) next = std::max(next, id + 1);
  for (const AddedToken& token : parts.added) next = std::max(next, token.id + 1);
  std::multimap<int32_t, AddedToken> fresh;
  for (const auto& [token, id] : ids.items()) {
    const bool special = special_texts.contains(token);
    AddedToken added = added_token({{"content", token}, {"normalized", !special}, {"special", special}}, id, where);
    if (known.contains(token)) continue;
    if (parts.tokens.contains(token))
      add_token(std::move(added), "added_tokens.json", parts, known, where);
    else
      fresh.emplace(added.id, std::move(added));
  }
  for (auto& [id, token] : fresh) {
    TENON_CHECK(Model, id == next, where)
        << "'" << token.content << "' has id " << id << ", expected " << next << ", which follows the other tokens";
    ++next;
    add_token(std::move(token), "added_tokens.json", parts, known, where);
  }
}

// tokenizer_config.json. Files written before it listed the added tokens have them in two others beside it.
void read_config(json config, const fs::path& folder, TokenizerParts& parts, const std::string& where) {
  TENON_CHECK(Model, config.is_object(), where) << "expected an object, found " << config.type_name();
  AddedPlaces known;
  for (size_t i = 0; i < parts.added.size(); ++i) known.emplace(parts.added[i].content, i);
  const fs::path roles = folder / "special_tokens_map.json", tokens = folder / "added_tokens.json";
  const bool listed = config.contains("added_tokens_decoder");
  if (!listed && file_exists(roles)) {
    const json named = read_json(roles);
    TENON_CHECK(Model, named.is_object(), roles.string()) << "expected an object, found " << named.type_name();
    config.update(named);
  }
  const json& more = member(config, "added_tokens_decoder");
  TENON_CHECK(Model, more.is_null() || more.is_object(), where) << "expected added_tokens_decoder to be an object";
  for (const auto& [id, token] : more.items()) {
    const bool is_number = !id.empty() && id.size() <= 8 && id.find_first_not_of("0123456789") == std::string::npos;
    TENON_CHECK(Model, is_number, where) << "added_tokens_decoder: expected an id, found '" << id << "'";
    add_token(added_token(token, static_cast<uint64_t>(std::stoul(id)), where), "added_tokens_decoder", parts, known,
              where);
  }
  if (!listed && file_exists(tokens)) read_added_ids(tokens, special_tokens_of(config), parts, known);
  read_roles(config, parts, known, where);
  check_settings(config, parts, where);
  parts.chat_template = read_template(member(config, "chat_template"), where);
}

// vocab.json and merges.txt do not define word splitting and normalisation: the tokenizer's class does.
TokenizerParts read_two_files(const fs::path& folder, const json& config) {
  const fs::path vocab = folder / "vocab.json", merges = folder / "merges.txt";
  TokenizerParts out;
  out.tokens = read_token_ids(read_json(vocab), vocab.string());
  out.merges = read_merges_text(read_file(merges), merges.string());
  const json& name = member(config, "tokenizer_class");
  const std::string type = name.is_string() ? name.get<std::string>() : "";
  if (type == "Qwen2Tokenizer" || type == "Qwen2TokenizerFast") {
    out.pre_tokenizer = PreTokenizer(WordPattern::Qwen2);
    out.nfc = true;
  } else {
    TENON_CHECK(Model, type == "GPT2Tokenizer" || type == "GPT2TokenizerFast", folder.string())
        << "vocab.json and merges.txt need a tokenizer_config.json whose tokenizer_class is Qwen2Tokenizer or "
           "GPT2Tokenizer; found '"
        << type << "'";
  }
  return out;
}

// Token types in GGUF metadata.
constexpr int64_t kControl = 3, kUserDefined = 4;

std::optional<int32_t> gguf_id(const GgufFile& file, const char* key, size_t tokens) {
  const auto id = file.integer(key);
  if (!id) return std::nullopt;
  TENON_CHECK(Model, *id >= 0 && static_cast<uint64_t>(*id) < tokens, file.name())
      << key << ": expected an id below " << tokens << ", found " << *id;
  return static_cast<int32_t>(*id);
}

TokenizerParts read_gguf(const GgufFile& file) {
  const std::string& where = file.name();
  const auto model = file.string("tokenizer.ggml.model"), pre = file.string("tokenizer.ggml.pre");
  TENON_CHECK(Model, model && *model == "gpt2", where)
      << "tokenizer.ggml.model: expected gpt2, found '" << model.value_or("") << "'";
  TENON_CHECK(Model, pre, where) << "has no metadata 'tokenizer.ggml.pre', which says how text is split into words";
  TokenizerParts parts;
  parts.pre_tokenizer = PreTokenizer::from_gguf_name(*pre, where);
  parts.nfc = *pre == "qwen2";  // not in the metadata, but in the tokenizer of this name
  parts.whole_words = pre->starts_with("llama");
  const std::vector<std::string_view> tokens = file.strings("tokenizer.ggml.tokens");
  const std::vector<int64_t> types = file.integers("tokenizer.ggml.token_type");
  TENON_CHECK(Model, !tokens.empty() && tokens.size() < static_cast<size_t>(kMaxTokenId), where)
      << "tokenizer.ggml.tokens: expected 1 to " << kMaxTokenId - 1 << " tokens, found " << tokens.size();
  TENON_CHECK(Model, types.empty() || types.size() == tokens.size(), where)
      << "tokenizer.ggml.token_type has " << types.size() << " entries for " << tokens.size() << " tokens";
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const bool control = !types.empty() && types[i] == kControl,
               added = control || (!types.empty() && types[i] == kUserDefined);
    if (added) parts.added.push_back({id, std::string(tokens[i]), control});
    const bool fresh = added || parts.tokens.emplace(tokens[i], id).second;
    TENON_CHECK(Model, fresh, where) << "tokenizer.ggml.tokens: token '" << tokens[i] << "' occurs twice";
  }
  for (const std::string_view merge : file.strings("tokenizer.ggml.merges"))
    parts.merges.push_back(read_merge(merge, where + ", tokenizer.ggml.merges"));
  parts.bos = gguf_id(file, "tokenizer.ggml.bos_token_id", tokens.size());
  parts.eos = gguf_id(file, "tokenizer.ggml.eos_token_id", tokens.size());
  parts.pad = gguf_id(file, "tokenizer.ggml.padding_token_id", tokens.size());
  const std::pair<const char*, std::optional<int32_t>> roles[] = {
      {"bos_token", parts.bos},
      {"eos_token", parts.eos},
      {"pad_token", parts.pad},
      {"unk_token", gguf_id(file, "tokenizer.ggml.unknown_token_id", tokens.size())}};
  for (const auto& [role, id] : roles)
    if (id) parts.named[role] = std::string(tokens[static_cast<size_t>(*id)]);
  // Llama 3 needs its start token even if the file does not say so.
  if (file.boolean("tokenizer.ggml.add_bos_token").value_or(parts.whole_words) && parts.bos)
    parts.prefix = {*parts.bos};
  TENON_CHECK(Model, !file.boolean("tokenizer.ggml.add_eos_token").value_or(false), where)
      << "tokenizer.ggml.add_eos_token is true: a token after the text is not supported";
  if (const auto text = file.string("tokenizer.chat_template")) parts.chat_template = std::string(*text);
  return parts;
}

nlohmann::ordered_json tokenizer_json(const TokenizerParts& parts, const json& pre_tokenizer) {
  using nlohmann::ordered_json;
  std::map<int32_t, std::string> by_id;
  for (const auto& [token, id] : parts.tokens) by_id.emplace(id, token);
  ordered_json added = ordered_json::array(), vocab = ordered_json::object(), merges = ordered_json::array();
  for (const AddedToken& t : parts.added) {
    by_id.emplace(t.id, t.content);
    added.push_back({{"id", t.id},
                     {"content", t.content},
                     {"single_word", false},
                     {"lstrip", t.lstrip},
                     {"rstrip", t.rstrip},
                     {"normalized", t.normalized},
                     {"special", t.special}});
  }
  // operator[] would compare every token with all before it.
  auto& members = vocab.get_ref<ordered_json::object_t&>();
  std::unordered_map<std::string_view, size_t> places;
  for (const auto& [id, token] : by_id) {
    const auto [at, first] = places.try_emplace(token, members.size());
    if (first)
      members.emplace_back(token, id);
    else
      std::next(members.begin(), static_cast<std::ptrdiff_t>(at->second))->second = id;
  }
  for (const auto& [first, second] : parts.merges) {
    std::string both = first;
    merges.push_back(both.append(" ").append(second));
  }
  ordered_json post = nullptr;
  for (const int32_t id : parts.prefix)  // at most the start token
    post = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", by_id.at(id)}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", ordered_json::array()},
        {"special_tokens", {{by_id.at(id), {{"id", by_id.at(id)}, {"ids", {id}}, {"tokens", {by_id.at(id)}}}}}}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", parts.nfc ? ordered_json{{"type", "NFC"}} : ordered_json()},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", post},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", parts.whole_words},
            {"vocab", vocab},
            {"merges", merges}}}};
}

nlohmann::ordered_json tokenizer_config(const TokenizerParts& parts) {
  nlohmann::ordered_json out{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  for (const auto& [role, token] : parts.named) out[role] = token;
  if (parts.chat_template) out["chat_template"] = *parts.chat_template;
  return out;
}

}  // namespace

ByteLevelTokenizer ByteLevelTokenizer::from_json(std::string_view tokenizer_json, const std::string& where) {
  return {read_tokenizer(parse_json(tokenizer_json, where), where), where};
}

ByteLevelTokenizer ByteLevelTokenizer::from_folder(const fs::path& folder) {
  const fs::path whole = folder / "tokenizer.json", vocab = folder / "vocab.json", merges = folder / "merges.txt";
  const fs::path config_file = folder / "tokenizer_config.json", template_file = folder / "chat_template.jinja";
  const bool one = file_exists(whole);
  TENON_CHECK(Model, one || (file_exists(vocab) && file_exists(merges)), folder.string())
      << "no tokenizer here: expected tokenizer.json, or vocab.json and merges.txt";
  const json config = file_exists(config_file) ? read_json(config_file) : json::object();
  TokenizerParts parts = one ? read_tokenizer(read_json(whole), whole.string()) : read_two_files(folder, config);
  read_config(config, folder, parts, config_file.string());
  if (file_exists(template_file)) parts.chat_template = read_file(template_file);
  return {std::move(parts), one ? whole.string() : vocab.string()};
}

ByteLevelTokenizer ByteLevelTokenizer::from_gguf(const GgufFile& file) { return {read_gguf(file), file.name()}; }

std::map<std::string, std::string> ByteLevelTokenizer::files_of_gguf(const GgufFile& file) {
  const TokenizerParts parts = read_gguf(file);
  const json words = PreTokenizer::json_of_gguf_name(*file.string("tokenizer.ggml.pre"), file.name());
  return {{"tokenizer.json", json_text(tokenizer_json(parts, words), 2) + "\n"},
          {"tokenizer_config.json", json_text(tokenizer_config(parts), 2) + "\n"}};
}

}  // namespace tenon
