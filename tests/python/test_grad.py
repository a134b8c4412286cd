"""Gradients of fused functions, and a trainer with a user-defined loss."""

from __future__ import annotations

import os

import numpy as np
import pytest
from conftest import assert_close

import tenon


def test_gradients_of_a_sum_of_squares(rng):
    x, w = (rng.standard_normal((5, 7), np.float32) for _ in range(2))
    loss = tenon.fuse(lambda x, w: tenon.sum(x * x * w, axis=None))
    dx, dw = tenon.grad(loss)(x, w)
    assert_close(dx, 2 * x * w, 1e-5)
    assert_close(dw, x * x, 1e-5)
    value, only = tenon.value_and_grad(loss, "w")(x, w)
    assert_close(value, (x.astype(np.float64) ** 2 * w).sum(), 1e-4)
    assert_close(only, x * x, 1e-5)
    assert_close(tenon.grad(loss, 0)(x, w), dx, 0)
    assert [g.dtype for g in tenon.grad(loss, (1, 0))(x, w)] == [np.float32] * 2


def test_gradients_that_are_arguments_zeros_and_of_numbers(rng):
    x, w = (rng.standard_normal(6).astype(np.float32) for _ in range(2))
    dot = tenon.grad(lambda x, w, a: a * tenon.sum(x * w), ("x", "a"))
    dx, da = dot(x, w, 3.0)
    assert_close(dx, 3 * w, 1e-6)
    assert_close(np.asarray(da).reshape(()), (x.astype(np.float64) * w).sum(), 1e-5)
    zero, _ = tenon.grad(lambda x, w: tenon.sum(w))(x, w)
    assert_close(zero, np.zeros(6), 0)


def test_bad_requests_are_refused(rng):
    x, i = rng.standard_normal(6).astype(np.float32), np.arange(6, dtype=np.int32)
    for message, function, argnums, error in (
        ("one number", lambda x, i: x * 2, None, tenon.UsageError),
        ("one expression", lambda x, i: (x, x), None, TypeError),
        ("'i' is neither an array of floats", lambda x, i: tenon.sum(x), "i", tenon.UsageError),
        ("no argument at position 5; its arguments are x, i", lambda x, i: tenon.sum(x), 5, tenon.UsageError),
        ("no argument named 'q'; its arguments are x, i", lambda x, i: tenon.sum(x), "q", tenon.UsageError),
        ("names no argument", lambda x, i: tenon.sum(x), (), tenon.UsageError),
    ):
        with pytest.raises(error, match=message):
            tenon.grad(function, argnums)(x, i)
    with pytest.raises(TypeError, match="expected a function"):
        tenon.grad(3)
    with pytest.raises(TypeError, match="^grad: expected a Python function, got int, which"):
        tenon.grad(int)


def network(p, x, y):
    h = tenon.gelu(tenon.linear(x, p["up.weight"], p["up.bias"]))
    return tenon.mean((tenon.linear(h, p["down.weight"]) - y) ** 2, axis=None)


def weights(rng):
    shapes = {"up.weight": (24, 8), "up.bias": (24,), "down.weight": (3, 24)}
    return {n: (0.3 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}


def test_a_trainer_learns(rng):
    x = rng.standard_normal((64, 8)).astype(np.float32)
    y = np.stack([np.sin(x[:, 0]), x[:, 1] * x[:, 2], x.mean(-1)], -1)
    trainer = tenon.train.Trainer(network, weights(rng), lr=1e-2, lr_scheduler="linear", total_steps=150, ema=0.9)
    losses = [trainer.step(x=x, y=y) for _ in range(150)]
    assert losses[-1] < losses[0] / 5 and trainer.steps == 150
    p, averages = trainer.parameters(), trainer.averages()
    assert set(p) == {"up.weight", "up.bias", "down.weight"} and p["up.weight"].shape == (24, 8)
    assert not np.array_equal(p["up.weight"], averages["up.weight"])
    assert_close(averages["up.weight"], p["up.weight"], 0.05)


def test_a_trainer_goes_on_to_the_bit(rng, tmp_path):
    x = rng.standard_normal((16, 8)).astype(np.float32)
    y = rng.standard_normal((16, 3)).astype(np.float32)
    begin = weights(rng)

    def new(**options):
        return tenon.train.Trainer(network, begin, lr=1e-2, lr_scheduler="cosine", total_steps=9, ema=0.9, **options)

    whole, first = new(), new()
    losses = [whole.step(x=x[i:], y=y[i:]) for i in range(9)]
    assert first.resume(tmp_path) is None and first.steps == 0
    for i in range(4):
        assert first.step(x=x[i:], y=y[i:]) == losses[i]
        first.save(tmp_path, keep=2, state={"next": i + 1})
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["checkpoint-3", "checkpoint-4"]
    second = new()
    assert second.resume(tmp_path) == (4, {"next": 4})
    assert [second.step(x=x[i:], y=y[i:]) for i in range(4, 9)] == losses[4:]
    for got, want in ((second.parameters(), whole.parameters()), (second.averages(), whole.averages())):
        for name, value in want.items():
            assert np.array_equal(got[name], value), name
    for options, said in (
        ({"weight_decay": 0.1}, r"weight_decay: 0\.0 there, 0\.1 here"),
        ({"betas": (0.8, 0.9)}, r"betas: null there, \[0\.8,0\.9\] here"),
        ({"lr_warmup_steps": 2}, "lr_warmup_steps: 0 there, 2 here"),
    ):
        with pytest.raises(tenon.UsageError, match=rf"checkpoint-4. is of a trainer with other options \({said}"):
            new(**options).resume(tmp_path)
    with pytest.raises(tenon.ModelError):
        tenon.train.Trainer(
            lambda p, x: tenon.sum(p["b"] * x), {"b": np.ones(3)}, lr=1e-2, lr_scheduler="cosine", total_steps=9, ema=0.9
        ).resume(tmp_path)


@pytest.mark.parametrize(
    "options, same",
    [
        ({"total_steps": 3}, {"total_steps": 9}),
        ({}, {"betas": (0.9, 0.999)}),
        ({"betas": [0.9, 0.999], "eps": 1e-8}, {}),
        ({"optimizer": "lion"}, {"optimizer": "lion", "betas": np.array([0.9, 0.99])}),
    ],
)
def test_a_trainer_goes_on_with_options_that_mean_the_same(rng, tmp_path, options, same):
    x, y, begin = np.ones((4, 8), np.float32), np.ones((4, 3), np.float32), weights(rng)
    first, second = (tenon.train.Trainer(network, begin, **o) for o in (options, same))
    first.step(x=x, y=y)
    first.save(tmp_path)
    assert second.resume(tmp_path) == (1, None)
    for trainer in (first, second):
        for _ in range(3):
            trainer.step(x=x, y=y)
    expected = first.parameters()
    assert all(np.array_equal(value, expected[name]) for name, value in second.parameters().items())
    with pytest.raises(tenon.UsageError, match="betas: "):
        tenon.train.Trainer(network, begin, **{**same, "betas": (0.9, 0.9)}).resume(tmp_path)


def test_the_length_of_a_run_whose_rate_decays_must_stay(rng, tmp_path):
    first, other = (tenon.train.Trainer(network, weights(rng), lr_scheduler="cosine", total_steps=n) for n in (3, 9))
    first.save(tmp_path)
    with pytest.raises(tenon.UsageError, match="total_steps: 3 there, 9 here"):
        other.resume(tmp_path)


def test_betas_may_be_any_sequence(rng):
    x, y, begin = np.ones((4, 8), np.float32), np.ones((4, 3), np.float32), weights(rng)
    one, other = (tenon.train.Trainer(network, begin, betas=b) for b in ((0.5, 0.75), np.array([0.5, 0.75])))
    for trainer in (one, other):
        trainer.step(x=x, y=y)
    assert all(np.array_equal(value, other.parameters()[name]) for name, value in one.parameters().items())


def test_no_checkpoint_to_resume_from_changes_nothing(rng, tmp_path):
    trainer = tenon.train.Trainer(network, weights(rng))
    assert trainer.resume(tmp_path / "missing") is None and trainer.resume(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(tenon.ModelError, match="file"):
        trainer.resume(tmp_path / "file")


def test_what_a_loop_keeps_comes_back_as_it_was(rng, tmp_path):
    state = {
        "generator": np.random.default_rng(1).bit_generator.state,  # 128-bit integers
        "text": "half a pair \ud800 and \u202e",
        "numbers": [2**70, -(2**63), 0.1, 1e-320, float("inf")],
    }
    trainer = tenon.train.Trainer(network, weights(rng), weight_decay=np.float32(0.5))
    trainer.save(tmp_path, state=state)
    assert tenon.train.Trainer(network, weights(rng), weight_decay=0.5).resume(tmp_path) == (0, state)


def test_a_checkpoint_that_is_not_whole_changes_nothing(rng, tmp_path):
    x, y = rng.standard_normal((16, 8)).astype(np.float32), rng.standard_normal((16, 3)).astype(np.float32)
    first = tenon.train.Trainer(network, weights(rng))
    first.step(x=x, y=y)
    first.save(tmp_path)
    place = tmp_path / "checkpoint-1"

    def refused(match):
        trainer = tenon.train.Trainer(network, weights(rng))
        before = trainer.parameters()
        with pytest.raises(tenon.ModelError, match=match):
            trainer.resume(tmp_path)
        for name, value in trainer.parameters().items():
            assert np.array_equal(value, before[name]) and trainer.steps == 0

    moments = place / "optimizer.safetensors"
    whole = moments.read_bytes()
    moments.write_bytes(whole.replace(b"exp_avg_sq.up.bias", b"exp_avg_sq.up.bia_"))
    refused("up.bias")
    moments.write_bytes(whole)
    text = (place / "trainer.json").read_text()
    for step in ("-5", "1000000000000000000", "2", "1.5"):
        (place / "trainer.json").write_text(text.replace('"step": 1', f'"step": {step}'))
        refused('"step": 1')
    for state, said in (("3", "has no state"), ('"{"', "expected JSON"), ('"' + "[" * 200000 + '"', "expected JSON")):
        (place / "trainer.json").write_text(text.replace('"state": "null"', f'"state": {state}'))
        refused(f"checkpoint-1.*{said}")


def test_weights_that_are_no_numbers_are_not_saved(rng, tmp_path):
    x, y = np.ones((4, 8), np.float32), np.ones((4, 3), np.float32)
    trainer = tenon.train.Trainer(network, weights(rng), lr=1e38, weight_decay=1e38)
    trainer.save(tmp_path)
    trainer.step(x=x, y=y)
    with pytest.raises(tenon.NumericError, match="are not written"):
        trainer.save(tmp_path, keep=1)
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == ["checkpoint-0"]


def test_checkpoints_in_folders_of_any_name(rng, tmp_path):
    trainer = tenon.train.Trainer(network, weights(rng))
    for folder in (os.fsencode(tmp_path / "bytes"), os.fsencode(tmp_path) + b"/\xff"):
        trainer.save(folder)
        assert trainer.resume(folder) == (0, None)
        assert os.path.exists(folder + b"/checkpoint-0/trainer.json")


def test_what_a_trainer_refuses(rng):
    x, y = np.ones((4, 8), np.float32), np.ones((4, 3), np.float32)
    new = tenon.train.Trainer
    with pytest.raises(tenon.UsageError, match="parameters. expected at least one"):
        new(network, {})
    with pytest.raises(tenon.UsageError, match=r"\[w\] expected at least one number of a float.*, got f32\[0"):
        new(network, {"w": np.ones((0, 3), np.float32)})
    with pytest.raises(tenon.UsageError, match="adam"):
        new(network, weights(rng), optimizer="adam")
    with pytest.raises(tenon.UsageError, match="ema"):
        new(network, weights(rng), ema=1.5)
    with pytest.raises(tenon.UsageError, match="total_steps: expected at least 1 for lr_scheduler 'linear'"):
        new(network, weights(rng), lr_scheduler="linear")
    for name, value in (("max_grad_norm", -1), ("max_grad_norm", np.inf), ("lr", -1), ("lr_scheduler", "step")):
        with pytest.raises(tenon.UsageError, match=rf"^\[{name}\]") as refused:
            new(network, weights(rng), **{name: value})
        assert refused.value.where == name
    for name in ("optimizer", "lr_scheduler"):
        with pytest.raises(TypeError, match=f"^{name}: expected a string, got int"):
            new(network, weights(rng), **{name: 3})
    for options in ({"eps": -1}, {"eps": float("nan")}, {"betas": (-0.5, 0.9)}, {"betas": (0.9,)}, {"betas": 0.9},
                    {"betas": np.ones(3)}):  # fmt: skip
        with pytest.raises(tenon.UsageError, match=next(iter(options))):
            new(network, weights(rng), **options)
    with pytest.raises(tenon.UsageError, match="scale: expected a number that a float can hold"):
        new(lambda p, scale: tenon.sum(p["up.bias"] * scale, axis=None), {"up.bias": np.ones(3)}).step(scale=10**400)
    with pytest.raises(tenon.UsageError, match="at most 2147483647"):
        tenon.train.sums(1, 2**31, 1)
    with pytest.raises(tenon.UsageError, match="one number"):
        new(lambda p, x: p["up.bias"] * x, weights(rng)).step(x=np.ones(24, np.float32))
    with pytest.raises(tenon.UsageError, match="does not depend on"):
        new(lambda p, x: tenon.sum(p["up.bias"] * x), weights(rng)).step(x=np.ones(24, np.float32))
    with pytest.raises(tenon.UsageError, match="not an argument"):
        new(lambda p, x: tenon.sum(p["b"] * x * np.ones(3, np.float32)), {"b": np.ones(3)}).step(x=1.0)
    with pytest.raises(tenon.UsageError, match="are not kept"):
        new(network, weights(rng)).averages()
    for parameters, part in (([x], "parameters: expected a mapping of names to arrays, got list"),
                             ({3: x}, "parameters: expected names that are strings, got 3"),
                             ({"w": None}, "w: expected an array that .*, got NoneType")):  # fmt: skip
        with pytest.raises(TypeError, match=part):
            new(network, parameters)
    with pytest.raises(TypeError, match="device: expected a string, got int"):
        new(network, weights(rng), device=3)
    trainer = new(network, weights(rng), device=None)  # the CPU, as elsewhere
    with pytest.raises(TypeError, match="batch: expected a mapping of names to arrays, got ndarray"):
        trainer.step(x)
    with pytest.raises(TypeError, match="x: expected an array that .*, got NoneType"):
        trainer.step(x=None, y=y)
    before = trainer.parameters()
    with pytest.raises(tenon.NumericError):
        trainer.step(x=x * np.inf, y=y)
    for name, value in trainer.parameters().items():
        assert np.array_equal(value, before[name]) and trainer.steps == 0


def test_strided_arrays_have_the_gradients_of_their_copies(rng):
    wide = rng.standard_normal((4, 24), np.float32)
    weight = rng.standard_normal((4, 6), np.float32)
    by_x = tenon.grad(lambda x, w: tenon.sum(tenon.group_norm(x, 2) * w * x.reshape(4, 6), axis=None), "x")
    for x in (wide[:, 3:9], wide[:, 1:13:2], wide.reshape(24, 4).T[:, ::4], np.broadcast_to(wide[0, :6], (4, 6))):
        assert_close(by_x(x, weight), by_x(x.copy(), weight), 1e-6)


def test_gradients_within_a_function_are_by_the_argument_alone(rng):
    """Other arguments and outer arrays may be the same, or computed from it."""
    x = rng.standard_normal(6, np.float32)
    by_first = tenon.grad(lambda a, b: tenon.sum(a * a * b, axis=None), 0)
    assert_close(tenon.fuse(lambda x: by_first(x, x))(x), 2 * x * x, 1e-6)
    assert_close(tenon.fuse(lambda x: by_first(x * 2, x * 3))(x), 12 * x * x, 1e-6)
    assert_close(tenon.fuse(lambda x: by_first(x * 2, b=x * 2))(x), 8 * x * x, 1e-6)
    assert_close(tenon.fuse(lambda x: tenon.grad(lambda a: tenon.sum(a * x, axis=None), 0)(x))(x), x, 1e-6)
    value, slope = tenon.fuse(tenon.value_and_grad(lambda a, b: tenon.sum(a * b, axis=None), 0))(x, x)
    assert_close(value, np.array((x * x).sum()), 1e-5)
    assert_close(slope, x, 1e-6)
    penalty = tenon.grad(lambda x: tenon.sum(tenon.grad(lambda a: tenon.sum(a * a * a, axis=None), 0)(x) ** 2, axis=None), 0)
    assert_close(penalty(x), 36 * x**3, 1e-4)


def test_equal_results_have_memory_of_their_own(rng):
    w, x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    dw, dx = tenon.grad(lambda w, x: tenon.sum(w + x, axis=None))(w, x)
    dw *= 0.1
    assert_close(dx, np.ones((3, 4)), 1e-6)
    one, other = tenon.fuse(lambda x: (x * 2, tenon.stop_gradient(x * 2)))(x)
    one += 1
    assert_close(other, 2 * x, 1e-6)
    k, out = tenon.fuse(lambda x: {"a": x + 1, "b": x + 1}), {"a": np.zeros_like(x), "b": np.zeros_like(x)}
    k(x, out=out)
    assert_close(out["b"], x + 1, 1e-6)
    empty = np.ones((0, 4), np.float32)
    same = tenon.fuse(lambda e, w: (tenon.concat([e * 2, w], 0), tenon.concat([e * 3, w], 0)))(empty, w)
    assert_close(same[1], w, 1e-6)


def test_parameters_with_one_gradient_train(rng):
    b1, b2 = np.zeros(3, np.float32), np.zeros(3, np.float32)
    params = {"w": rng.standard_normal((3, 8)).astype(np.float32), "b1": b1, "b2": b2}
    trainer = tenon.train.Trainer(
        lambda p, x, y: tenon.mean((tenon.linear(x, p["w"], p["b1"]) + p["b2"] - y) ** 2, axis=None), params
    )
    x, y = rng.standard_normal((4, 8)).astype(np.float32), rng.standard_normal((4, 3)).astype(np.float32)
    losses = [trainer.step(x=x, y=y) for _ in range(20)]
    assert losses[-1] < losses[0]
