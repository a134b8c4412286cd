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

constexpr std::string_view kExit = "/exit", kReset = "/reset";

bool is_blank(unsigned char c) { return c <= ' ' || c == 0x7f; }

std::string_view without_blanks(std::string_view line) {
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
  return line;
}

// Refuses "/word", whatever the word, and a command with words after it; a path or another sentence is a question.
void check_no_command(std::string_view line) {
  const auto end = std::ranges::find_if(line, is_blank);
  std::string word(line.begin(), end);
  for (char& c : word)
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  if (end == line.end()) {
    const bool letters = std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    TENON_CHECK(Usage, word.size() < 2 || word[0] != '/' || !letters, shown(line))
        << "unknown command, expected /reset (forget the conversation) or /exit";
  } else {
    TENON_CHECK(Usage, word != kExit && word != kReset, shown(line)) << word << " takes no words after it";
  }
}

int run_chat(const ChatFlags& f, const Common& common) {
  check_utf8("--system", f.system);
  Conversation conversation(f, common);
  const bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  InputLines lines("question");
  for (;;) {
    if (terminal) std::cerr << "> " << std::flush;
    const std::optional<std::string> line = lines.next();
    if (!line) break;
    const std::string_view said = without_blanks(*line);
    if (said.empty()) continue;
    if (said == kExit) break;
    if (said == kReset) {
      conversation.reset();
      continue;
    }
    try {
      check_no_command(said);
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
