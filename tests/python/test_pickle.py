"""Fused functions where Python sends functions: to other processes, and into files."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from conftest import assert_close, run_alone

import tenon

X = np.array([-1.0, 0.5, 2.0], np.float32)


@tenon.fuse
def doubled(x):
    return x * 2


@tenon.grad
def slopes(x):
    return tenon.sum(x * x * x, axis=None)


def total(x):
    return tenon.sum(doubled(x) * x, axis=None)


class Holder:
    tripled = tenon.fuse(lambda x: x * 3)

    @staticmethod
    @tenon.fuse
    def halved(x):
        return x / 2


def test_decorated_functions_are_what_their_module_has():
    for k in (doubled, slopes, Holder.halved):
        assert pickle.loads(pickle.dumps(k)) is k
    for k in (doubled, slopes):
        assert copy.copy(k) is not k and copy.deepcopy(k) is not k
        assert_close(np.asarray(copy.deepcopy(k)(X)).ravel(), np.asarray(k(X)).ravel(), 0)


def test_methods_follow_their_object():
    class Scaled:
        def __init__(self, factor):
            self.factor = factor
            self.k = tenon.fuse(self.forward)
            self.slope = tenon.grad(self.summed, 0)

        def forward(self, x):
            return x * self.factor

        def summed(self, x):
            return tenon.sum(self.forward(x), axis=None)

    one = Scaled(2.0)
    two = copy.deepcopy(one)
    two.factor = 3.0
    for x in (one, two):
        assert_close(x.k(X), X * x.factor, 0)
        assert_close(x.slope(X), np.full(3, x.factor), 0)


@pytest.mark.parametrize("make", [tenon.grad, tenon.value_and_grad])
@pytest.mark.parametrize("function", [total, tenon.fuse(total)], ids=["plain", "fused"])
def test_gradients_are_made_anew(make, function):
    k = make(function)
    again = pickle.loads(pickle.dumps(k))
    assert again is not k and type(again) is tenon.Fused
    for found, expected in zip(again(X), k(X), strict=True):
        assert_close(found, expected, 0)


def test_a_function_within_no_module_says_so():
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(Holder.tripled)


def test_another_process_finds_them(tmp_path):
    (tmp_path / "kernels.py").write_text("import tenon\n\n\n@tenon.fuse\ndef doubled(x):\n    return x * 2\n")
    begin = f"import pickle, sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    run_alone(begin + f"import kernels\nopen({str(tmp_path / 'k')!r}, 'wb').write(pickle.dumps(kernels.doubled))")
    read = f"k = pickle.load(open({str(tmp_path / 'k')!r}, 'rb'))\nimport numpy as np\nprint(k(np.ones(2, np.float32)))"
    assert run_alone(begin + read).strip() == "[2. 2.]"
