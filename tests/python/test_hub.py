"""hub/lion-step: its layout, and its CPU variant, compiled as kernel-builder would and run through its own tests.

kernel-builder itself needs Nix. What it generates (registration.h, _ops.py, metadata.json) is written by hand here; its
ABI checker and the `kernels` loader run if they are installed."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest
from conftest import ROOT, needs_torch

HUB = ROOT / "hub/lion-step"
OPS = "_lion_step_cpu_local"
REGISTRATION = """
#pragma once
#include <Python.h>
#define CAT_(A, B) A##B
#define CAT(A, B) CAT_(A, B)
#define STRINGIFY_(A) #A
#define STRINGIFY(A) STRINGIFY_(A)
#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define REGISTER_EXTENSION(NAME) \\
  PyMODINIT_FUNC CAT(PyInit_, NAME)() { \\
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, STRINGIFY(NAME), nullptr, 0, nullptr}; \\
    return PyModule_Create(&module); \\
  }
"""
OPS_MODULE = f"""
import torch
from . import {OPS}
ops = torch.ops.{OPS}
def add_op_namespace_prefix(op_name):
    return f"{OPS}::{{op_name}}"
"""


def configuration():
    try:
        import tomllib
    except ImportError:
        pytest.skip("tomllib comes with Python 3.11")
    return tomllib.loads((HUB / "build.toml").read_text())


def test_build_toml_has_what_its_parser_asks_for_and_nothing_else():
    config = configuration()
    assert set(config) == {"general", "torch", "kernel"}
    general = config["general"]
    assert set(general) == {"name", "version", "edition", "license", "backends"}
    assert general["name"] == HUB.name and general["edition"] == 5 and isinstance(general["version"], int)
    known = {"backend", "depends", "include", "src", "cxx-flags", "cuda-flags"}
    assert {k["backend"] for k in config["kernel"].values()} == set(general["backends"])
    for kernel in config["kernel"].values():
        assert set(kernel) <= known and kernel["depends"] == ["torch"]
        for source in kernel["src"]:
            assert (HUB / source).is_file(), source
    for source in config["torch"]["src"]:
        assert (HUB / source).is_file(), source


def test_the_folder_is_whole_and_holds_nothing_that_is_generated():
    for name in ("flake.nix", "CARD.md", "torch-ext/lion_step/__init__.py", "benchmarks/benchmark.py", "example.py"):
        assert (HUB / name).is_file(), name
    for name in ("setup.py", "CMakeLists.txt", "torch-ext/registration.h", "torch-ext/lion_step/_ops.py", "pyproject.toml"):
        assert not (HUB / name).exists(), name


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The CPU variant in a folder as on the Hub."""
    import torch
    from torch.utils import cpp_extension

    compiler = shutil.which("g++")
    include = pathlib.Path(sysconfig.get_path("include"))
    if not compiler or not (include / "Python.h").exists():
        pytest.skip("no compiler or no Python.h")
    folder = tmp_path_factory.mktemp("hub")
    (folder / "registration.h").write_text(REGISTRATION)
    version = "".join(torch.__version__.split(".")[:2])
    package = folder / f"build/torch{version}-cxx11-cpu-x86_64-linux"
    shutil.copytree(HUB / "torch-ext/lion_step", package)
    (package / "_ops.py").write_text(OPS_MODULE)
    kernel = configuration()["kernel"]["lion_cpu"]
    sources = [HUB / s for s in (*kernel["src"], "torch-ext/torch_binding.cpp") if s.endswith(".cpp")]
    includes = [f"-I{p}" for p in (HUB, folder, include, *cpp_extension.include_paths())]
    command = [compiler, "-std=c++20", "-fPIC", "-shared", "-DCPU_KERNEL", f"-DTORCH_EXTENSION_NAME={OPS}",
               "-DPy_LIMITED_API=0x03090000", "-fno-gnu-unique", *kernel["cxx-flags"], *includes, *map(str, sources),
               *(f"-L{p}" for p in cpp_extension.library_paths()), "-ltorch", "-ltorch_cpu", "-lc10",
               "-o", str(package / f"{OPS}.abi3.so")]  # fmt: skip
    subprocess.run(command, check=True, timeout=600)
    metadata = {"id": OPS, "name": "lion-step", "version": 1, "license": "Apache-2.0", "python-depends": [],
                "backend": {"type": "cpu"}}  # fmt: skip
    (package / "metadata.json").write_text(json.dumps(metadata))
    (folder / "lion_step").symlink_to(package)
    return folder


@needs_torch
def test_the_kernel_passes_its_own_tests(built):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(built), *sys.path])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HUB / "tests")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, cwd=built)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_torch
def test_it_is_the_same_step_as_the_package_has(built):
    code = """
import torch, tenon, lion_step
torch.manual_seed(0)
a = [torch.randn(10007) for _ in range(3)]
b = [t.clone() for t in a]
for _ in range(50):
    lion_step.lion_step(*a, 1e-2, 0.9, 0.99, 0.1)
    tenon.lion_step(*b, 1e-2, 0.9, 0.99, 0.1)
assert all(bool((x == y).all()) for x, y in zip(a, b))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(built), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr


@needs_torch
@pytest.mark.skipif(importlib.util.find_spec("kernel_abi_check") is None, reason="kernel-abi-check is not installed")
def test_the_stable_abi_is_kept(built):
    from kernel_abi_check import ObjectFile

    (library,) = built.glob("build/*/*.abi3.so")
    assert ObjectFile(library).check_python_abi("3.9") == []


@needs_torch
@pytest.mark.skipif(importlib.util.find_spec("kernels") is None, reason="kernels is not installed")
def test_the_loader_finds_it(built):
    import torch
    from kernels import get_local_kernel

    kernel = get_local_kernel(built / "build", backend="cpu")
    p, m, g = torch.ones(8), torch.zeros(8), torch.ones(8)
    kernel.lion_step(p, m, g, lr=0.5)
    assert bool((p == 0.5).all())
