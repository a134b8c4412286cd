// tenon man: the manual page, generated from the descriptions that --help prints.
#include <iostream>

#include "apps/cli/described.h"
#include "apps/cli/version.h"
#include "apps/cli/vocabulary.h"
#include "tenon/core/options.h"
#include "tenon/core/text.h"

namespace tenon::cli {
namespace {

// Escapes plain text for roff: hyphens and backslashes stay themselves, and no line is taken for a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (out.empty() && (c == '.' || c == '\'')) out += "\\&";
    if (c == '-')
      out += "\\-";
    else if (c == '\\')
      out += "\\e";
    else if (c == '\n')
      out += ' ';
    else
      out += c;
  }
  return out;
}

void print_options(std::ostream& out, const std::vector<DescribedOption>& options) {
  for (const DescribedOption& o : options) {
    out << ".TP\n";
    std::string names;
    if (!o.positional.empty() && !o.flags.empty()) names = "\\fI" + roff(o.positional) + "\\fR";
    for (const std::string& flag : o.flags) names += (names.empty() ? "\\fB" : ", \\fB") + roff(flag) + "\\fR";
    if (!o.argument.empty()) names += (names.empty() ? "\\fI" : " \\fI") + roff(o.argument) + "\\fR";
    out << names << "\n" << roff(o.help);
    if (!o.fallback.empty()) out << " (default: " << roff(o.fallback) << ")";
    out << "\n";
    if (!o.choices.empty())
      out << ".br\n" << (o.beside == Beside::Nothing ? "one of " : "such as ") << roff(joined(o.choices)) << "\n";
  }
}

void print_vocabulary(std::ostream& out) {
  const KnownWords known = vocabulary();
  if (known.empty()) return;
  out << ".SH VOCABULARY\n" << roff(kVocabularyIntroduction) << "\n";
  for (const auto& [kind, words] : known) out << ".TP\n.B " << roff(kind) << "\n" << roff(joined(words, " ")) << "\n";
}

void print_page(std::ostream& out, const DescribedProgram& program) {
  out << ".\\\" Made by `tenon man`.\n.TH TENON 1 \"\" \"tenon " << roff(version()) << "\" \"User Commands\"\n"
      << ".SH NAME\ntenon \\- run and train diffusion models, vision transformers and language models as few fused "
         "kernels\n"
      << ".SH SYNOPSIS\n.B tenon\n.I VERB\n[\\fIflags\\fR]\n"
      << ".SH DESCRIPTION\n"
      << roff(program.help) << "\nResults go to standard output, the log and the progress bar to standard error.\n"
      << ".SH FLAGS OF EVERY VERB\n";
  print_options(out, program.common);
  out << ".SH VERBS\n";
  for (const DescribedVerb& v : program.verbs) {
    out << ".SS tenon " << roff(v.name) << "\n" << roff(v.help) << "\n";
    print_options(out, v.options);
  }
  print_vocabulary(out);
  out << ".SH EXIT STATUS\n0 ok; 1 failure; 2 usage; 3 model missing, unreadable or not matching; 4 out of memory or "
         "the plan does not fit; 5 numeric failure; 6 no usable device; 130 interrupted; 143 terminated.\n"
      << ".SH ENVIRONMENT\nFlags win over these.\n";
  for (const OptionInfo& info : all_options()) out << ".TP\n.B " << info.variable << "\n" << roff(info.doc) << "\n";
}

Action declare_man(CLI::App& app, const Common&) {
  return [&app] {
    print_page(std::cout, describe(*app.get_parent()));
    return 0;
  };
}

const RegisterVerb kMan{{"man", "print the manual page, for man(1)", declare_man}};

}  // namespace
}  // namespace tenon::cli
