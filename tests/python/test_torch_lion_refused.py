"""What Lion refuses on PyTorch's side: by which name, and that nothing was written."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest

import tenon
from conftest import assert_close

torch = pytest.importorskip("torch")
import tenon.optim  # noqa: E402

NAN = float("nan")


def parameters(*dtypes):
    made = [torch.nn.Parameter(torch.ones(3).to(dtype)) for dtype in dtypes]
    for p in made:
        p.grad = torch.ones_like(p)
    return made


def unchanged(params):
    return all(bool((p == 1).all()) for p in params)


@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize("named", [False, True])
def test_errors_name_parameters_as_users_know_them(foreach, named):
    params = parameters(*[torch.float32] * 4)
    params[1].grad = None
    group = [(f"layer{i}.weight", p) for i, p in enumerate(params)] if named else params
    optimizer = tenon.optim.Lion([{"params": group}], foreach=foreach, non_finite="raise")
    place = r"layer2\.weight" if named else r"param_groups\[0\]\.params\[2\]"
    params[2].grad = torch.full((3,), NAN)
    with pytest.raises(tenon.NumericError, match=rf"{place}\.grad\]?:? is not finite; nothing was written") as e:
        optimizer.step()
    assert re.fullmatch(rf"{place}\.grad", e.value.where) and unchanged(params)
    params[2].grad = torch.ones(3).to_sparse()
    with pytest.raises(tenon.UsageError, match=rf"^{place}\.grad: expected a dense"):
        optimizer.step()
    params[2].grad = torch.ones(3)
    optimizer.state[params[2]]["exp_avg"] = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(tenon.UsageError, match=rf"{place}\.exp_avg\] expected f32, bf16 or f16"):
        optimizer.step()


@pytest.mark.parametrize("foreach", [None, False])
def test_a_type_that_no_kernel_takes_is_refused_before_any_group_steps(foreach):
    params = parameters(torch.float32, torch.float32, torch.float64)
    groups = [{"params": params[:1]}, {"params": params[1:]}]
    with pytest.raises(tenon.UsageError, match=r"^\[?param_groups\[1\]\.params\[1\]\]?:? expected f32, bf16 or f16"):
        tenon.optim.Lion(groups, lr=0.5, foreach=foreach).step()
    assert unchanged(params)


def gaps_in_the_second(dtype):
    """Two parameters of which the second has gaps, with gradients."""
    pair = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(4, 8, dtype=dtype)[:, ::2])]
    for p in pair:
        p.grad = torch.ones_like(p)
    return pair


@pytest.mark.parametrize(
    "groups, dtype, options",
    [(True, torch.float32, {}), (False, torch.float32, {"foreach": False}), (False, torch.bfloat16, {"master_weights": True})],
)  # fmt: skip
def test_gaps_are_refused_before_any_launch(groups, dtype, options):
    p, q = gaps_in_the_second(dtype)
    optimizer = tenon.optim.Lion([{"params": [p]}, {"params": [q]}] if groups else [p, q], lr=0.5, **options)
    name = r"param_groups\[1\]\.params\[0\]" if groups else r"param_groups\[0\]\.params\[1\]"
    with pytest.raises(tenon.UsageError, match=rf"^\[{name}\] expected an array without gaps"):
        optimizer.step()
    assert unchanged([p, q])


@pytest.mark.parametrize("foreach", [None, False])
def test_a_bad_gradient_or_state_of_the_last_group_leaves_the_first_unchanged(foreach):
    params = parameters(*[torch.float32] * 12)
    optimizer = tenon.optim.Lion(
        [{"params": params[:2]}, {"params": params[2:], "non_finite": "raise"}], lr=0.5, foreach=foreach
    )
    params[11].grad = torch.full((3,), NAN)
    with pytest.raises(tenon.NumericError, match=r"param_groups\[1\]\.params\[9\]\.grad\]?:? is not finite"):
        optimizer.step()
    assert unchanged(params)
    params[11].grad = -torch.ones(3)
    optimizer.state[params[11]]["exp_avg"] = params[0].detach()
    with pytest.raises(tenon.UsageError, match=r"\[9\]\.exp_avg\] shares memory with param_groups\[0\]\.params\[0\]"):
        optimizer.step()
    assert unchanged(params)
    optimizer.state[params[11]]["exp_avg"] = torch.zeros(3)
    for place in (10, 11):  # numbers that memory holds negated
        params[place].grad = torch._neg_view(torch.ones(3))
        assert params[place].grad.is_neg()
    optimizer.step()
    for place, p in enumerate(params):
        assert_close(p, np.full(3, 0.5 if place < 10 else 1.5), 0)


@pytest.mark.parametrize("groups", [[[0, 1]], [[0], [1]]])
@pytest.mark.parametrize("foreach", [None, False])
def test_parameters_that_share_memory_are_refused_in_any_groups(groups, foreach):
    memory = torch.ones(6)
    pair = [torch.nn.Parameter(memory[:4]), torch.nn.Parameter(memory[2:])]
    for p in pair:
        p.grad = torch.ones_like(p)
    optimizer = tenon.optim.Lion([{"params": [pair[i] for i in group]} for group in groups], lr=0.5, foreach=foreach)
    second = r"params\[1\]" if len(groups) == 1 else r"param_groups\[1\]\.params\[0\]"
    with pytest.raises(tenon.UsageError, match=rf"{second}\] shares memory with param_groups\[0\]\.params\[0\]"):
        optimizer.step()
    assert unchanged(pair)


@pytest.mark.parametrize("foreach", [None, False])
def test_types_that_no_array_has_are_refused_by_what_lion_takes(foreach):
    params = parameters(torch.complex64)
    with pytest.raises(tenon.UsageError, match=r"params\[0\]\]?:? expected f32, bf16 or f16, got (torch\.)?complex64"):
        tenon.optim.Lion(params, lr=0.5, foreach=foreach).step()
    assert unchanged(params)


def test_an_infinite_decay_is_refused_before_any_group_steps():
    params = parameters(torch.float32, torch.float32)
    optimizer = tenon.optim.Lion([{"params": params[:1]}, {"params": params[1:]}], lr=0.5)
    optimizer.param_groups[1]["weight_decay"] = float("inf")
    with pytest.raises(tenon.UsageError, match=r"^param_groups\[1\]\.weight_decay: expected a finite"):
        optimizer.step()
    assert unchanged(params)
    with pytest.raises(tenon.UsageError, match="^weight_decay: expected a finite"):
        tenon.optim.Lion(params, weight_decay=float("inf"))


@pytest.mark.parametrize(
    "other, entries",
    [
        (lambda p: torch.optim.SGD(p, momentum=0.9), "momentum_buffer"),
        (torch.optim.AdamW, "step, exp_avg, exp_avg_sq"),
    ],
)
def test_the_state_of_another_optimizer_is_not_loaded(other, entries):
    params = parameters(torch.float32, torch.float32)
    other = other(params)
    other.step()
    optimizer = tenon.optim.Lion(params, lr=0.5)
    before = copy.deepcopy(optimizer.state_dict())
    expected = rf"^param_groups\[0\]\.params\[0\]: expected Lion's state, exp_avg, got another optimizer's: {entries}$"
    with pytest.raises(tenon.UsageError, match=expected):
        optimizer.load_state_dict(other.state_dict())
    assert optimizer.state_dict() == before


@pytest.mark.parametrize(
    "shape, state",
    [
        ((), {"exp_avg_sq": ()}),
        ((), {"exp_avg_sq": (), "max_exp_avg_sq": ()}),
        ((), {"momentum_buffer": ()}),
        ((2, 3), {"exp_avg_sq_row": (2,), "exp_avg_sq_col": (3,)}),  # Adafactor with a first moment
        ((3,), {"max_exp_avg_sq": ()}),
        ((3,), {"momentum_buffer": (1,)}),
    ],
)
def test_moments_of_any_shape_tell_another_optimizers_state(shape, state):
    p = torch.nn.Parameter(torch.ones(shape))
    optimizer = tenon.optim.Lion([p], lr=0.5)
    kept = {"step": torch.tensor(2.0), "exp_avg": torch.ones(shape), **{n: torch.ones(s) for n, s in state.items()}}
    saved = {"state": {0: kept}, "param_groups": [{"params": [0], "lr": 0.5}]}
    with pytest.raises(tenon.UsageError, match=r"^param_groups\[0\]\.params\[0\]: expected Lion's state, exp_avg, got"):
        optimizer.load_state_dict(saved)
    assert not optimizer.state


def test_adamw_of_parameters_without_axes_is_not_loaded():
    p = torch.nn.Parameter(torch.ones(()))
    p.grad = torch.ones(())
    other = torch.optim.AdamW([p], amsgrad=True)
    other.step()
    with pytest.raises(tenon.UsageError, match="got another optimizer's: step, exp_avg, exp_avg_sq, max_exp_avg_sq$"):
        tenon.optim.Lion([p]).load_state_dict(other.state_dict())


def test_what_others_keep_in_the_state_is_left_alone():
    (p,), own = parameters(torch.float32), {"tag": 1, "mask": torch.ones(3), "step": torch.tensor(2.0)}
    optimizer = tenon.optim.Lion([p], lr=0.5)
    optimizer.state[p].update(own)
    for _ in range(2):
        optimizer.step()
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert_close(p, np.zeros(3), 0)
    assert set(optimizer.state[p]) == {*own, "exp_avg"} and optimizer.state[p]["tag"] == 1
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"] = [{"params": [0], "lr": 0.5}]  # another library's Lion, which counts its steps
    saved["state"] = {0: {"exp_avg": torch.full((3,), 4.0), "step": torch.tensor(2.0)}}
    optimizer.load_state_dict(saved)
    optimizer.step()
    assert_close(optimizer.state[p]["exp_avg"], np.full(3, 4 * 0.99 + 0.01), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shapes", [((3, 1), (3, 5)), ((1,), (3,))])
def test_a_state_of_another_shape_is_not_broadcast(dtype, shapes):
    small, large = (torch.nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in shapes)
    optimizers = [tenon.optim.Lion([p], lr=0.5, master_weights=True) for p in (small, large)]
    small.grad, large.grad = torch.ones_like(small), torch.ones_like(large)
    optimizers[0].step()
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    with pytest.raises(tenon.UsageError, match=r"^param_groups\[0\]\.params\[0\]\.exp_avg: expected the parameter's shape"):
        optimizers[1].step()
    assert unchanged([large])


def test_masters_of_f32_parameters_are_refused_before_any_step():
    p, q = torch.ones(3, dtype=torch.bfloat16), torch.ones(3)
    lists = ([p, q], [torch.zeros_like(p), torch.zeros_like(q)], [torch.ones_like(p), torch.ones_like(q)])
    with pytest.raises(tenon.UsageError, match=r"^\[master\[1\]\] expected none: param\[1\] is f32"):
        tenon.lion_foreach(*lists, lr=0.5, masters=[p.float(), torch.ones(3)])
    assert unchanged([p, q])


@pytest.mark.parametrize("own", [False, True])  # a class of its own goes through PyTorch's dispatcher
def test_arguments_are_named(own):
    class Own(torch.Tensor):
        pass

    p, m, g = torch.ones(3), torch.zeros(3), torch.ones(3)
    p = p.as_subclass(Own) if own else p
    for name, value in (("lr", "a"), ("lr", None), ("beta1", None), ("beta2", "a"), ("weight_decay", [1]),
                        ("lr", torch.ones(2)), ("beta1", np.ones(2)), ("lr", 10**400)):  # fmt: skip
        with pytest.raises(tenon.UsageError, match=f"^{name}: expected a number"):
            tenon.lion_step(p, m, g, **{name: value})
        with pytest.raises(tenon.UsageError, match=f"^{name}: expected a number"):
            tenon.lion_foreach([p], [m], [g], **{name: value})
    with pytest.raises(tenon.UsageError, match=r"^\[masters\] expected 1 arrays"):
        tenon.lion_foreach([p], [m], [g], masters=[])
    assert unchanged([p])
    tenon.lion_step(p, m, g, np.float32(0.5), torch.tensor(0.5), 1e-2, 0)
    assert_close(p, np.full(3, 0.5), 0)
