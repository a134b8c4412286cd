// An explanation as one page: no request leaves it, everything is drawn from the JSON that stands in it.
#include "apps/cli/explain_json.h"
#include "apps/cli/explain_page.h"

namespace tenon::cli {
namespace {

// JSON inside a script element: only "</" could end the element early.
std::string script_safe(std::string json) {
  for (size_t at = json.find("</"); at != std::string::npos; at = json.find("</", at + 3)) json.insert(at + 1, "\\");
  return json;
}

}  // namespace

std::string explanation_html(const std::vector<Explanation>& networks) {
  nlohmann::ordered_json pages = nlohmann::ordered_json::array();
  for (const Explanation& e : networks) pages.push_back(page_object(e));
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">";
  out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>tenon explain</title>\n<style>";
  out += kPageStyle;
  out += "</style></head>\n";
  out += kPageBody;
  out += "<script>\nconst networks = " + script_safe(pages.dump()) + ";\n";
  out += kPageScript;
  out += kPageDrawing;
  return out + "</script>\n</body></html>\n";
}

}  // namespace tenon::cli
