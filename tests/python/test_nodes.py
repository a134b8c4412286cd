"""Functions made from the engine's nodes: how they are called and what they refuse."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from conftest import ROOT, assert_close, run_alone

import tenon
from tenon import _node_docs


def test_errors_name_what_the_caller_wrote():
    x, y = np.ones((1, 3, 4), np.float32), np.ones((2, 4, 5), np.float32)
    for a, b in ((x, y), (y[0, :, 0], y[0, :, 0]), (x, x)):
        with pytest.raises(tenon.UsageError, match=r"matmul \(@\): a \[.*\] and b \[.*\] do not fit: expected a \[.., M, K\]"):
            tenon.fuse(lambda a, b: a @ b)(a, b)
    with pytest.raises(TypeError, match="maximum: expected a, b: missing"):
        tenon.fuse(lambda a: tenon.maximum(a))(x)
    with pytest.raises(tenon.UsageError, match="attention: expected k and v of one width, got 4 and 8"):
        tenon.fuse(lambda q, v: tenon.attention(q, q, v))(np.ones((1, 1, 3, 4), np.float32), np.ones((1, 1, 3, 8), np.float32))
    with pytest.raises(tenon.UsageError, match="a. expected f32, bf16, f16, e4m3, i8, i16, i32, i64, u8 or bool, got uint16"):
        tenon.fuse(lambda a: a + 1)(x.astype(np.uint16))


def test_operands_by_name():
    x = np.linspace(-2, 2, 7, dtype=np.float32)
    y = tenon.fuse(lambda a: tenon.clamp(hi=1, x=a, lo=-1))(x)
    assert_close(y, x.clip(-1, 1), 0)


def test_conversions_to_integers():
    x = np.array([1.7, -1.7, 300, -300, np.nan, np.inf], np.float32)
    y = tenon.fuse(lambda a: (tenon.cast(a, "i8"), tenon.cast(a, "u8")))(x)
    assert y[0].tolist() == [1, -1, 127, -128, 0, 127] and y[1].tolist() == [1, 0, 255, 0, 0, 255]
    # The same where the integers are not stored: what follows computes with them.
    for dtype in ("i8", "u8", "i16", "i32", "i64", "bool"):
        stored, used = tenon.fuse(lambda a: tenon.cast(a, dtype))(x), tenon.fuse(lambda a: tenon.cast(a, dtype) + 0.5)(x)
        assert used.tolist() == (stored.astype(np.float32) + np.float32(0.5)).tolist(), dtype
    with pytest.raises(tenon.UsageError, match="round_to: expected a floating-point type, got i8"):
        tenon.fuse(lambda a: tenon.round_to(a, "i8"))(x)


def test_what_has_no_elements_beside_what_has_some():
    x, w, rest = np.ones((0, 5, 5, 3), np.float32), np.ones((2, 3, 3, 3), np.float32), np.ones((1, 5, 5, 2), np.float32)
    padded = tenon.fuse(lambda a, b: tenon.pad(tenon.conv2d(a, b, padding=1), [(0, 1), (0, 0), (0, 0), (0, 0)]))(x, w)
    assert padded.shape == (1, 5, 5, 2) and not padded.any()
    joined = tenon.fuse(lambda a, b, c: tenon.concat([tenon.conv2d(a, b, padding=1), c * 2], 0))(x, w, rest)
    assert (joined == 2).all()
    empty, twice = tenon.fuse(lambda a, b, c: (tenon.conv2d(a, b, padding=1), c * 2))(x, w, rest)
    assert empty.shape == (0, 5, 5, 2) and (twice == 2).all()
    rows = tenon.fuse(lambda a, b: tenon.pad(tenon.linear(a, b), [(1, 0), (0, 0)]))(x[:, 0, 0], w[:, 0, 0])
    assert rows.shape == (1, 2) and not rows.any()


def test_types_of_joined_arrays():
    whole = np.array([7, -(2**24)])
    joined = tenon.fuse(lambda a: tenon.concat([a[1:], a]))(whole)
    assert joined.dtype == whole.dtype and joined.tolist() == [whole[1], *whole]
    halves, bytes_, flags = np.array([0.1, -7], "f2"), np.array([3, 255], "u1"), np.array([True, False])
    for parts, dtype in (
        ([halves, bytes_], "f2"),
        ([halves, bytes_, np.array([0.1], "f4")], "f4"),
        ([bytes_, flags], "f4"),
    ):
        joined = tenon.fuse(lambda *a: tenon.concat(a))(*parts)
        assert joined.dtype == dtype and joined.tolist() == np.concatenate(parts, dtype=dtype).tolist()
    scaled = tenon.fuse(lambda a: tenon.concat([a, a * 2]))(halves)  # in memory, and computed
    assert scaled.dtype == "f2" and scaled.tolist() == np.concatenate([halves, halves * 2]).tolist()


def test_group_norm_has_the_type_of_its_operands():
    x, gamma = np.arange(16).reshape(2, 8), np.full(8, 0.5)
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    for kind, weight, dtype in (("i4", None, "f4"), ("f2", None, "f2"), ("f2", "f2", "f2"), ("f2", "f4", "f4"), ("i4", "f2", "f4")):
        w = () if weight is None else (gamma.astype(weight),)
        y = tenon.fuse(lambda a, *w: tenon.group_norm(a, 1, *w))(x.astype(kind), *w)
        assert y.dtype == dtype, (kind, weight)
        assert_close(y, want if weight is None else want / 2, 1e-3)


def test_every_node_says_what_it_computes():
    known = {*_node_docs.POINTWISE, *_node_docs.REDUCTIONS}
    assert set(tenon.NODES) == known, "python/tenon/_node_docs.py: an entry for each function of a node"
    text = (ROOT / "docs/python.md").read_text()
    for name, function in tenon.NODES.items():
        assert function.__name__ == name and re.search(rf"\b{name}\b", text)
        assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in inspect.signature(function).parameters.values())


def test_threads_set_for_everything_opened_afterwards():
    code = "import tenon; tenon.set_num_threads(3); print(tenon.TextPipeline.from_pretrained().device)"
    assert "3 threads" in run_alone(code)


def test_whole_numbers_of_numpy(rng):
    x, w = rng.standard_normal((1, 4, 4, 2), np.float32), rng.standard_normal((3, 2, 3, 3), np.float32)

    def by(padding):
        return tenon.fuse(lambda x: tenon.conv2d(x, w, padding=padding))(x)

    for one in (np.int64(1), np.array(1)):
        assert np.array_equal(by(one), by(1))
    assert np.array_equal(by(np.array([2, 1, 0, 1])), by([2, 1, 0, 1]))
    for shape in (np.array([8, 4]), (np.int64(8), 4)):
        assert np.array_equal(tenon.fuse(lambda x: x.reshape(shape))(x), x.reshape(8, 4))
    assert np.array_equal(tenon.fuse(lambda x: tenon.sum(x, axis=np.array(0)))(x), tenon.fuse(lambda x: tenon.sum(x, axis=0))(x))
    assert np.array_equal(*(tenon.fuse(lambda x, g=g: tenon.group_norm(x, g))(x) for g in (2, np.int64(2))))
