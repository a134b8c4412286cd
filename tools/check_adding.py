#!/usr/bin/env python3
"""Checks that what docs/adding.md names is all that the build needs of a new file.

Puts a file into a copy of the tree at every place with a <name> in it that the page gives, configures the copy, and
fails unless the build compiles or embeds each of them. tests/cli/new_files are files that then also run.

usage: check_adding.py CMAKE NINJA COMPILER
"""
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("apps", "bench", "cmake", "examples", "tenon", "tests")
PLACE = re.compile(r"`((?:apps|examples|tenon|tests)/[^`*]*<[^`*]*)`")
NAMES = {"<architecture>": "sm_00", "<area>": "dropped_area"}
DATA = ("tests/fixtures", "tests/fuzz/corpus", "bench/results")
NODE = """#pragma once
namespace tenon::nodes {{ struct Dropped; }}
// {mark}
NODE(Dropped, dropped)
"""


def expanded(text):
    """'a/{b,c}' -> a/b, a/c."""
    parts = [p.strip("{}").split(",") for p in re.findall(r"\{[^}]*\}|[^{]+", text)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def places():
    """Paths of files to add. A folder gets one source."""
    page = (ROOT / "docs/adding.md").read_text()
    rows = re.findall(r"^\| (?!to add)\w.*", page, re.M)
    vague = [row for row in rows if not PLACE.search(row)]
    if vague or not rows:
        sys.exit("\n".join(["adding: rows without a place:", *vague]))
    found = set()
    for text in PLACE.findall(page):
        for path in expanded(text):
            for placeholder, name in NAMES.items():
                path = path.replace(placeholder, name)
            path = re.sub(r"<\w+>", "dropped", path)
            found.add(path + "dropped.cpp" if path.endswith("/") else path)
    return sorted(path for path in found if not path.startswith("tests/fuzz/corpus/"))  # tools/fuzz.sh finds it by name


def product(path):
    """What the build makes of a file: a program, by its path in the build folder."""
    folder, name = path.split("/")[:-1], pathlib.PurePath(path).stem
    if folder == ["examples"]:
        return f"bin/example_{name}"
    if folder == ["tests", "fuzz"]:
        return f"bin/fuzz_{name}"
    return f"bin/test_{folder[1]}" if folder[0] == "tests" else "bin/tenon"


def is_picked_up(path):
    """Whether the build itself must find the file; other headers are included by sources."""
    return not path.endswith(".h") or path.startswith(("tenon/expr/nodes/", "tenon/backend/cuda/device/"))


def copy_tree(tree):
    def link(source, target):
        os.symlink(source, target)

    def ignored(folder, names):
        inside = pathlib.Path(folder).relative_to(ROOT)
        return [name for name in names if str(inside / name) in DATA]

    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tree / folder, copy_function=link, ignore=ignored)
    link(ROOT / "CMakeLists.txt", tree / "CMakeLists.txt")


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"adding: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


class Build:
    """A configured build folder, asked what it would do."""

    def __init__(self, ninja, folder, programs):
        self.folder, self.query = folder, (ninja, "-C", folder, "-t")
        targets = self.ask("targets", "all")
        self.inputs = {p: self.inputs_of(p) for p in programs if f"\n{p}:" in targets}
        self.texts = {}

    def ask(self, *question):
        return run(*self.query, *question)

    def inputs_of(self, program):
        inputs = set(self.ask("inputs", program).splitlines())
        for source in [i for i in inputs if "/Unity/" in i and i.endswith(".cxx")]:
            inputs.update(re.findall(r'#include "(.*)"', (self.folder / source).read_text()))
        return inputs

    def embedded(self, path):
        """The sources generated from a file, made here without what else the build would do before."""
        sources = re.findall(r"^ +(generated/\S+\.cpp)$", self.ask("query", path), re.M)
        for source in sources:
            if source not in self.texts:
                run("sh", "-c", self.ask("commands", "-s", source).splitlines()[-1])
                self.texts[source] = (self.folder / source).read_text()
        return "".join(self.texts[source] for source in sources)

    def error(self, tree, path):
        """What is wrong with a file, or None."""
        program = product(path)
        if program not in self.inputs:
            return f"{path}: the build has no {program}"
        if str(tree / path) not in self.inputs[program]:
            return f"{path}: {program} is not made of it"
        if not path.endswith(".cpp") and f"dropped as {path}" not in self.embedded(tree / path):
            return f"{path}: no source has its text"
        return None


def main(arguments):
    cmake, ninja, compiler = arguments
    with tempfile.TemporaryDirectory(prefix="tenon-adding-") as folder:
        tree, build = pathlib.Path(folder) / "tree", pathlib.Path(folder) / "build"
        copy_tree(tree)
        dropped = places()
        for path in dropped:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            text = NODE if path.startswith("tenon/expr/nodes/") else "// {mark}\n"
            (tree / path).write_text(text.format(mark=f"dropped as {path}"))
        # The tree has no tools/, so that nothing but a use of a source is an input of the library.
        run(cmake, "-G", "Ninja", "-S", tree, "-B", build, f"-DCMAKE_MAKE_PROGRAM={ninja}",
            f"-DCMAKE_CXX_COMPILER={compiler}", "-DTENON_TESTS=ON", "-DTENON_FUZZ=ON", "-Wno-dev")
        expected = [path for path in dropped if is_picked_up(path)]
        made = Build(ninja, build, {product(path) for path in expected})
        errors = list(filter(None, (made.error(tree, path) for path in expected)))
        nodes = (build / "generated/tenon/expr_generated/all_nodes.h").read_text()
        if "nodes::Dropped" not in nodes:
            errors.append("all_nodes.h: lacks the new node")
    good = f"adding: {len(expected)} new files are found by the build"
    print("\n".join(f"adding: {e}" for e in errors) if errors else good)
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
