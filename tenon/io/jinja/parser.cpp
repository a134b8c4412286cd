#include "tenon/io/jinja/parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

#include "tenon/core/error.h"
#include "tenon/io/jinja/lexer.h"
#include "tenon/io/jinja/library.h"

namespace tenon::jinja {
namespace {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& where) : tokens_(std::move(tokens)), where_(where) {}

  Body run() {
    Body out = body({});
    if (!at_end()) fail("unmatched '" + current().text + "'");
    return out;
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  // --- tokens
  [[noreturn]] void fail(const std::string& what) const {
    const int line = tokens_.empty() ? 1 : tokens_[std::min(at_, tokens_.size() - 1)].line;
    throw Error(ErrorKind::Model, where_, "line " + std::to_string(line) + ": " + what);
  }
  bool at_end() const { return at_ >= tokens_.size(); }
  const Token& current() const {
    if (at_end()) fail("the template ends in the middle of a tag or block");
    return tokens_[at_];
  }
  bool is(TokenKind kind) const { return !at_end() && tokens_[at_].kind == kind; }
  bool is(TokenKind kind, std::string_view text) const { return is(kind) && tokens_[at_].text == text; }
  bool is_name(std::string_view text) const { return is(TokenKind::Name, text); }
  bool is_operator(std::string_view text) const { return is(TokenKind::Operator, text); }
  bool accept_name(std::string_view text) { return is_name(text) && ++at_; }
  bool accept_operator(std::string_view text) { return is_operator(text) && ++at_; }
  void expect_operator(std::string_view text) {
    if (!accept_operator(text)) fail("expected '" + std::string(text) + "', found '" + found() + "'");
  }
  void expect(TokenKind kind, const char* what) {
    if (!is(kind)) fail(std::string("expected ") + what + ", found '" + found() + "'");
    ++at_;
  }
  std::string found() const {
    return at_end() ? "the end" : tokens_[at_].text.empty() ? "the end of a tag" : tokens_[at_].text;
  }
  std::string name() {
    if (!is(TokenKind::Name)) fail("expected a name, found '" + found() + "'");
    return tokens_[at_++].text;
  }

  // Limits how deep blocks and brackets nest; counts one level during its lifetime.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.level_ > kMaxNested) parser_.fail("nested deeper than " + std::to_string(kMaxNested) + " levels");
    }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  // --- expressions
  std::unique_ptr<Expression> node(ExpressionKind kind, std::string text = {}) const {
    auto out = std::make_unique<Expression>();
    out->kind = kind;
    out->name = std::move(text);
    out->line = at_end() ? (tokens_.empty() ? 1 : tokens_.back().line) : tokens_[at_].line;
    return out;
  }
  void add(Expression& to, ExpressionPtr operand) const {
    if (operand) to.depth = std::max(to.depth, operand->depth + 1);
    if (to.depth > kMaxNested) fail("an expression nested deeper than " + std::to_string(kMaxNested) + " levels");
    to.operands.push_back(std::move(operand));
  }
  ExpressionPtr make(ExpressionKind kind, std::string text, ExpressionPtr a, ExpressionPtr b = nullptr) const {
    auto out = node(kind, std::move(text));
    add(*out, std::move(a));
    if (b) add(*out, std::move(b));
    return out;
  }

  ExpressionPtr expression() {
    const Level level(*this);
    ExpressionPtr value = either();
    while (accept_name("if")) {
      auto out = node(ExpressionKind::If);
      add(*out, either());
      add(*out, std::move(value));
      add(*out, accept_name("else") ? expression() : nullptr);
      value = std::move(out);
    }
    return value;
  }
  ExpressionPtr either() {
    ExpressionPtr left = both();
    while (accept_name("or")) left = make(ExpressionKind::Or, "", std::move(left), both());
    return left;
  }
  ExpressionPtr both() {
    ExpressionPtr left = negation();
    while (accept_name("and")) left = make(ExpressionKind::And, "", std::move(left), negation());
    return left;
  }
  ExpressionPtr negation() {
    if (!accept_name("not")) return comparison();
    const Level level(*this);
    return make(ExpressionKind::Not, "", negation());
  }

  // The comparison operator at this place, "" if there is none.
  std::string comparison_operator() {
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"})
      if (accept_operator(op)) return std::string(op);
    if (accept_name("in")) return "in";
    if (is_name("not") && at_ + 1 < tokens_.size() && tokens_[at_ + 1].text == "in" &&
        tokens_[at_ + 1].kind == TokenKind::Name) {
      at_ += 2;
      return "not in";
    }
    return "";
  }
  ExpressionPtr comparison() {
    ExpressionPtr left = sum();
    const std::string op = comparison_operator();
    if (op.empty()) return left;
    ExpressionPtr out = op == "not in"
                            ? make(ExpressionKind::Not, "", make(ExpressionKind::Compare, "in", std::move(left), sum()))
                            : make(ExpressionKind::Compare, op, std::move(left), sum());
    if (!comparison_operator().empty()) fail("comparisons in a chain are not supported");
    return out;
  }
  ExpressionPtr sum() {
    ExpressionPtr left = joined();
    while (is_operator("+") || is_operator("-")) {
      std::string op = tokens_[at_++].text;
      left = make(ExpressionKind::Arithmetic, std::move(op), std::move(left), joined());
    }
    return left;
  }
  ExpressionPtr joined() {
    ExpressionPtr left = product();
    while (accept_operator("~")) left = make(ExpressionKind::Arithmetic, "~", std::move(left), product());
    return left;
  }
  ExpressionPtr product() {
    ExpressionPtr left = unary(true);
    while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
      std::string op = tokens_[at_++].text;
      left = make(ExpressionKind::Arithmetic, std::move(op), std::move(left), unary(true));
    }
    return left;
  }
  ExpressionPtr unary(bool with_filters) {
    const Level level(*this);
    ExpressionPtr out;
    if (accept_operator("-"))
      out = make(ExpressionKind::Negative, "", unary(false));
    else if (accept_operator("+"))
      out = make(ExpressionKind::Positive, "", unary(false));
    else
      out = postfix(primary());
    if (is_operator("**")) fail("'**' is not supported");
    return with_filters ? filters(std::move(out)) : std::move(out);
  }

  ExpressionPtr primary() {
    const Token token = current();
    if (token.kind == TokenKind::Name) return named_value();
    if (token.kind == TokenKind::String) {
      std::string text;
      while (is(TokenKind::String)) text += tokens_[at_++].text;  // adjacent strings are concatenated
      return literal(std::move(text));
    }
    if (token.kind == TokenKind::Integer || token.kind == TokenKind::Float) return number();
    if (accept_operator("(")) {
      ExpressionPtr out = expression();
      if (is_operator(",")) fail("tuples are not supported");
      expect_operator(")");
      return out;
    }
    if (accept_operator("[")) return list();
    if (accept_operator("{")) return dict();
    fail("expected an expression, found '" + found() + "'");
  }
  ExpressionPtr literal(Value value) const {
    auto out = node(ExpressionKind::Literal);
    out->value = std::move(value);
    return out;
  }
  ExpressionPtr named_value() {
    const std::string text = name();
    if (text == "true" || text == "True") return literal(true);
    if (text == "false" || text == "False") return literal(false);
    if (text == "none" || text == "None") return literal(None{});
    return node(ExpressionKind::Name, text);
  }
  ExpressionPtr number() {
    const Token token = tokens_[at_++];
    const char* end = token.text.data() + token.text.size();
    if (token.kind == TokenKind::Float) {
      double value = 0;
      if (std::from_chars(token.text.data(), end, value).ec != std::errc())
        fail("the number " + token.text + " is too large");
      return literal(value);
    }
    int64_t value = 0;
    if (std::from_chars(token.text.data(), end, value).ec != std::errc())
      fail("the number " + token.text + " is too large");
    return literal(value);
  }
  ExpressionPtr list() {
    auto out = node(ExpressionKind::MakeList);
    while (!accept_operator("]")) {
      add(*out, expression());
      if (!is_operator("]")) expect_operator(",");
    }
    return out;
  }
  ExpressionPtr dict() {
    auto out = node(ExpressionKind::MakeDict);
    while (!accept_operator("}")) {
      add(*out, expression());
      expect_operator(":");
      add(*out, expression());
      if (!is_operator("}")) expect_operator(",");
    }
    return out;
  }

  ExpressionPtr postfix(ExpressionPtr out) {
    for (;;) {
      if (accept_operator("."))
        out = attribute(std::move(out));
      else if (accept_operator("["))
        out = subscript(std::move(out));
      else if (is_operator("("))
        out = call(std::move(out));
      else
        return out;
    }
  }
  ExpressionPtr attribute(ExpressionPtr of) {
    if (is(TokenKind::Integer)) return make(ExpressionKind::Item, "", std::move(of), number());
    std::string text = name();
    const bool method = is_operator("(");
    auto out = node(method ? ExpressionKind::Method : ExpressionKind::Attribute, std::move(text));
    add(*out, std::move(of));
    if (method && !is_method(out->name)) fail("there is no method '" + out->name + "'");
    if (method) arguments(*out);
    return out;
  }
  ExpressionPtr call(ExpressionPtr of) {
    if (of->kind != ExpressionKind::Name) fail("only functions and methods can be called");
    auto out = node(ExpressionKind::Call, of->name);
    arguments(*out);
    return out;
  }
  ExpressionPtr subscript(ExpressionPtr of) {
    std::array<ExpressionPtr, 3> bounds;
    size_t colons = 0;
    for (;;) {
      if (accept_operator("]")) break;
      if (accept_operator(":")) {
        if (++colons > 2) fail("a slice has at most three parts");
        continue;
      }
      if (bounds[colons]) fail("expected ']', found '" + found() + "'");
      bounds[colons] = expression();
    }
    if (colons == 0) {
      if (!bounds[0]) fail("expected an index");
      return make(ExpressionKind::Item, "", std::move(of), std::move(bounds[0]));
    }
    auto out = node(ExpressionKind::Slice);
    add(*out, std::move(of));
    for (ExpressionPtr& bound : bounds) add(*out, std::move(bound));
    return out;
  }

  // Parses "(a, b, name=c)" into the operands and named operands of a call.
  void arguments(Expression& to) {
    expect_operator("(");
    while (!accept_operator(")")) {
      const bool is_named = is(TokenKind::Name) && at_ + 1 < tokens_.size() && tokens_[at_ + 1].text == "=" &&
                            tokens_[at_ + 1].kind == TokenKind::Operator;
      if (is_named) {
        std::string key = name();
        ++at_;
        ExpressionPtr value = expression();
        to.depth = std::max(to.depth, value->depth + 1);
        to.named.emplace_back(std::move(key), std::move(value));
      } else {
        if (!to.named.empty()) fail("a positional argument after a named one");
        add(to, expression());
      }
      if (!is_operator(")")) expect_operator(",");
    }
    if (to.depth > kMaxNested) fail("an expression nested deeper than " + std::to_string(kMaxNested) + " levels");
  }

  ExpressionPtr filters(ExpressionPtr out) {
    for (;;) {
      if (accept_operator("|")) {
        auto filter = node(ExpressionKind::Filter, name());
        if (!is_filter(filter->name)) fail("there is no filter '" + filter->name + "'");
        add(*filter, std::move(out));
        if (is_operator("(")) arguments(*filter);
        out = std::move(filter);
      } else if (accept_name("is")) {
        out = test(std::move(out));
      } else {
        return out;
      }
    }
  }
  ExpressionPtr test(ExpressionPtr of) {
    const bool negated = accept_name("not");
    auto out = node(ExpressionKind::Test, name());
    if (!is_test(out->name)) fail("there is no test '" + out->name + "'");
    add(*out, std::move(of));
    const bool takes_one = out->name == "eq" || out->name == "equalto" || out->name == "ne" || out->name == "in" ||
                           out->name == "divisibleby" || out->name == "sameas";
    if (is_operator("("))
      arguments(*out);
    else if (takes_one)
      add(*out, postfix(primary()));
    if (!negated) return out;
    return make(ExpressionKind::Not, "", std::move(out));
  }

  // --- statements
  static bool is_any(const std::string& text, Words words) {
    return std::find(words.begin(), words.end(), text) != words.end();
  }

  // Whether {% word %} is next, for one of the words.
  bool at_block(Words words) const {
    return is(TokenKind::BlockBegin) && at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == TokenKind::Name &&
           is_any(tokens_[at_ + 1].text, words);
  }
  // Parses statements up to {% word %}, which is not consumed.
  Body body(Words until) {
    const Level level(*this);
    Body out;
    while (!at_end() && !at_block(until)) {
      if (is(TokenKind::BlockBegin) && at_block({"endif", "endfor", "endset", "endgeneration", "else", "elif"}))
        fail("unmatched '" + tokens_[at_ + 1].text + "'");
      out.push_back(statement());
    }
    if (at_end() && until.size() > 0) fail("unterminated block; expected '" + std::string(*(until.end() - 1)) + "'");
    return out;
  }
  void end_block(std::string_view word) {
    expect(TokenKind::BlockBegin, "a block");
    if (!accept_name(word)) fail("expected '" + std::string(word) + "', found '" + found() + "'");
    expect(TokenKind::BlockEnd, "'%}'");
  }

  Statement statement() {
    Statement out;
    out.line = current().line;
    if (is(TokenKind::Data)) {
      out.text = tokens_[at_++].text;
      return out;
    }
    if (is(TokenKind::PrintBegin)) {
      ++at_;
      out.kind = StatementKind::Print;
      out.expression = expression();
      expect(TokenKind::PrintEnd, "'}}'");
      return out;
    }
    expect(TokenKind::BlockBegin, "a tag");
    const std::string word = name();
    if (word == "if") return if_statement(std::move(out));
    if (word == "for") return for_statement(std::move(out));
    if (word == "set") return set_statement(std::move(out));
    if (word == "generation") return block_statement(std::move(out));
    if (word != "break" && word != "continue") fail("'" + word + "' is not supported in chat templates here");
    if (loops_ == 0) fail("'" + word + "' outside of a loop");
    out.kind = word == "break" ? StatementKind::Break : StatementKind::Continue;
    expect(TokenKind::BlockEnd, "'%}'");
    return out;
  }

  Statement if_statement(Statement out) {
    out.kind = StatementKind::If;
    ExpressionPtr condition = expression();
    for (;;) {
      expect(TokenKind::BlockEnd, "'%}'");
      out.branches.push_back({std::move(condition), body({"elif", "else", "endif"})});
      const bool last = !out.branches.back().condition;
      ++at_;
      if (!last && accept_name("elif")) {
        condition = expression();
      } else if (!last && accept_name("else")) {
        condition = nullptr;
      } else {
        if (!accept_name("endif")) fail("expected 'endif', found '" + found() + "'");
        expect(TokenKind::BlockEnd, "'%}'");
        return out;
      }
    }
  }

  Statement for_statement(Statement out) {
    out.kind = StatementKind::For;
    out.names.push_back(name());
    while (accept_operator(",")) out.names.push_back(name());
    if (!accept_name("in")) fail("expected 'in', found '" + found() + "'");
    out.expression = either();
    if (accept_name("if")) out.condition = expression();
    if (is_name("recursive")) fail("recursive loops are not supported");
    expect(TokenKind::BlockEnd, "'%}'");
    ++loops_;
    out.body = body({"else", "endfor"});
    --loops_;
    if (at_block({"else"})) {
      end_block("else");
      out.otherwise = body({"endfor"});
    }
    end_block("endfor");
    return out;
  }

  Statement set_statement(Statement out) {
    out.names.push_back(name());
    if (accept_operator(".")) out.attribute = name();
    if (is_operator(",")) fail("setting several names at once is not supported");
    if (accept_operator("=")) {
      out.kind = StatementKind::Set;
      out.expression = expression();
      expect(TokenKind::BlockEnd, "'%}'");
      return out;
    }
    if (!is(TokenKind::BlockEnd)) fail("expected '=', found '" + found() + "'");
    ++at_;
    out.kind = StatementKind::SetBody;
    const int loops = std::exchange(loops_, 0);  // break and continue cannot leave a loop outside of the block
    out.body = body({"endset"});
    loops_ = loops;
    end_block("endset");
    return out;
  }

  Statement block_statement(Statement out) {
    out.kind = StatementKind::Block;
    expect(TokenKind::BlockEnd, "'%}'");
    out.body = body({"endgeneration"});
    end_block("endgeneration");
    return out;
  }

  std::vector<Token> tokens_;
  const std::string& where_;
  size_t at_ = 0;
  int level_ = 0, loops_ = 0;
};

}  // namespace

Body parse(std::string_view source, const std::string& where) { return Parser(tokenize(source, where), where).run(); }

}  // namespace tenon::jinja
