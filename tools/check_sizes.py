#!/usr/bin/env python3
"""Budgets: lines of a file, of a function, of the core (expr, kernels, plan, runtime) in total; and a function's
parameters.

Parameters are counted in tenon/, apps/ and python/, of declarations and definitions that are not inside a function
(lambdas are not counted), by two rules:
- A function has at most 7. More of them belong together in a struct.
- At most one is a bool, because nobody can read f(x, true, false); a second one is an enum, a member of a struct of
  options, or another function. The one bool has a name; only a definition may leave it out, where it is not used.
In Python the first rule counts parameters without a default, since callers name an option that they change, and neither
counts those that can only be given by name (after `*`), `self` and `cls`. A bool is annotated so, or has a default that
is one.

Prints lines by folder, the longest files and functions, the most parameters, and everything over budget.

--planted: checks functions that break each rule, and ones that only look as if they did, in texts that are never
written, and fails if the outcome is another.
"""
import ast
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_BUDGET, FUNCTION_BUDGET, CORE_BUDGET, PARAMETER_BUDGET = 500, 60, 8500, 7
CORE = ("tenon/expr/", "tenon/kernels/", "tenon/plan/", "tenon/runtime/")
NO_FUNCTIONS = ("__attribute__", "__launch_bounds__", "alignas", "decltype", "requires", "noexcept", "explicit")
BOOL = re.compile(r"(?:const )?bool\b(?! ?[*&.])(?: const)? ?(\w+)?")
SPACE = re.compile(r"\s*")
BAD_NAME = re.compile(r"\b[a-z][a-z0-9_]*(?:_v[0-9]+|kernel[0-9]+|_new|(?<!_from)_old|_fast)\b")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def code_of(text):
    """The text with comments, strings and preprocessor lines blanked, keeping the length of every line."""
    text = re.sub(r'R"(\w*)\(.*?\)\1"', blank, text, flags=re.S)
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def without_template_arguments(head):
    head = re.sub(r"\boperator\s*(?:\(\)|[^\s\w(]+)", "operator_", head.replace("->", "  "))
    while (shorter := re.sub(r"<[^<>]*>", "", head)) != head:
        head = shorter
    return head


def cpp_declarations(code):
    """(start, end, head, body) of what may be a function, outside of functions: the text in front of its semicolon or
    body, without template arguments, and whether it has a body, which ends at `end`."""
    stack, start, brackets = [], 0, 0  # start of the text that introduces the next brace; brackets open in that text
    for match in re.finditer(r"[;(){}]", code):
        i, char = match.start(), match.group()
        inside = bool(stack) and stack[-1][0]
        if not inside and (brackets or char in "()"):  # braces inside of them are default arguments
            brackets = max(brackets + (1 if char in "({" else -1 if char in ")}" else 0), 0)
        elif char == ";":
            if not inside and "(" in code[start:i]:
                yield start, i, without_template_arguments(code[start:i]), False
            start = i + 1
        elif char == "{":
            head = "" if inside else without_template_arguments(code[start:i])
            if re.search(r"\)[\s\w]*(?<!:):(?!:).*\w\s*$", head, re.S):  # a member in a constructor's list
                brackets = 1
                continue
            scope = re.search(r"\b(namespace|class|struct|union|enum|concept)\b", head) and not re.search(r"\)\s*(const|noexcept|override|final|\s)*$", head)
            is_function = not inside and not scope and ")" in head and not re.search(r"=\s*$", head)
            stack.append((inside or is_function, is_function, start, head))
            start = i + 1
        elif char == "}":
            start = i + 1
            if stack:
                _, is_function, begin, head = stack.pop()
                if is_function:
                    yield begin, i, head, True


def first_line(code, start):
    return code.count("\n", 0, SPACE.match(code, start).end()) + 1


def cpp_functions(code, declarations):
    """(first line, lines, name) of every outermost function body."""
    for start, end, head, body in declarations:
        if body:
            start = SPACE.match(code, start).end()
            name = re.search(r"([\w:~]+|operator\S+)\s*\(([^\n]*)", head)
            label = name.group(1) if name else "?"
            if label in ("TEST", "TEST_F", "TEST_P"):
                label = name.group(0)
            yield first_line(code, start), code.count("\n", start, end) + 1, label


def closing(text, at):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for match in re.compile(r"[][(){}]").finditer(text, at):
        depth += 1 if match.group() in "([{" else -1
        if depth == 0:
            return match.start()
    return len(text)


def split_parameters(text):
    parts, start = [], 0
    while start < len(text):
        at = start
        while at < len(text) and text[at] != ",":
            at = (closing(text, at) if text[at] in "([{" else at) + 1
        parts.append(" ".join(text[start:at].split()))
        start = at + 1
    return [p for p in parts if p not in ("", "void")]


def cpp_parameters(code, declarations):
    """(line, name, parameters, bools, whether a bool lacks the name it needs) of every function."""
    for start, _, head, body in declarations:
        at = 0
        while (opened := head.find("(", at)) >= 0:
            name = re.search(r"[\w~]*(?=\s*$)", head[:opened]).group()
            if name and name not in NO_FUNCTIONS and not (name.isupper() and len(name) > 1):
                break
            at = closing(head, opened) + 1
        if opened < 0 or "=" in head[at:opened]:
            continue
        parameters = split_parameters(head[opened + 1 : closing(head, opened)])
        bools = [b for b in map(BOOL.match, parameters) if b]
        yield first_line(code, start), name, len(parameters), len(bools), not body and any(not b[1] for b in bools)


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            yield node.lineno, node.end_lineno - node.lineno + 1, node.name


def python_parameters(text):
    """(line, name, parameters, bools, False) of every function; a bool of Python has a name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            given = [a for a in node.args.posonlyargs + node.args.args if a.arg not in ("self", "cls")]
            defaults = [None] * (len(given) - len(node.args.defaults)) + node.args.defaults
            bools = [a for a, d in zip(given, defaults) if getattr(a.annotation, "id", "") == "bool" or isinstance(getattr(d, "value", None), bool)]
            yield node.lineno, node.name, defaults.count(None), len(bools), False


def functions_of(path, code):
    """What python_functions and python_parameters, or those of C++, find."""
    if path.endswith(".py"):
        return python_functions(code), python_parameters(code)
    declarations = list(cpp_declarations(code))
    return cpp_functions(code, declarations), cpp_parameters(code, declarations)


def check_parameters(path, found):
    for at, name, count, bools, unnamed in found:
        if count > PARAMETER_BUDGET:
            yield f"{path}:{at}: {name} has {count} parameters, budget {PARAMETER_BUDGET}"
        if bools > 1:
            yield f"{path}:{at}: {name} has {bools} bool parameters, budget 1"
        if unnamed:
            yield f"{path}:{at}: {name} has a bool parameter without a name"


EIGHT, TWO = ", ".join(f"int p{i}" for i in range(8)), "bool first, bool second"
BREACHES = (  # text, a part of the only error
    ("t.h", f"void f({EIGHT});", "8 parameters"),
    ("t.h", f"struct S {{\n  template <class T, class U>\n  explicit S({EIGHT}) : a{{1}}, b(2) {{}}\n}};", "t.h:2: S has 8"),
    ("t.h", f"std::map<int, bool> f(const std::map<int, int>& m = {{{{1, 2}}, {{3, 4}}}}, {EIGHT[6:]}, int last) const;", "9 parameters"),
    ("t.h", f"auto X::operator()({EIGHT}) const -> std::vector<int> {{ return {{}}; }}", "8 parameters"),
    ("t.h", f"__attribute__((target(\"avx2\"))) void __launch_bounds__(128) f({EIGHT}) {{}}", "8 parameters"),
    ("t.h", f"template <class F>\nauto f({EIGHT}, const F& each) -> decltype(each(1)) {{}}", "t.h:1: f has 9"),
    ("t.h", f"namespace n {{ class C {{ virtual void f({TWO}) = 0; }}; }}", "2 bool"),
    ("t.h", "S(int a, bool b = false, const bool c = f({1, 2})) : a_{a} {}", "2 bool"),
    ("t.h", "void f(int a, bool);", "without a name"),
    ("t.py", f"def f({EIGHT.replace('int ', '')}): pass", "8 parameters"),
    ("t.py", "class C:\n    def f(self, a: bool, b=True): pass", "t.py:2: f has 2 bool"),
)
SOUND = (
    ("t.h", f"void f({EIGHT[:-8]});\nvoid g(std::function<void({EIGHT})> f, std::array<bool, 2> all, bool given);"),
    ("t.h", f"#define F(a) \\\n  void f({EIGHT})\nNODES(a, b, c, d, e, f, g, h);\n// void f({EIGHT});\nconst int x = f(1, 2, 3, 4, 5, 6, 7, 8);"),
    ("t.h", f"void f() {{\n  asm volatile(\"x\" :: \"r\"(a), \"r\"(b) : \"memory\");\n  g(true, false);\n  const auto l = []({EIGHT}, {TWO}) {{}};\n}}"),
    ("t.h", "void f(bool& out, const bool* all, std::optional<bool> maybe, bool) override {}"),
    ("t.h", "template <bool kFirst, bool kSecond>\nvoid f(bool only = kFirst && (kSecond || g(1, 2)));"),
    ("t.py", f"def f(a, b=1, c=2, d=3, e=4, f=5, g=6, h=7, *, first: bool, second=True): pass"),
)


def planted():
    failed = 0
    for path, text, *expected in BREACHES + SOUND:
        errors = list(check_parameters(path, functions_of(path, text if path.endswith(".py") else code_of(text))[1]))
        if [e for e in expected if e in "".join(errors)] != expected or len(errors) != len(expected):
            print(f"sizes: expected {expected}, found {errors}: {text}")
            failed += 1
    print(f"sizes: {len(BREACHES)} breaches and {len(SOUND)} sound texts, {failed} with another outcome")
    return failed > 0


def main(arguments):
    if arguments == ["--planted"]:
        return planted()
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    files = [f for f in listed if f.endswith((".cpp", ".h", ".py")) and (ROOT / f).exists()]
    lines, functions, parameters, errors = {}, [], [], []
    for path in files:
        text = (ROOT / path).read_text()
        lines[path] = text.count("\n")
        code = text if path.endswith(".py") else code_of(text)
        with_bodies, with_parameters = functions_of(path, code)
        functions += [(count, path, at, name) for at, count, name in with_bodies]
        if path.startswith(("tenon/", "apps/", "python/")):
            found = list(with_parameters)
            parameters += [(count, name) for _, name, count, _, _ in found]
            errors += check_parameters(path, found)
        if path.startswith(("tenon/", "apps/")):
            errors += [f"{path}: '{n}' names a history, not an idea" for n in sorted(set(BAD_NAME.findall(code)))]
    folders = collections.Counter()
    for path, count in lines.items():
        folders["/".join(path.split("/")[: 2 if path.startswith("tenon/") else 1])] += count
    for folder, count in sorted(folders.items()):
        print(f"{count:7d}  {folder}")
    print(f"{sum(lines.values()):7d}  in {len(files)} files, {len(functions)} functions")
    print("longest files:     " + ", ".join(f"{p} {n}" for n, p in sorted(((n, p) for p, n in lines.items()), reverse=True)[:3]))
    print("longest functions: " + ", ".join(f"{f} {n}" for n, _, _, f in sorted(functions, reverse=True)[:3]))
    print("most parameters:   " + ", ".join(f"{f} {n}" for n, f in sorted(parameters, reverse=True)[:3]))
    errors += [f"{p}: {n} lines, budget {FILE_BUDGET}" for p, n in lines.items() if n > FILE_BUDGET]
    errors += [f"{p}:{at}: {f} has {n} lines, budget {FUNCTION_BUDGET}" for n, p, at, f in functions if n > FUNCTION_BUDGET]
    core = sum(n for p, n in lines.items() if p.startswith(CORE))
    print(f"expr, kernels, plan and runtime: {core} of {CORE_BUDGET} lines")
    if core > CORE_BUDGET:
        errors.append(f"expr, kernels, plan and runtime have {core} lines, budget {CORE_BUDGET}")
    print("\n".join(errors) if errors else "sizes: all within budget")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
