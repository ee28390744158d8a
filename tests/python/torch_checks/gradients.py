"""Gradients of the collectives, in the forms that Horovod's scripts know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torch_checks import RANKS, check, raises


def gradient(function: Callable[[Any], Any], tensor: Any, upstream: Any = None) -> Any:
    """The gradient of `tensor`; of the plain sum of the results unless `upstream` is given."""
    import torch

    leaf = tensor.clone().requires_grad_()
    result = function(leaf)
    result.backward(torch.ones_like(result) if upstream is None else upstream)
    return leaf.grad


@check
def gradients_have_horovods_forms() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.tensor([1.0, 2.0], dtype=dtype)
        grad = gradient(hvd.allreduce, x)
        assert grad.dtype == dtype
        assert grad.tolist() == [1.0, 1.0]
        assert gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), x).tolist() == [RANKS] * 2
        uneven = torch.ones(me + 1, 3, dtype=dtype)
        assert gradient(hvd.allgather, uneven).tolist() == [[1.0] * 3] * (me + 1)
        for root in range(RANKS):
            grad = gradient(lambda x, root=root: hvd.broadcast(x, root), x)
            assert grad.tolist() == [1.0 if me == root else 0.0] * 2
        assert gradient(hvd.alltoall, x).tolist() == [1.0, 1.0]
        assert gradient(hvd.reducescatter, x).tolist() == [1.0, 1.0]
        grad = gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum), x)
        assert grad.tolist() == [RANKS] * 2


@check
def gradients_carry_the_upstream_values_of_all_ranks() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank()
    ups = [np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0])]
    mine = torch.tensor(ups[me])
    x = torch.zeros(3, dtype=torch.float64)

    def same(function, expected: np.ndarray, tensor: Any = x) -> None:
        np.testing.assert_allclose(gradient(function, tensor, mine).numpy(), expected, rtol=1e-15)

    same(lambda x: hvd.allreduce(x, op=hvd.Sum), ups[0] + ups[1])
    same(hvd.allreduce, (ups[0] + ups[1]) / 2)
    same(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
        2.0 * (ups[0] + ups[1]),
    )
    # Rank r has sent r + 1 rows of the three, and gets the mean of their gradients.
    rows = slice(0, 1) if me == 0 else slice(1, 3)
    same(hvd.allgather, ((ups[0] + ups[1]) / 2)[rows], x[: me + 1])
    same(lambda x: hvd.broadcast(x, 1), (ups[0] + ups[1]) / 2 * me)
    # Rank 0 sends one row to itself and one to rank 1; rank 1 sends two to each.
    splits = [[1, 1], [2, 2]][me]
    back = [np.array([1.0, 10.0]), np.array([2.0, 3.0, 20.0, 30.0])][me]
    zeros = torch.zeros(sum(splits), dtype=torch.float64)
    same(lambda x: hvd.alltoall(x, splits=splits)[0], back, zeros)
    shares = [ups[0], ups[1][:2]]  # of five rows, the first rank has three
    mine = torch.tensor(shares[me])
    five = torch.zeros(5, dtype=torch.float64)
    same(hvd.reducescatter, np.concatenate(shares), five)
    same(
        lambda x: hvd.reducescatter(x, op=hvd.Sum, prescale_factor=0.5),
        np.concatenate(shares) * RANKS * 0.5,
        five,
    )


@check
def gradients_of_groups_count_results_that_are_not_used_as_zero() -> None:
    import torch

    import syrtos.torch as hvd

    a = torch.ones(2, requires_grad=True)
    b = torch.ones(3, dtype=torch.float64, requires_grad=True)
    number = torch.ones(2, dtype=torch.int64)
    first, whole, second = hvd.grouped_allreduce([a, number, b], op=hvd.Sum)
    assert whole.dtype == torch.int64
    assert not whole.requires_grad
    (second * 2).sum().backward()
    assert a.grad.tolist() == [0.0, 0.0]
    assert b.grad.tolist() == [4.0] * 3
    a.grad = b.grad = None
    rows_a, rows_b = hvd.grouped_allgather([a[: hvd.rank() + 1], b])
    (rows_a.sum() + 3 * rows_b.sum()).backward()
    assert a.grad.tolist() == [[1.0, 0.0], [1.0, 1.0]][hvd.rank()]
    assert b.grad.tolist() == [3.0] * 3
    a.grad = None
    (share,) = hvd.grouped_reducescatter([a], op=hvd.Sum)
    share.sum().backward()
    assert a.grad.tolist() == [2.0, 2.0]
    del first


@check
def gradients_pass_gradcheck_and_can_be_taken_twice() -> None:
    import torch

    import syrtos.torch as hvd

    x = torch.tensor([0.5, -1.5, 2.0, 1.0], dtype=torch.float64, requires_grad=True)
    for function in (
        hvd.allreduce,
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.25),
        lambda x: hvd.grouped_allreduce([x, x * x], op=hvd.Sum),
    ):
        # Both ranks move the same entry at the same time, so a sum moves twice as fast.
        assert torch.autograd.gradcheck(function, (x,))
        assert torch.autograd.gradgradcheck(function, (x,))
    y = hvd.allgather(x**3)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.allclose(first, 3 * x**2)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(second, 6 * x)


@check
def gradients_of_min_max_and_product_are_refused() -> None:
    import torch

    import syrtos.torch as hvd

    for op in (hvd.Min, hvd.Max, hvd.Product):
        x = torch.ones(2, requires_grad=True)
        result = hvd.allreduce(x, op=op, name="worst")
        assert result.tolist() == [1.0, 1.0]
        raises(RuntimeError, result.sum().backward, 'allreduce "worst"', f"op={op.name}", "Sum")
        shares = hvd.reducescatter(x, op=op)
        raises(RuntimeError, shares.sum().backward, "reducescatter", f"op={op.name}")


@check
def gradients_pass_through_compression_and_process_sets() -> None:
    import torch

    import syrtos.torch as hvd

    x = torch.tensor([1.0, 2.0])
    grad = gradient(lambda x: hvd.allreduce(x, compression=hvd.Compression.bf16), x)
    assert grad.dtype == torch.float32
    assert grad.tolist() == [1.0, 1.0]
    alone = hvd.add_process_set([1])
    if hvd.rank() == 1:
        for function in (
            lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=alone),
            lambda x: hvd.allgather(x, process_set=alone),
            lambda x: hvd.broadcast(x, 1, process_set=alone),
            lambda x: hvd.alltoall(x, process_set=alone),
            lambda x: hvd.reducescatter(x, op=hvd.Sum, process_set=alone),
        ):
            assert gradient(function, x).tolist() == [1.0, 1.0]
    hvd.remove_process_set(alone)


@check
def asynchronous_results_carry_no_gradient() -> None:
    import torch

    import syrtos.torch as hvd

    x = torch.ones(2, requires_grad=True)
    for handle in (
        hvd.allreduce_async(x),
        hvd.allgather_async(x),
        hvd.broadcast_async(x, 0),
        hvd.alltoall_async(x),
        hvd.reducescatter_async(x),
    ):
        assert not hvd.synchronize(handle).requires_grad
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
        assert hvd.allreduce_(x, op=hvd.Sum) is x
    assert x.tolist() == [2.0, 2.0]


@check
def writing_in_place_is_seen_by_autograd() -> None:
    import torch

    import syrtos.torch as hvd

    x = torch.full((2,), hvd.rank() + 1.0, requires_grad=True)
    hvd.allreduce_(x, op=hvd.Sum)
    hvd.broadcast_(x, 0)
    hvd.grouped_allreduce_([x, torch.ones(2)])
    assert x.is_leaf, x.grad_fn
    assert x.tolist() == [3.0, 3.0]
    product = x * x
    hvd.allreduce_(product, op=hvd.Sum)
    assert product.tolist() == [18.0, 18.0]
    y = (x * x).sum()
    hvd.broadcast_(x, 0)
    raises(RuntimeError, y.backward, "modified by an inplace operation")
    saved = torch.ones(2)
    y = (x * saved).sum()
    hvd.allreduce_(saved, op=hvd.Sum)
    raises(RuntimeError, y.backward, "modified by an inplace operation")
    with torch.inference_mode():
        inferred = torch.ones(2)
        assert hvd.allreduce_(inferred, op=hvd.Sum).tolist() == [2.0, 2.0]
        assert hvd.allreduce(inferred).tolist() == [2.0, 2.0]
