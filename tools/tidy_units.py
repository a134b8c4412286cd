"""Joins sources of a layer that are compiled alike into units, so that clang-tidy reads their headers once.

tools/tidy_units.py BUILD_FOLDER OUT FILES... writes the units to OUT, with a compile_commands.json for them and for the
single files, and prints a line per unit: the unit, then its files. A unit's .preprocess is a command that prints its
preprocessed text.

tools/tidy_units.py --found UNIT reads clang-tidy's output for a unit and prints the files with findings: all of them if
the unit does not compile, or if a finding is in a header.
"""

import json
import pathlib
import re
import shlex
import sys

FILES_OF_A_UNIT = 52


def flags_of(entry):
    """The command without the source and object files."""
    words = shlex.split(entry["command"])
    drop = {words.index("-o") + 1, words.index("-o"), words.index("-c") + 1, words.index("-c")}
    return tuple(w for i, w in enumerate(words) if i not in drop)


def sources_of(entry):
    """The file of an entry, or the files that a unity file includes."""
    if re.search(r"/Unity/unity_\d+_cxx\.cxx$", entry["file"]):
        return re.findall(r'#include "([^"]+)"', pathlib.Path(entry["file"]).read_text())
    return [entry["file"]]


def layer_of(name):
    """Where file-local names differ: tenon/plan, apps/cli, tenon/backend/cuda; tenon/backend for its own files."""
    folders = pathlib.PurePath(name).parent.parts
    return folders[: 3 if folders[:2] == ("tenon", "backend") else 2]


def found_in(unit, said):
    """The files of a unit that have findings."""
    files = json.loads(pathlib.Path(f"{unit}.files").read_text())  # with the line that each begins at
    places = re.findall(r"^(/[^:\n]+):(\d+):\d+: (?:error|warning): .*\[(.*)\]$", said, re.M)
    if not places or any(where != unit or "clang-diagnostic-error" in check for where, _, check in places):
        return [name for name, _ in files]
    return list(dict.fromkeys([n for n, begin in files if begin <= int(line)][-1] for _, line, _ in places))


def main(folder, out, names):
    root = pathlib.Path.cwd()
    listed = json.loads((pathlib.Path(folder) / "compile_commands.json").read_text())
    entries = {source: entry for entry in listed for source in sources_of(entry)}
    alike = {}
    for name in names:
        entry = entries[str(root / name)]
        alike.setdefault((entry["directory"], layer_of(name), flags_of(entry)), []).append(name)
    out = pathlib.Path(out).resolve()
    commands, units = [], []
    for (directory, _, flags), files in alike.items():
        def add(file):
            commands.append({"directory": directory, "file": str(file), "command": shlex.join([*flags, "-c", str(file)])})

        parts = -(-len(files) // FILES_OF_A_UNIT)
        for part in range(parts):
            mine = files[part::parts]
            unit = out / f"unit{len(commands)}.cpp"
            texts = [(root / f).read_text() + "\n" for f in mine]
            unit.write_text("".join(texts))
            begins = [1 + sum(t.count("\n") for t in texts[:i]) for i in range(len(texts))]
            pathlib.Path(f"{unit}.files").write_text(json.dumps(list(zip(mine, begins))))
            add(unit)
            read = shlex.join(["clang++", *flags[1:], "-w", "-E", "-P", "-C", str(unit)])
            pathlib.Path(f"{unit}.preprocess").write_text(f"cd {shlex.quote(directory)} && {read}\n")
            for file in mine:
                add(root / file)
            units.append((unit.stat().st_size, [str(unit), *mine]))
    (out / "compile_commands.json").write_text(json.dumps(commands))
    for _, unit in sorted(units, reverse=True):  # largest first, so that none is left alone at the end
        print(*unit)


if sys.argv[1] == "--found":
    print(*found_in(sys.argv[2], sys.stdin.read()))
else:
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
