// An explanation as one self-contained page: everything is drawn from the JSON in it, without network requests.
#include "apps/cli/explain_json.h"
#include "apps/cli/page.h"

namespace tenon::cli {

std::string explanation_html(const std::vector<Explanation>& networks) {
  nlohmann::ordered_json pages = nlohmann::ordered_json::array();
  for (const Explanation& e : networks) pages.push_back(page_object(e));
  return self_contained_page("explain", "networks", pages);
}

}  // namespace tenon::cli
