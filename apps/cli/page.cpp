#include "apps/cli/page.h"

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

}  // namespace

std::string self_contained_page(std::string_view title, std::string_view style, std::string_view body,
                                std::string_view name, const nlohmann::ordered_json& data, std::string_view script) {
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">";
  out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>";
  out += title;
  out += "</title>\n<style>";
  out += style;
  out += "</style></head>\n";
  out += body;
  out += "<script>\nconst ";
  out += name;
  out += " = " + script_safe(json_text(data)) + ";\n";
  out += script;
  return out + "</script>\n</body></html>\n";
}

}  // namespace tenon::cli
