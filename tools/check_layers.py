#!/usr/bin/env python3
"""Checks the layer rules on #include lines, and where names may occur. The build runs it before linking the library.

- A quoted include is the path of a file from the root of the tree, or a header that the build generates.
- A file of tenon/<layer> includes only tenon/<layer> and the layers that CMakeLists.txt lists after DEPENDS.
- A backend's folder includes the backend interface, what that may include, and itself. Nothing else includes a
  backend's folder, except tests and the code that plants faults in backends.
- Only a family of models itself, and tests, include the inside of its folder (tenon/pipelines/families/<name>).
- The names of particular models are for their families and for tenon/models: pipelines, programs and file formats ask
  what a model can do. Embedded models' names are names of folders.
- Programs, examples and benches include tenon/ and their own folder; tests include anything in the tree. Files below
  tests/cli/new_files are no tests: what holds at their place in the tree holds for them.
- A skeleton is registered in a file of its name, and so is its body in every backend that has one.
- Instruction sets and device libraries are named in backends only; getenv is called in tenon/core/options.cpp only.

--planted: breaks every rule in turn, in texts that are never written, and fails if a violation is not found.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEW_FILES = "tests/cli/new_files/"
FOLDERS = ("tenon", "apps", "bench", "examples", "tests")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(tenon/[^>]+)>)', re.M)
GENERATED = re.compile(r"tenon/(?P<layer>[a-z]+)_generated/|tenon_commit\.h$")
FOREIGN = re.compile(r"\b(cuda|cublas\w*|cudnn|nvrtc|dnnl\w*|onednn|avx\w*|amx\w*|_mm\d*_\w+|sm_\d+\w*)\b", re.IGNORECASE)
PARTICULAR = re.compile(r"z[-_ ]?image(?!-shapes)|stable[-_ ]?diffusion|lumina|dinov2|\bsd15\b", re.IGNORECASE)
REGISTERED = re.compile(r'\bRegisterSkeleton\s+\w+\(\s*\{\.name = "(\w+)"|"(\w+)",\s*&LaunchBodies::body<')
OPTIONS = {"tenon/core/options.def", "tenon/core/options.cpp"}
COMPILED_TWICE = {"tenon/core/matrix_product.cpp"}  # the oracle's loops, one body for two instruction sets


def layers():
    """Layer -> all layers it may include, read from CMakeLists.txt."""
    direct = {}
    for line in (ROOT / "CMakeLists.txt").read_text().splitlines():
        match = re.match(r"tenon_layer\((\w+)(.*)", line)
        if match:
            depends = re.search(r"DEPENDS ([a-z ]+)", match.group(2))
            direct[match.group(1)] = depends.group(1).split() if depends else []
    closed = {}
    for layer, depends in direct.items():  # lowest first
        closed[layer] = {layer} | {d for name in depends for d in closed[name]}
    return closed


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def backend_of(path):
    """The backend whose folder contains the path, or None."""
    parts = path.split("/")
    return parts[2] if parts[:2] == ["tenon", "backend"] and len(parts) > 3 else None


def family_of(path):
    """The family of models whose folder contains the path, or None."""
    parts = path.split("/")
    return parts[3] if parts[:3] == ["tenon", "pipelines", "families"] and len(parts) > 4 else None


def check_include(path, name, closed):
    """The error in file `path` including `name`, or None."""
    generated = GENERATED.match(name)
    if not generated and not (ROOT / name).is_file():
        return f'{path}: "{name}" is no file of the tree; an include is a path from its root'
    top, own = path.split("/")[0], backend_of(path)
    if top == "tests":
        return None
    if backend_of(name) not in (None, own):
        return f"{path}: includes the inside of backend {backend_of(name)}"
    if family_of(name) not in (None, family_of(path)):
        return f"{path}: includes the inside of the family {family_of(name)}"
    if top == "tenon":
        layer = generated["layer"] if generated else name.split("/")[1] if name.startswith("tenon/") else name.split("/")[0]
        return None if layer in closed[path.split("/")[1]] else f"{path}: includes {layer}, which is not below it"
    folder = str(pathlib.PurePath(path).parent) + "/"
    return None if generated or name.startswith(("tenon/", folder)) else f"{path}: includes neither tenon/ nor its own folder: {name}"


def check_text(path, text, closed):
    """All errors in a file with this text."""
    path = path.removeprefix(NEW_FILES)
    for match in INCLUDE.finditer(text):
        error = check_include(path, match[1] or match[2], closed)
        if error:
            yield error
    code = without_comments(text)
    for match in REGISTERED.finditer(code):
        name = match[1] or match[2]
        if path.startswith("tenon/") and pathlib.PurePath(path).name != f"{name}.cpp":
            yield f"{path}: the skeleton {name} is looked for in {name}.cpp"
    library = path.startswith("tenon/")
    if path.startswith(("tenon/", "apps/")) and not path.startswith(("tenon/models/", "tenon/pipelines/families/")):
        found = PARTICULAR.search(code)
        if found:
            yield f"{path}: '{found.group()}' belongs in its family's folder or in tenon/models"
    if path not in OPTIONS and path.startswith(("tenon/", "apps/")) and re.search(r"\bgetenv\b", code):
        yield f"{path}: getenv belongs in tenon/core/options.cpp"
    if library and path not in OPTIONS | COMPILED_TWICE and not backend_of(path):
        found = FOREIGN.search(code)
        if found:
            yield f"{path}: '{found.group()}' belongs in a backend's folder"


def breaches(closed):
    """(path, text) pairs, each breaking one rule."""
    header = {layer: next((ROOT / "tenon" / layer).glob("*.h")).relative_to(ROOT) for layer in closed}
    for layer, allowed in closed.items():
        for other in closed.keys() - allowed:
            yield f"tenon/{layer}/planted.h", f'#include "{header[other]}"\n'
            yield f"tenon/{layer}/planted.cpp", f"#include <{header[other]}>\n"
        yield f"tenon/{layer}/planted.cpp", f'#include "{header[layer].name}"\n'
        yield f"tenon/{layer}/planted.cpp", f'#include "tenon/{layer}/no_such_file.h"\n'
    inside = {b.name: next(b.rglob("*.h")).relative_to(ROOT) for b in (ROOT / "tenon/backend").iterdir() if b.is_dir()}
    for backend, name in inside.items():
        for path in ("tenon/runtime/planted.h", "tenon/backend/planted.cpp", "apps/cli/planted.cpp", "examples/planted.cpp"):
            yield path, f'#include "{name}"\n'
        for other in inside.keys() - {backend}:
            yield f"tenon/backend/{other}/planted.cpp", f'#include "{name}"\n'
        yield f"tenon/backend/{backend}/planted.cpp", f'#include "{header["plan"]}"\n'
    families = [f.name for f in (ROOT / "tenon/pipelines/families").iterdir() if f.is_dir()]
    for family, other in zip(families, families[1:] + families[:1]):
        name = next((ROOT / "tenon/pipelines/families" / family).glob("*.*")).relative_to(ROOT)
        for path in (f"tenon/pipelines/families/{other}/planted.cpp", "tenon/pipelines/planted.h", "apps/cli/planted.cpp"):
            yield path, f'#include "{name}"\n'
    yield f"{NEW_FILES}tenon/backend/planted/planted.cpp", f'#include "{header["oracle"]}"\n'
    yield "tenon/core/planted.h", '#include "tests/support/close.h"\n'
    yield "apps/python/planted.cpp", '#include "apps/cli/verb.h"\n'
    yield "tests/cuda/planted.cpp", '#include "emulator.h"\n'
    yield "tests/plan/planted.cpp", '#include "device/launches/sizes.h"\n'
    yield "tenon/io/planted.cpp", "const char* x = getenv(name);\n"
    yield "apps/cli/planted.cpp", "const char* x = getenv(name);\n"
    yield "tenon/kernels/planted.cpp", "bool cuda = false;\n"
    for path in ("tenon/io/planted.cpp", "tenon/pipelines/planted.h", "apps/cli/planted.cpp", "tenon/train/planted.cpp"):
        yield path, "bool z_image(const std::string& name);\n"
        yield path, 'const char* const kHelp = "of a Stable Diffusion model";\n'
        yield path, 'bool known = architecture == "lumina2";\n'
    yield "tenon/kernels/skeletons/planted.cpp", 'const RegisterSkeleton kPlanted(\n    {.name = "rows", .holes = {"load"}});\n'
    yield "tenon/backend/cpu/launches/planted.cpp", 'const RegisterBody kPlanted("rows", &LaunchBodies::body<RowsKernel>);\n'


def planted(closed):
    tried = list(breaches(closed))
    missed = [(path, text) for path, text in tried if not list(check_text(path, text, closed))]
    for path, text in missed:
        print(f"layers: not found in {path}: {text.strip()}")
    print(f"layers: {len(tried)} breaches planted, {len(tried) - len(missed)} found")
    return bool(missed)


def main(arguments):
    closed = layers()
    if arguments == ["--planted"]:
        return planted(closed)
    files = [f for folder in FOLDERS for f in sorted((ROOT / folder).rglob("*")) if f.suffix in (".h", ".cpp", ".def")]
    errors = [e for f in files for e in check_text(str(f.relative_to(ROOT)), f.read_text(), closed)]
    print("\n".join(errors) if errors else f"layers: {len(files)} files, {len(closed)} layers, no include points upward")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
