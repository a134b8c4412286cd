"""The examples run; generated files are current."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

EXAMPLES = sorted((ROOT / "examples/python").glob("*.py"))


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=120)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example(path):
    if "import torch" in path.read_text() and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_there_are_examples():
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("script", ["tools/hub/lion_step.py", "tools/python_stubs.py"])
def test_generated_files_are_current(script):
    done = run(ROOT / script, "--check")
    assert done.returncode == 0, done.stderr


def test_importing_the_package_imports_no_array_library():
    code = "import sys, tenon; print([m for m in ('torch', 'numpy', 'PIL', 'jax', 'cupy') if m in sys.modules])"
    assert run("-c", code).stdout.strip() == "[]"


def test_messages_go_to_stderr(monkeypatch):
    code = "import tenon; tenon.TextPipeline.from_pretrained(cache_limit='1GB')"
    monkeypatch.setenv("TENON_LOG_LEVEL", "info")
    told = run("-c", code)
    assert told.stdout == "" and "info: cache: at most " in told.stderr
    monkeypatch.setenv("TENON_LOG_LEVEL", "error")
    assert run("-c", code).stderr == ""


def test_every_public_name_is_documented():
    import tenon

    missing = [n for n in tenon.__all__ if len((getattr(tenon, n).__doc__ or "").strip()) < 20]
    assert [n for n in missing if n != "__version__"] == []
    text = (pathlib.Path(ROOT) / "docs/python.md").read_text()
    for name in ("tenon.fuse", "tenon.lion_step", "tenon.lion_foreach", "tenon.optim.Lion", "Pipeline.from_pretrained"):
        assert name in text
