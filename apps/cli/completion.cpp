// tenon completion SHELL: a script that completes verbs, flags and their values in bash, zsh or fish, generated from
// the descriptions that --help prints.
#include <algorithm>
#include <iostream>

#include "apps/cli/described.h"
#include "tenon/core/text.h"

namespace tenon::cli {
namespace {

// 'text' as one word of a shell. Only fish knows \' inside quotes; '\'' works in all three.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// ---- bash ----

// The frame: rejoins the words of COMP_WORDS that bash split at colons and equal signs; the words before the cursor
// then decide; $verb is a verb, or a verb and its method: train/lora. If nothing is offered, bash completes file names.
constexpr const char* kBashBegin = R"bash(# bash completion for tenon, made by `tenon completion bash`
_tenon() {
  local -a words=()
  local i word glue=0 verb= cur prev flags= values= files=0 head
  COMPREPLY=()
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if ((${#words[@]})) && { ((glue)) || [[ $word == : ]]; }; then
      words[${#words[@]}-1]+=$word
    elif [[ $word != = ]]; then
      words+=("$word")
    elif ((i == COMP_CWORD)); then
      words+=("")
    fi
    [[ $word == *: && $COMP_WORDBREAKS == *:* ]] && glue=1 || glue=0
  done
  cur=${words[${#words[@]}-1]} prev=${words[${#words[@]}-2]}
  for ((i = 1; i < ${#words[@]} - 1; i++)); do
    case $verb/${words[i]} in
)bash";

constexpr const char* kBashEnd = R"bash(  [[ $cur == -* ]] && values=$flags
  [[ -n $values ]] || return 0
  COMPREPLY=($(compgen -W "$values" -- "$cur"))
  if ((files)) && [[ $cur != -* ]]; then
    local IFS=$'\n'
    local -a found=($(compgen -f -- "$cur"))
    if ((${#found[@]})); then
      COMPREPLY+=("${found[@]}")
      compopt -o filenames 2>/dev/null
    fi
  fi
  if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then  # bash replaces what is behind the last colon only
    head=${cur%"${cur##*:}"}
    for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"$head"}; done
  fi
}
complete -o default -F _tenon tenon
)bash";

// Assigns what is offered for an option with choices.
std::string bash_choices(const DescribedOption& o) {
  return "values=" + quoted(joined(o.choices, " ")) + (o.beside == Beside::Files ? " files=1" : "");
}

// Cases of `case "$verb:$prev"` for flags that take a value. A flag without choices ends the search: a file may follow.
void bash_values(std::ostream& out, const std::string& verb, const std::vector<DescribedOption>& options) {
  for (const DescribedOption& o : options) {
    if (o.flags.empty() || o.argument.empty()) continue;
    std::vector<std::string> patterns;
    for (const std::string& flag : o.flags) patterns.emplace_back(verb).append(":").append(flag);
    out << "    " << joined(patterns, "|") << ") ";
    if (o.choices.empty())
      out << "return 0 ;;\n";
    else
      out << bash_choices(o) << " cur_is_value=1 ;;\n";
  }
}

// The verbs, and their methods as train/lora.
std::vector<DescribedVerb> bash_scopes(const DescribedProgram& program) {
  std::vector<DescribedVerb> out;
  for (const DescribedVerb& v : program.verbs) {
    out.push_back(v);
    for (const DescribedVerb& m : v.methods) {
      out.push_back(m);
      out.back().name = v.name + "/" + m.name;
    }
  }
  return out;
}

void print_bash(std::ostream& out, const DescribedProgram& program) {
  std::vector<std::string> verbs;
  for (const DescribedVerb& v : program.verbs) verbs.push_back(v.name);
  const std::vector<DescribedVerb> scopes = bash_scopes(program);
  std::string words;
  for (const DescribedVerb& s : scopes)
    if (s.name.find('/') != std::string::npos) words += "|" + s.name;
  out << kBashBegin << "      /" << joined(verbs, "|/") << ") verb=${words[i]} ;;\n";
  if (!words.empty()) out << "      " << words.substr(1) << ") verb+=/${words[i]} ;;\n";
  out << "    esac\n  done\n  local cur_is_value=0\n  case $verb:$prev in\n";
  for (const DescribedVerb& s : scopes) bash_values(out, s.name, s.own);
  bash_values(out, "*", program.common);
  out << "  esac\n  if ((cur_is_value)); then flags=$values; else case $verb in\n";
  for (const DescribedVerb& s : scopes) {
    out << "    " << s.name << ") flags=" << quoted(joined(flags_of(s.own), " "));
    for (const DescribedOption& o : s.own)
      if (!o.positional.empty() && !o.choices.empty()) out << " " << bash_choices(o);
    out << " ;;\n";
  }
  out << "    *) values=" << quoted(joined(verbs, " "))
      << " ;;\n  esac\n  flags+=" << quoted(" " + joined(flags_of(program.common), " ")) << "; fi\n"
      << kBashEnd;
}

// ---- zsh ----

// Escapes text for the [..] of an _arguments specification.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += (c == '[' || c == ']' || c == '\\' ? "\\" : "") + std::string(1, c);
  return out;
}

std::string zsh_action(const DescribedOption& o) {
  const std::string begin = ":" + o.argument + ":";
  if (o.choices.empty()) return begin + "_files";
  std::string list;
  for (const char c : joined(o.choices, " ")) list += (c == ':' ? "\\" : "") + std::string(1, c);
  return begin + (o.beside == Beside::Files ? "{compadd -- " + list + "; _files}" : "(" + list + ")");
}

void zsh_options(std::ostream& out, const std::vector<DescribedOption>& options) {
  bool rest = false;  // to be said only once, for the first
  for (const DescribedOption& o : options) {
    if (!o.positional.empty() && !std::exchange(rest, true)) out << " \\\n      " << quoted("*" + zsh_action(o));
    const std::string text = "[" + zsh_text(o.help) + "]" + (o.argument.empty() ? "" : zsh_action(o));
    const std::string exclusive = "(" + joined(o.flags, " ") + ")";
    for (const std::string& flag : o.flags) {
      const char* joint = o.argument.empty() ? "" : flag.starts_with("--") ? "=" : "+";  // --flag=value, -fvalue
      out << " \\\n      " << quoted(std::string(exclusive).append(flag).append(joint).append(text));
    }
  }
}

// A verb whose next word decides what follows.
void zsh_methods(std::ostream& out, const DescribedProgram& program, const DescribedVerb& v) {
  std::vector<DescribedOption> flags = v.own;
  std::erase_if(flags, [](const DescribedOption& o) { return o.flags.empty(); });
  out << " -C";
  zsh_options(out, program.common);
  zsh_options(out, flags);
  for (const DescribedOption& o : v.own)
    if (o.flags.empty() && !o.choices.empty()) out << " \\\n      " << quoted("1" + zsh_action(o));
  out << " \\\n      '*:: :->method'\n      [[ $state == method ]] && case $words[1] in\n";
  for (const DescribedVerb& m : v.methods) {
    out << "      " << m.name << ") _arguments";
    zsh_options(out, program.common);
    zsh_options(out, m.own);
    out << " ;;\n";
  }
  out << "      esac ;;\n";
}

void print_zsh(std::ostream& out, const DescribedProgram& program) {
  out << "#compdef tenon\n# zsh completion for tenon, generated by `tenon completion zsh`\n_tenon() {\n  local "
         "curcontext=$curcontext state line\n  local -a verbs\n  verbs=(\n";
  for (const DescribedVerb& v : program.verbs) out << "    " << quoted(v.name + ":" + v.help) << "\n";
  out << "  )\n  _arguments -C";
  zsh_options(out, program.common);
  out << " \\\n      '1: :->verb' '*:: :->rest'\n  case $state in\n  verb) _describe -t commands command verbs ;;\n"
         "  rest)\n    case $words[1] in\n";
  for (const DescribedVerb& v : program.verbs) {
    out << "    " << v.name << ") _arguments";
    if (!v.methods.empty()) {
      zsh_methods(out, program, v);
      continue;
    }
    zsh_options(out, program.common);
    zsh_options(out, v.own);
    out << " ;;\n";
  }
  out << "    esac ;;\n  esac\n}\n"
         "if [[ $funcstack[1] == _tenon ]]; then _tenon \"$@\"; else compdef _tenon tenon; fi\n";
}

// ---- fish ----

void fish_options(std::ostream& out, const std::string& condition, const std::vector<DescribedOption>& options) {
  for (const DescribedOption& o : options) {
    if (o.flags.empty() && o.choices.empty()) continue;  // fish completes files by itself
    out << "complete -c tenon" << condition;
    for (const std::string& flag : o.flags)
      out << (flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1));
    const bool takes_value = !o.flags.empty() && !o.argument.empty();
    const bool files = o.beside == Beside::Files;
    if (takes_value) out << (files ? " -r -F" : o.choices.empty() ? " -r" : " -x");
    if (o.flags.empty() && !files) out << " -f";
    if (!o.choices.empty()) out << " -a " << quoted(joined(o.choices, " "));
    out << " -d " << quoted(o.help) << "\n";
    if (!o.positional.empty() && !o.flags.empty() && !o.choices.empty())
      out << "complete -c tenon" << condition << " -a " << quoted(joined(o.choices, " ")) << "\n";
  }
}

void print_fish(std::ostream& out, const DescribedProgram& program) {
  std::vector<std::string> verbs;
  for (const DescribedVerb& v : program.verbs) verbs.push_back(v.name);
  const std::string list = joined(verbs, " ");
  out << "# fish completion for tenon, generated by `tenon completion fish`\n";
  for (const DescribedVerb& v : program.verbs)
    out << "complete -c tenon -f -n 'not __fish_seen_subcommand_from " << list << "' -a " << v.name << " -d "
        << quoted(v.help) << "\n";
  fish_options(out, "", program.common);
  for (const DescribedVerb& v : program.verbs) {
    const std::string seen = "__fish_seen_subcommand_from ", of_verb = " -n '" + seen + v.name;
    fish_options(out, of_verb + "'", v.own);
    for (const DescribedVerb& m : v.methods)
      fish_options(out, std::string(of_verb).append("; and ").append(seen).append(m.name) + "'", m.own);
  }
}

Action declare_completion(CLI::App& app, const Common&) {
  const auto shell = std::make_shared<std::string>();
  only(app.add_option("SHELL", *shell, "shell to print the script for"), {"bash", "zsh", "fish"})->required();
  return [&app, shell] {
    const DescribedProgram program = describe(*app.get_parent());
    (*shell == "bash" ? print_bash : *shell == "zsh" ? print_zsh : print_fish)(std::cout, program);
    return 0;
  };
}

const RegisterVerb kCompletion{
    {"completion", "print a shell script that completes verbs, flags and values", declare_completion}};

}  // namespace
}  // namespace tenon::cli
