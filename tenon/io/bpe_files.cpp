#include "tenon/io/bpe_files.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/core/text.h"
#include "tenon/core/utf8.h"
#include "tenon/io/json.h"

namespace tenon {
using nlohmann::json;

TokenIds read_token_ids(const json& object, const std::string& where) {
  TENON_CHECK(Model, object.is_object(), where) << "expected an object of token ids, found " << object.type_name();
  TokenIds out;
  out.reserve(object.size());
  for (const auto& [token, id] : object.items()) {
    TENON_CHECK(Model, id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(kMaxTokenId), where)
        << "token '" << shown(token) << "': expected an id from 0 to " << kMaxTokenId - 1 << ", found "
        << shown_json(id);
    out[token] = id.get<int32_t>();
  }
  return out;
}

std::pair<std::string, std::string> read_merge(std::string_view line, const std::string& where) {
  const size_t blank = line.find(' ');
  TENON_CHECK(Model,
              blank != std::string_view::npos && blank > 0 && blank + 1 < line.size() &&
                  line.find(' ', blank + 1) == std::string_view::npos,
              where)
      << "expected two symbols with a blank between them, found '" << shown(line) << "'";
  return {std::string(line.substr(0, blank)), std::string(line.substr(blank + 1))};
}

MergeList read_merges_text(std::string_view text, const std::string& where) {
  if (const auto bad = first_invalid_utf8(text))
    throw Error(ErrorKind::Model, where, "invalid UTF-8 at byte " + std::to_string(*bad));
  MergeList out;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    out.push_back(read_merge(line, where + ", line " + std::to_string(number)));
  }
  return out;
}

MergeList read_merges(const json& array, const std::string& where) {
  TENON_CHECK(Model, array.is_array(), where) << "expected merges to be an array, found " << array.type_name();
  MergeList out;
  out.reserve(array.size());
  for (const json& item : array) {
    if (item.is_string()) {
      out.push_back(read_merge(item.get_ref<const std::string&>(), where));
      continue;
    }
    TENON_CHECK(Model, item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string(), where)
        << "expected a merge of two symbols, found " << shown_json(item);
    out.emplace_back(item[0].get<std::string>(), item[1].get<std::string>());
  }
  return out;
}

}  // namespace tenon
