// Values of chat templates as Python has them: generators, views of mappings, methods as attributes, numbers. All
// expected texts are jinja2's, as transformers configures it.
#include "tenon/io/chat_template.h"
#include "tests/io/io_test_tools.h"

namespace {
using namespace io_test;
using namespace tenon;
using nlohmann::ordered_json;

const ordered_json kData = ordered_json::parse(
    R"({"l": [3, 1, 2], "e": [], "d": {"k": "v", "b": 1, "items": "I"}, "s": "abc",
        "messages": [{"role": "system"}, {"role": "user"}]})");

std::string python_text(const std::string& source) { return ChatTemplate::compile(source, "test").render(kData); }

struct Case {
  const char *source, *text;
};
void expect_all(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(python_text(c.source), c.text) << c.source;
}
void expect_refused(ErrorKind kind, const std::vector<Case>& cases) {
  for (const Case& c : cases) expect_error(kind, c.text, [&] { python_text(c.source); });
}

TEST(PythonValues, GeneratorsAreTakenOnce) {
  expect_all({
      {"{% if messages|selectattr('role', 'eq', 'x') %}Y{% else %}N{% endif %}", "Y"},
      {"{{ 'y' if e|map('upper') else 'n' }}{{ 'y' if e|reject else 'n' }}{{ 'y' if e|reverse else 'n' }}", "yyy"},
      {"{{ 'y' if {}|items else 'n' }}{{ 'y' if {}.items() else 'n' }}{{ 'y' if nope|map('x') else 'n' }}", "yny"},
      {"{% set x = l|select %}{% for i in x %}{{ i }}{% endfor %}|{% for i in x %}{{ i }}{% endfor %}", "312|"},
      {"{% set x = l|map('string') %}{{ x|first }}|{{ x|list }}|{{ x|list }}", "3|['1', '2']|[]"},
      {"{% set x = l|select %}{{ 1 in x }}{{ x|list }}", "True[2]"},
      {"{% set x = l|select %}{% for i in x %}{% break %}{% endfor %}{{ x|list }}", "[1, 2]"},
      {"{% set x = l|select %}{% for i in x %}{{ loop.last }}{% break %}{% endfor %}{{ x|list }}", "False[2]"},
      {"{% set x = l|select %}{% for i in x %}{{ loop.length }}{% break %}{% endfor %}{{ x|list }}", "3[]"},
      {"{{ (l|select)[0] is defined }}{{ l|select == l }}{{ l|select is sequence }}{{ l|select is iterable }}",
       "FalseFalseFalseTrue"},
      {"{% set x = l|select %}{{ x == x }}{{ x in [x] }}", "TrueTrue"},
      {"{{ l|reverse|list }}{{ l|reverse|first }}{{ l|reverse|reverse }}{{ s|reverse }}", "[2, 1, 3]2[3, 1, 2]cba"},
      {"{{ l|map('string')|join }}{{ l|select|list|length }}", "3123"},
  });
  expect_refused(ErrorKind::Usage, {{"{{ l|select }}", "a generator cannot be written as text"},
                                    {"{{ l|select|tojson }}", "a generator cannot be written as text"},
                                    {"{{ (l|select) + l }}", "'+' between a generator and a list"},
                                    {"{{ (l|select)[1:] }}", "cannot slice a generator"}});
  expect_refused(ErrorKind::Model, {{"{{ l|select|length }}", "a generator has no length; |list makes it a list"},
                                    {"{{ l|select|last }}", "a generator cannot be read backwards"}});
}

TEST(PythonValues, ViewsOfMappingsAndRangesAreNoLists) {
  expect_all({
      {"{{ d.keys() }}{{ d.values() }}{{ {'a': 1}.items() }}",
       "dict_keys(['k', 'b', 'items'])dict_values(['v', 1, 'I'])dict_items([('a', 1)])"},
      {"{{ d.keys() == ['k', 'b', 'items'] }}{{ d.keys()|list == ['k', 'b', 'items'] }}", "FalseTrue"},
      {"{{ {'a': 1, 'b': 2}.keys() == {'b': 1, 'a': 2}.keys() }}{{ d.values() == d.values() }}", "TrueFalse"},
      {"{{ range(3) == [0, 1, 2] }}{{ range(3) == range(3) }}{{ range(3) is sequence }}", "FalseTrueTrue"},
      {"{{ d.keys()[0] is defined }}{{ d.keys() is sequence }}{{ d.keys() is iterable }}", "FalseFalseTrue"},
      {"{{ d.items()|last }}{{ d.items()|length }}{{ range(3)|last }}{{ range(3)[1] }}", "('items', 'I')321"},
      {"{{ (d|dictsort|first)[:1] }}{{ d|dictsort|first + d|dictsort|last }}", "('b',)('b', 1, 'k', 'v')"},
  });
  expect_refused(ErrorKind::Model, {{"{{ range(3) }}", "a range cannot be written as text; |list makes it a list"},
                                    {"{{ d.keys()|tojson }}", "a view of a mapping cannot be written as text"}});
  expect_refused(ErrorKind::Usage, {{"{{ d.keys() + [1] }}", "'+' between a view of a mapping and a list"}});
}

TEST(PythonValues, AMappingsMethodsHideItsKeysOfTheSameName) {
  expect_all({
      {"{{ d['items'] }}{{ d.get('items') }}{{ d.k }}", "IIv"},
      {"{{ messages[0].items is defined }}{{ messages[0]['items'] is defined }}{{ 'items' in messages[0] }}",
       "TrueTrueFalse"},
      {"{{ 'y' if messages[0].values else 'n' }}{{ messages[0].copy is defined }}", "yTrue"},
      {"{{ d.pop is defined }}{{ d.update }}{{ l.append is defined }}{{ l.count is defined }}", "FalseFalseTrue"},
      {"{{ s.format is defined }}{{ s['upper'] is defined }}{{ s.nope is defined }}", "TrueTrueFalse"},
      {"{% set ns = namespace(items=1) %}{{ ns.items }}{{ ns.get is defined }}", "1False"},
      {"{{ messages|map(attribute='items')|list|length }}{{ [d]|map(attribute='items')|list }}", "2['I']"},
      {"{% set r = range %}{{ r(2)|list }}", "[0, 1]"},
  });
  expect_refused(ErrorKind::Usage, {{"{{ d.items }}", "a method cannot be written as text"}});
  expect_refused(ErrorKind::Model, {{"{% set f = d.get %}{{ f('k') }}", "a method cannot be called"}});
}

TEST(PythonValues, ElseRunsUnlessAnIterationReachedTheEnd) {
  expect_all({
      {"{% for x in l %}{% break %}{% else %}E{% endfor %}", "E"},
      {"{% for x in l %}{% continue %}{% else %}E{% endfor %}", "E"},
      {"{% for x in l %}{% if loop.first %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %}", "12"},
      {"{% for x in l %}{{ x }}{% if x == 1 %}{% break %}{% endif %}{% else %}E{% endfor %}", "31"},
      {"{% for x in e %}x{% else %}E{% endfor %}{% for x in l if x > 3 %}x{% else %}E{% endfor %}", "EE"},
      {"{% for x in l %}{% for y in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor %}",
       "101010101010101010"},
  });
}

TEST(PythonValues, Numbers) {
  expect_all({
      {"{{ '+5'|int }} {{ '1_0'|int }} {{ '_1'|int }} {{ '1__0'|int }} {{ ' -7 '|int }} {{ '- 5'|int }}",
       "5 10 0 0 -7 0"},
      {"{{ '0x1f'|int(0, 16) }} {{ '0b11'|int(0, 2) }} {{ '0b11'|int(0, 0) }} {{ '0b11'|int }} {{ 'z'|int(base=36) }}",
       "31 3 3 0 35"},
      {"{{ '017'|int }} {{ '017'|int(0, 0) }} {{ '5'|int(base=99) }} {{ '٣'|int }} {{ '٣.٥'|int }} {{ '𝟙𝟚'|int }}",
       "17 17 5 3 3 12"},
      {"{{ '42.9'|int }} {{ '+4.5'|int }} {{ '1e3'|int }} {{ '1e-999'|int(7) }} {{ '1e999'|int(7) }} {{ 'nan'|int(7) "
       "}}",
       "42 4 1000 0 7 7"},
      {"{{ none|int(5) }} {{ []|int(3) }} {{ true|int }} {{ -3.9|int }} {{ ''|int(7) }} {{ '+'|int }} {{ "
       "'+-1.5'|int(9) }}",
       "5 3 1 -3 7 0 9"},
      {"{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }}", "False True"},
      {"{{ 9223372036854775807 == 9223372036854775807.0 }} {{ 9223372036854775807 < 1e300 }} {{ 1e300 < 5 }}",
       "False True False"},
      {"{% set i = 1e308 * 10 %}{% set n = i - i %}{{ n <= 1 }} {{ n >= 1 }} {{ n < 1 }} {{ n == n }} {{ n != n }}",
       "False False False False True"},
      {"{{ -0.0 }} {{ 2.5 is odd }} {{ 2.5 is even }} {{ 3.0 is odd }} {{ -3 is odd }}", "-0.0 False False True True"},
  });
  for (const char* source : {"{{ '99999999999999999999'|int }}", "{{ 1e300|int }}"})
    expect_refused(ErrorKind::Model, {{source, "an integer beyond 64 bits"}});
  expect_refused(ErrorKind::Usage, {{"{{ nope|int }}", "int: undefined 'nope'"}});
}

TEST(PythonValues, ArgumentsAreNotIgnored) {
  expect_all({
      {"{{ 'abc'.startswith('b', 1) }}{{ 'abc'.endswith('b', 0, 2) }}{{ 'äbc'.startswith('c', -1) }}", "TrueTrueTrue"},
      {"{{ 'abc'.startswith('', 3) }}{{ 'abc'.startswith('', 4) }}{{ 'abc'.startswith('', 2, 1) }}", "TrueFalseFalse"},
      {"{{ {'a': [1]}|tojson(indent='\\t') }}", "{\n\t\"a\": [\n\t\t1\n\t]\n}"},
      {"{{ [1]|tojson(indent=true) }}{{ [1]|tojson(indent=-1) }}{{ [1]|tojson(indent='') }}{{ [1]|tojson(indent=none) "
       "}}",
       "[\n 1\n][\n1\n][\n1\n][1]"},
  });
  expect_refused(ErrorKind::Usage, {{"{{ [1]|tojson(indent=1.5) }}", "expected an indent in blanks or a string"}});
  expect_refused(ErrorKind::Usage, {{"{{ s.startswith(['a']) }}", "startswith: expected a string, found a list"}});
  expect_error(ErrorKind::Model, "\\N names a character", [] { python_text("{{ '\\N{DASH}' }}"); });
}

}  // namespace
