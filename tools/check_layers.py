#!/usr/bin/env python3
"""Repeats the layer rules on #include lines, and keeps names where they belong.

- A file of src/<layer> includes only "tenon/<layer>/..." and the layers that CMakeLists.txt names behind DEPENDS.
- A backend's folder includes the backend interface, what that may include, and itself; nobody includes a backend.
- Nobody includes the inside of a family of models (src/pipelines/families/<name>) but the family itself.
- Instruction sets and device libraries are named in backends only; getenv is called in src/core/options.cpp only.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"tenon/([a-z_]+)/([^"]*)"')
QUOTED = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
FOREIGN = re.compile(r"\b(cuda|cublas\w*|cudnn|nvrtc|dnnl\w*|onednn|avx\w*|amx\w*|_mm\d*_\w+|sm_\d+\w*)\b", re.IGNORECASE)
OPTIONS = {"src/core/options.def", "src/core/options.cpp"}
COMPILED_TWICE = {"src/expr/reference.cpp"}  # the oracle's loops, one body for two instruction sets


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


def check_include(path, line, allowed, backend):
    match = INCLUDE.match(line)
    if not match:
        return None if not QUOTED.match(line) else f'{path}: include as "tenon/<layer>/..."'
    layer, rest = match.groups()
    layer = layer.removesuffix("_generated")
    if layer not in allowed:
        return f"{path}: includes {layer}, which is not below it"
    if layer == "backend" and "/" in rest and rest.split("/")[0] != backend:
        return f"{path}: includes the inside of backend {rest.split('/')[0]}"
    return None


def check_family(path, text):
    """Includes of a family's folder from outside it."""
    for family in re.findall(r'^\s*#\s*include\s+"tenon/pipelines/families/([^/"]+)', text, flags=re.M):
        if not path.startswith(f"src/pipelines/families/{family}/"):
            yield f"{path}: includes the inside of the family {family}"


def check_file(path, closed):
    parts = path.split("/")
    layer = parts[1]
    backend = parts[2] if layer == "backend" and len(parts) > 3 else None
    text = (ROOT / path).read_text()
    # Kernels' text, which a backend has below device/, is "tenon/device/x.h" to every compiler that reads it.
    own = {"device"} if backend and (ROOT / "src/backend" / backend / "device").is_dir() else set()
    for line in text.splitlines():
        error = check_include(path, line, closed[layer] | own, backend)
        if error and not line.strip().startswith('#include "tenon/core/options.def"'):
            yield error
    yield from check_family(path, text)
    code = without_comments(text)
    if path not in OPTIONS:
        if re.search(r"\bgetenv\b", code):
            yield f"{path}: getenv belongs in src/core/options.cpp"
        found = None if backend or path in COMPILED_TWICE else FOREIGN.search(code)
        if found:
            yield f"{path}: '{found.group()}' belongs in a backend's folder"


def main():
    closed = layers()
    files = subprocess.check_output(["git", "ls-files", "src"], cwd=ROOT, text=True).split()
    files = [f for f in files if f.endswith((".h", ".cpp", ".def")) and (ROOT / f).exists()]
    errors = [e for f in files for e in check_file(f, closed)]
    for path in subprocess.check_output(["git", "ls-files", "apps"], cwd=ROOT, text=True).split():
        text = without_comments((ROOT / path).read_text(errors="replace")) if (ROOT / path).exists() else ""
        if path.endswith((".h", ".cpp")) and re.search(r"\bgetenv\b", text):
            errors.append(f"{path}: getenv belongs in src/core/options.cpp")
        errors += check_family(path, text)
    print("\n".join(errors) if errors else f"layers: {len(files)} files, {len(closed)} layers, no include points upward")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
