"""What the tests share: libraries to try, and references in f64."""

from __future__ import annotations

import importlib.util
import pathlib
import signal

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def assert_close(found, expected, tolerance):
    """`diff <= tolerance`, so that NaN fails."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    worst = np.max(np.abs(found - expected), initial=0.0)
    assert worst <= tolerance, f"largest difference {worst}, tolerance {tolerance}"


@pytest.fixture(autouse=True, scope="session")
def interrupts():
    """Ctrl-C raises KeyboardInterrupt, also where the tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
