// A template's syntax tree.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/io/jinja/value.h"

namespace tenon::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class ExpressionKind {
  Literal,    // value
  Name,       // name
  MakeList,   // operands
  MakeDict,   // operands: key, value, key, value, ...
  Attribute,  // operands[0].name
  Item,       // operands[0][operands[1]]
  Slice,      // operands[0][operands[1]:operands[2]:operands[3]], null where left out
  Call,       // name(operands) of a global function
  Method,     // operands[0].name(operands[1..])
  Filter,     // operands[0] | name(operands[1..])
  Test,       // operands[0] is name(operands[1..])
  Not,
  Negative,
  Positive,
  And,
  Or,
  If,         // operands[1] if operands[0] else operands[2], which may be null
  Compare,    // operands[0] name operands[1]: == != < <= > >= in
  Arithmetic  // operands[0] name operands[1]: + - * / // % ~
};

struct Expression {
  ExpressionKind kind;
  int line = 0;
  int depth = 1;  ///< of the tree below; evaluation recurses that deep
  std::string name;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;  ///< arguments of a call, method, filter or test
};

struct Statement;
using Body = std::vector<Statement>;

enum class StatementKind {
  Text,     // text
  Print,    // expression
  If,       // branches; the last one's condition is null if it is an else
  For,      // names, expression, condition (may be null), body, otherwise
  Set,      // names[0] = expression, or attribute of namespace names[0]
  SetBody,  // names[0] = what body prints
  Block,    // body, rendered as if the tag were not there ({% generation %})
  Break,
  Continue
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  StatementKind kind = StatementKind::Text;
  int line = 0;
  std::string text, attribute;
  std::vector<std::string> names;
  ExpressionPtr expression, condition;
  Body body, otherwise;
  std::vector<Branch> branches;
};

}  // namespace tenon::jinja
