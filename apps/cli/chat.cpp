// tenon chat: a conversation in a terminal, or line by line through a pipe.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>

#include "apps/cli/cancel.h"
#include "apps/cli/standard_input.h"
#include "apps/cli/text_flags.h"
#include "tenon/core/error.h"
#include "tenon/core/log.h"
#include "tenon/core/stop.h"
#include "tenon/core/text.h"
#include "tenon/io/json.h"

namespace tenon::cli {
namespace {
using nlohmann::ordered_json;

struct ChatFlags {
  TextFlags text;
  std::string system;
  const CLI::App* app = nullptr;
};

class Conversation {
 public:
  Conversation(const ChatFlags& flags, const Common& common)
      : flags_(flags), common_(common), generator_(flags.text.open(common)) {
    reset();
    generator_->model().render_chat(ordered_json::array({{{"role", "user"}, {"content", ""}}}));  // fails early
  }

  void reset() {
    messages_ = ordered_json::array();
    if (flags_.app->count("--system") > 0) add("system", flags_.system);
  }

  // Adds a question and its answer; on SIGINT the partial answer. A question that is refused or fails is not added.
  void turn(const std::string& question) {
    TextRequest r = flags_.text.request(generator_->model());
    ordered_json asked = messages_;
    asked.push_back({{"role", "user"}, {"content", question}});
    r.prompt = generator_->model().encode_chat(asked);
    if (r.sampling.draw) spdlog::info("seed {}", r.seed);
    TextResult result, written;
    written.end = TextEnd::Cancelled;
    const TurnInterrupt interrupt({SIGINT});
    const StopScope until([&] { return interrupt.asked() != 0; });
    try {
      result = generator_->generate(r, [&](const TextToken& t) {
        written.text += t.text;
        written.tokens.push_back(t);
        if (!common_.json) print_piece(t.text);
      });
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Cancelled || stop_signal() != 0) {
        if (!common_.json && !written.text.empty()) print_piece("\n");
        throw;
      }
      result = written;
    }
    if (common_.json)
      std::cout << json_text(text_json(*generator_, r, result, false)) << std::endl;
    else
      print_piece("\n");
    messages_ = std::move(asked);
    add("assistant", written.text);
    if (result.end != TextEnd::Cancelled) log_speed(r, result);
  }

 private:
  void add(const char* role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }

  const ChatFlags& flags_;
  const Common& common_;
  std::unique_ptr<TextGenerator> generator_;
  ordered_json messages_;
};

// Whether another question may well be answered after this error.
bool may_go_on(const Error& e) {
  return e.kind() == ErrorKind::Usage || e.kind() == ErrorKind::Memory || e.kind() == ErrorKind::Numeric;
}

// "/word", whatever the word; a path or a sentence is none.
bool is_command(const std::string& line) {
  return line.size() > 1 && line[0] == '/' &&
         std::all_of(line.begin() + 1, line.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

bool is_blank(const std::string& line) {
  return std::ranges::all_of(line, [](unsigned char c) { return c <= ' ' || c == 0x7f; });
}

int run_chat(const ChatFlags& f, const Common& common) {
  check_utf8("--system", f.system);
  Conversation conversation(f, common);
  const bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  InputLines lines("question");
  for (;;) {
    if (terminal) std::cerr << "> " << std::flush;
    const std::optional<std::string> line = lines.next();
    if (!line || *line == "/exit") break;
    if (*line == "/reset") {
      conversation.reset();
      continue;
    }
    if (is_blank(*line)) continue;
    try {
      TENON_CHECK(Usage, !is_command(*line), shown(*line))
          << "unknown command, expected /reset (forget the conversation) or /exit";
      check_utf8("question", *line);
      conversation.turn(*line);
    } catch (const Error& e) {  // a person at the terminal can ask something else; a script sees the exit code
      if (!terminal || !may_go_on(e)) throw;
      spdlog::error("{}", e.what());
    }
  }
  return 0;
}

Action declare_chat(CLI::App& app, const Common& common) {
  const auto f = std::make_shared<ChatFlags>();
  app.footer(
      "Each line is a question. Ctrl-C stops an answer; /reset forgets the conversation; /exit or the end of the input "
      "ends the program.\n" +
      app.get_footer());
  f->app = &app;
  app.add_option("--system", f->system,
                 "system message, before the first question; \"\": none (default: the chat template's)");
  f->text.declare(app);
  return [f, &common] { return run_chat(*f, common); };
}

const RegisterVerb kChat{{"chat", "talk to a language model", declare_chat}};

}  // namespace
}  // namespace tenon::cli
