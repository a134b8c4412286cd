"""Shared by the tests: libraries to try, and references in f64."""

from __future__ import annotations

import importlib.util
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def f64(x):
    """A NumPy array from anything, including PyTorch tensors on any device."""
    return np.asarray(x.detach().double().cpu() if hasattr(x, "detach") else x, np.float64)


def differing(found, expected, tolerance):
    """Where two arrays differ by more than `tolerance` (a number or an array), or one has a NaN."""
    found, expected = f64(found), f64(expected)
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    with np.errstate(invalid="ignore"):
        return ~((found == expected) | (np.isfinite(expected) & (np.abs(found - expected) <= f64(tolerance))))


def assert_close(found, expected, tolerance):
    """The comparison that all these tests use: shapes, and every element."""
    wrong = differing(found, expected, tolerance)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} differ, the first at {at}: {f64(found)[at]}, expected {f64(expected)[at]}"
        )


def run_alone(code, returns=0):
    """What a script writes that runs in a Python of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == returns, (done.returncode, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(autouse=True, scope="session")
def interrupts():
    """Makes Ctrl-C raise KeyboardInterrupt even if the tests were started in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
