#!/usr/bin/env python3
"""Line budgets: for a file, for a function, and for the core of the engine (expr, kernels, plan, runtime) in total.

Prints lines by folder, the longest files and functions, and everything over budget.
"""
import ast
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_BUDGET, FUNCTION_BUDGET, CORE_BUDGET = 500, 60, 8500
CORE = ("tenon/expr/", "tenon/kernels/", "tenon/plan/", "tenon/runtime/")
BAD_NAME = re.compile(r"\b[a-z][a-z0-9_]*(?:_v[0-9]+|kernel[0-9]+|_new|(?<!_from)_old|_fast)\b")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def code_of(text):
    """The text with comments, strings and preprocessor lines blanked, keeping the length of every line."""
    text = re.sub(r'R"(\w*)\(.*?\)\1"', blank, text, flags=re.S)
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def cpp_functions(text):
    """(first line, lines, name) of every outermost function body."""
    code = code_of(text)
    stack, start = [], 0  # start of the text that introduces the next brace
    for i, char in enumerate(code):
        if char in ";":
            start = i + 1
        elif char == "{":
            head = code[start:i]
            inside = bool(stack) and stack[-1][0]
            scope = re.search(r"\b(namespace|class|struct|union|enum|concept)\b", head) and not re.search(r"\)\s*(const|noexcept|override|final|\s)*$", head)
            is_function = not inside and not scope and ")" in head and not re.search(r"=\s*$", head)
            stack.append((inside or is_function, is_function, start, head))
            start = i + 1
        elif char == "}":
            start = i + 1
            if not stack:
                continue
            _, is_function, begin, head = stack.pop()
            if is_function:
                begin += len(head) - len(head.lstrip())
                name = re.search(r"([\w:~]+|operator\S+)\s*\(([^\n]*)", head)
                label = name.group(1) if name else "?"
                if label in ("TEST", "TEST_F", "TEST_P"):
                    label = name.group(0)
                yield code.count("\n", 0, begin) + 1, code.count("\n", begin, i) + 1, label


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            yield node.lineno, node.end_lineno - node.lineno + 1, node.name


def main():
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    files = [f for f in listed if f.endswith((".cpp", ".h", ".py")) and (ROOT / f).exists()]
    lines, functions, errors = {}, [], []
    for path in files:
        text = (ROOT / path).read_text()
        lines[path] = text.count("\n")
        find = python_functions if path.endswith(".py") else cpp_functions
        functions += [(count, path, at, name) for at, count, name in find(text)]
        if path.startswith(("tenon/", "apps/")):
            errors += [f"{path}: '{n}' names a history, not an idea" for n in sorted(set(BAD_NAME.findall(code_of(text))))]
    folders = collections.Counter()
    for path, count in lines.items():
        folders["/".join(path.split("/")[: 2 if path.startswith("tenon/") else 1])] += count
    for folder, count in sorted(folders.items()):
        print(f"{count:7d}  {folder}")
    print(f"{sum(lines.values()):7d}  in {len(files)} files, {len(functions)} functions")
    print("longest files:     " + ", ".join(f"{p} {n}" for n, p in sorted(((n, p) for p, n in lines.items()), reverse=True)[:3]))
    print("longest functions: " + ", ".join(f"{f} {n}" for n, _, _, f in sorted(functions, reverse=True)[:3]))
    errors += [f"{p}: {n} lines, budget {FILE_BUDGET}" for p, n in lines.items() if n > FILE_BUDGET]
    errors += [f"{p}:{at}: {f} has {n} lines, budget {FUNCTION_BUDGET}" for n, p, at, f in functions if n > FUNCTION_BUDGET]
    core = sum(n for p, n in lines.items() if p.startswith(CORE))
    print(f"expr, kernels, plan and runtime: {core} of {CORE_BUDGET} lines")
    if core > CORE_BUDGET:
        errors.append(f"expr, kernels, plan and runtime have {core} lines, budget {CORE_BUDGET}")
    print("\n".join(errors) if errors else "sizes: all within budget")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
