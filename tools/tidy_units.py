"""Pastes sources that are compiled alike into units, so that clang-tidy reads their headers once.

tools/tidy_units.py BUILD_FOLDER OUT FILES... writes the units and their compile_commands.json to OUT and prints a line
for each: the unit, then what is in it.
"""

import json
import pathlib
import shlex
import sys

FILES_OF_A_UNIT = 12


def flags_of(entry):
    """The command without the file and its object."""
    words = shlex.split(entry["command"])
    drop = {words.index("-o") + 1, words.index("-o"), words.index("-c") + 1, words.index("-c")}
    return tuple(w for i, w in enumerate(words) if i not in drop)


def main(folder, out, names):
    root = pathlib.Path.cwd()
    entries = {e["file"]: e for e in json.loads((pathlib.Path(folder) / "compile_commands.json").read_text())}
    alike = {}
    for name in names:
        entry = entries[str(root / name)]
        alike.setdefault((entry["directory"], flags_of(entry)), []).append(name)
    out = pathlib.Path(out).resolve()
    commands = []
    for (directory, flags), files in alike.items():
        for first in range(0, len(files), FILES_OF_A_UNIT):
            mine = files[first : first + FILES_OF_A_UNIT]
            unit = out / f"unit{len(commands)}.cpp"
            unit.write_text("\n".join((root / f).read_text() for f in mine))
            commands.append({"directory": directory, "file": str(unit), "command": shlex.join([*flags, "-c", str(unit)])})
            print(unit, *mine)
    (out / "compile_commands.json").write_text(json.dumps(commands))


main(sys.argv[1], sys.argv[2], sys.argv[3:])
