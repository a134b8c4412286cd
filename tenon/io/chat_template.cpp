#include "tenon/io/chat_template.h"

#include "tenon/core/error.h"
#include "tenon/core/utf8.h"
#include "tenon/io/jinja/parser.h"
#include "tenon/io/jinja/render.h"

namespace tenon {

struct ChatTemplate::State {
  jinja::Body body;
  std::string where;
};

ChatTemplate ChatTemplate::compile(std::string_view source, const std::string& where) {
  TENON_CHECK(Model, source.size() <= kMaxChatTemplateBytes, where)
      << "a chat template of " << source.size() << " bytes; at most " << kMaxChatTemplateBytes << " are read";
  if (const auto bad = first_invalid_utf8(source))
    throw Error(ErrorKind::Model, where, "invalid UTF-8 at byte " + std::to_string(*bad));
  ChatTemplate out;
  out.state_ = std::make_shared<const State>(State{jinja::parse(source, where), where});
  return out;
}

std::string ChatTemplate::render(const nlohmann::ordered_json& variables) const {
  TENON_CHECK(Usage, variables.is_object(), state_->where)
      << "expected an object of variables, found " << variables.type_name();
  try {
    const jinja::Value data = jinja::from_json(variables);
    jinja::Budget budget;
    return jinja::render(state_->body, data.dict(), budget, state_->where);
  } catch (const jinja::RenderError& e) {
    throw Error(ErrorKind::Usage, state_->where, e.what);
  }
}

}  // namespace tenon
