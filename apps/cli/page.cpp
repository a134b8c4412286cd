#include "apps/cli/page.h"

#include <algorithm>

#include "apps/cli/embedded_pages.h"
#include "tenon/core/error.h"
#include "tenon/io/json.h"

namespace tenon::cli {
namespace {

// JSON for a script element. "<" occurs only in strings, where it can be escaped; without it nothing can end the
// element early, or hide its end as "<!--<script>" does.
std::string script_safe(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

std::string_view embedded(const std::string& name) {
  const std::span<const EmbeddedText> all = embedded_pages();
  const auto found = std::ranges::find(all, name, &EmbeddedText::name);
  TENON_CHECK(Internal, found != all.end(), name) << "is not embedded in the program";
  return found->text;
}

}  // namespace

std::string self_contained_page(std::string_view verb, std::string_view name, const nlohmann::ordered_json& data) {
  const std::string page(verb);
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">";
  out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>tenon ";
  out += page;
  out += "</title>\n<style>\n";
  out += embedded(page + ".css");
  out += "</style></head>\n<body>\n";
  out += embedded(page + ".html");
  out += "<script>\nconst ";
  out += name;
  out += " = " + script_safe(json_text(data)) + ";\n\n";
  out += embedded(page + ".js");
  return out + "</script>\n</body></html>\n";
}

}  // namespace tenon::cli
