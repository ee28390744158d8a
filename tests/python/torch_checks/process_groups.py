"""The backend of ``torch.distributed`` beside Gloo's; `test_torch_c10d.py` runs it.

A check is a function of a group of Syrtos and one of Gloo, with the decorator `check`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

RANKS = 2
CHECKS: dict[str, Callable[[Any, Any], None]] = {}


def check(function: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Add a function of a group of Syrtos and one of Gloo, that is run on every rank."""
    CHECKS[function.__name__] = function
    return function


def both(ours: Any, gloo: Any, call: Callable[[Any], Any]) -> None:
    """Assert that a call gives the same on both groups."""
    import torch

    results, expected = call(ours), call(gloo)
    torch.testing.assert_close(results, expected, rtol=0, atol=0)


@check
def reductions(ours: Any, gloo: Any) -> None:
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    ops = (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT)
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8):
        for op in ops:

            def reduce_all(group: Any, dtype: Any = dtype, op: Any = op) -> Any:
                tensor = torch.arange(6).reshape(2, 3).to(dtype) % 3 + rank
                assert dist.all_reduce(tensor, op, group=group) is None
                return tensor

            both(ours, gloo, reduce_all)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):

        def bits(group: Any, op: Any = op) -> Any:
            tensor = torch.tensor([[5, 3], [6, 0]]) + 8 * rank
            dist.all_reduce(tensor, op, group=group)
            return tensor

        both(ours, gloo, bits)
    mean = torch.tensor([1.0, 2.0]) * (rank + 1)
    dist.all_reduce(mean, dist.ReduceOp.AVG, group=ours)
    assert mean.tolist() == [1.5, 3.0]
    whole = torch.zeros(2, 4)
    dist.all_reduce(whole[:, ::2].add_(1), group=ours)
    assert whole.tolist() == [[2.0, 0.0, 2.0, 0.0]] * 2
    pair = [torch.ones(2), torch.full((3,), rank + 1.0)]
    dist.all_reduce_coalesced(pair, group=ours)
    assert [tensor.tolist() for tensor in pair] == [[2.0, 2.0], [3.0] * 3]
    for root in range(RANKS):
        tensor = torch.tensor([rank + 1.0])
        dist.reduce(tensor, root, group=ours)
        assert tensor.item() == (3.0 if rank == root else rank + 1.0)
    with pytest.raises(NotImplementedError, match="syrtos has no"):
        dist.all_reduce(mean, dist._make_nccl_premul_sum(2.0), group=ours)


@check
def movements(ours: Any, gloo: Any) -> None:
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()

    def mine(*shape: int, dtype: Any = torch.float32) -> Any:
        return (torch.arange(torch.Size(shape).numel()).reshape(shape) + 100 * rank).to(dtype)

    def broadcast(group: Any, root: int) -> Any:
        tensor = mine(2, 3).t()
        dist.broadcast(tensor, root, group=group)
        return tensor

    def all_gather(group: Any) -> Any:
        outputs = [torch.zeros(2, 2, dtype=torch.int64) for _ in range(RANKS)]
        dist.all_gather(outputs, mine(2, 2, dtype=torch.int64), group=group)
        return outputs

    def into_tensor(group: Any) -> Any:
        output = torch.zeros(2 * RANKS, 2)
        dist.all_gather_into_tensor(output, mine(2, 2), group=group)
        return output

    def exchange(group: Any) -> Any:
        outputs = [torch.zeros(r + 1) for r in range(RANKS)]
        dist.all_to_all_single(
            torch.cat(outputs), whole := mine(2 * rank + 2), [1, 2], [rank + 1] * 2, group=group
        )
        even = torch.zeros(4, 2)
        dist.all_to_all_single(even, mine(4, 2), group=group)
        del whole
        return even

    def gather(group: Any, root: int) -> Any:
        outputs = [torch.zeros(3) for _ in range(RANKS)] if rank == root else None
        dist.gather(mine(3), outputs, dst=root, group=group)
        return outputs or []

    def scatter(group: Any, root: int) -> Any:
        output = torch.zeros(2)
        inputs = [mine(2) + r for r in range(RANKS)] if rank == root else None
        dist.scatter(output, inputs, src=root, group=group)
        return output

    for call in (all_gather, into_tensor, exchange):
        both(ours, gloo, call)
    for root in range(RANKS):
        for rooted in (broadcast, gather, scatter):
            both(ours, gloo, functools.partial(rooted, root=root))


@check
def shares_and_uneven_sizes(ours: Any, gloo: Any) -> None:
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    base = torch.arange(4.0)
    output = torch.zeros(2)
    dist.reduce_scatter_tensor(output, base * (rank + 1), group=ours)
    assert output.tolist() == [[0.0, 3.0], [6.0, 9.0]][rank]
    dist.reduce_scatter(output, [base[:2] + rank, base[2:] + rank], group=ours)
    assert output.tolist() == [[1.0, 3.0], [5.0, 7.0]][rank]
    uneven = torch.zeros(rank + 1)
    dist.reduce_scatter(uneven, [base[:1], base[1:3]], dist.ReduceOp.MAX, group=ours)
    assert uneven.tolist() == [[0.0], [1.0, 2.0]][rank]
    bits = torch.zeros(2, dtype=torch.int32)
    dist.reduce_scatter_tensor(
        bits, torch.tensor([1, 2, 4, 8], dtype=torch.int32) << rank, dist.ReduceOp.BOR, group=ours
    )
    assert bits.tolist() == [[3, 6], [12, 24]][rank]
    outputs = [torch.zeros(1), torch.zeros(2)]
    dist.all_gather(outputs, torch.full((rank + 1,), rank + 1.0), group=ours)
    assert [tensor.tolist() for tensor in outputs] == [[1.0], [2.0, 2.0]]
    received = [torch.zeros(rank + 1), torch.zeros(rank + 1)]
    dist.all_to_all(received, [torch.full((1,), rank + 1.0), torch.full((2,), rank + 5.0)],
                    group=ours)  # fmt: skip
    assert [t.tolist() for t in received] == [[[1.0], [2.0]], [[5.0] * 2, [6.0] * 2]][rank]
    output = torch.zeros(3)
    dist.all_to_all_single(output[: 1 + rank], torch.ones(1 + rank) * rank,
                           [1, 0] if rank == 0 else [0, 2], [1, 0] if rank == 0 else [0, 2],
                           group=ours)  # fmt: skip
    assert output.tolist() == [[0.0] * 3, [1.0, 1.0, 0.0]][rank]
    with pytest.raises(ValueError, match="split evenly"):
        dist.all_to_all_single(output, torch.ones(3), group=ours)
    wrong = [torch.zeros(1), torch.zeros(1)]
    with pytest.raises(ValueError, match="all_gather: 4 elements have come for outputs of 2"):
        dist.all_gather(wrong, torch.ones(2), group=ours)
    bools = torch.tensor([rank == 0, True, False])
    dist.broadcast(bools, 1, group=ours)
    assert bools.tolist() == [False, True, False]
    half = torch.full((3,), rank + 1.0, dtype=torch.bfloat16)
    dist.all_reduce(half, group=ours)
    assert half.tolist() == [3.0] * 3
    pairs = torch.tensor([1 + 1j * rank])
    dist.all_reduce(pairs, group=ours)
    assert pairs.tolist() == [2 + 1j]


@check
def objects_and_barriers(ours: Any, gloo: Any) -> None:
    import torch.distributed as dist

    rank = dist.get_rank()
    gathered: list[Any] = [None] * RANKS
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * 1000 * rank}, group=ours)
    assert gathered == [{"rank": r, "text": "x" * 1000 * r} for r in range(RANKS)]
    listed = [rank, "abc" * rank, None]
    dist.broadcast_object_list(listed, src=1, group=ours)
    assert listed == [1, "abc", None]
    collected = [None] * RANKS if rank == 0 else None
    dist.gather_object(("from", rank), collected, dst=0, group=ours)
    assert collected == ([("from", 0), ("from", 1)] if rank == 0 else None)
    received: list[Any] = [None]
    dist.scatter_object_list(received, ["a", "b"] if rank == 1 else None, src=1, group=ours)
    assert received == ["ab"[rank]]
    dist.barrier(group=ours)
    dist.barrier(group=ours, async_op=True).wait()


@check
def asynchronous_work_and_futures(ours: Any, gloo: Any) -> None:
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    tensors = [torch.full((1000,), i + rank + 0.0) for i in range(20)]
    works = [dist.all_reduce(tensor, group=ours, async_op=True) for tensor in tensors]
    chained = works[3].get_future().then(lambda future: future.value()[0] * 10)
    for i, work in reversed(list(enumerate(works))):
        assert work.wait(timedelta(seconds=60))
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        assert work.result()[0] is tensors[i]
        assert tensors[i].eq(2.0 * i + 1).all()
    assert chained.wait().eq(70.0).all()
    assert works[5].get_future().wait()[0].eq(11.0).all()
    late = torch.ones(1)
    if rank == 0:
        work = dist.all_reduce(late, group=ours, async_op=True)
        with pytest.raises(TimeoutError, match="not done after"):
            work.wait(timedelta(milliseconds=50))
        assert not work.is_completed()
        assert not work.is_success()
    dist.barrier(group=gloo)
    if rank == 1:
        work = dist.all_reduce(late, group=ours, async_op=True)
    work.wait()
    assert late.item() == 2.0


@check
def errors_are_ours_and_the_group_goes_on(ours: Any, gloo: Any) -> None:
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)|\(3,\).*\(2,\)"):
        dist.all_reduce(torch.ones(2 + rank), group=ours)
    work = dist.all_reduce(torch.ones(2 + rank), group=ours, async_op=True)
    with pytest.raises(RuntimeError, match=r"\(2,\)"):
        work.get_future().wait()
    assert not work.is_success()
    assert "(2,)" in str(work.exception())
    with pytest.raises(NotImplementedError, match=r"new_group\(backend=.gloo.\)"):
        dist.send(torch.ones(1), 1 - rank, group=ours)
    with pytest.raises(NotImplementedError, match="collectives only"):
        dist.recv(torch.ones(1), 1 - rank, group=ours)
    fine = torch.ones(1)
    dist.all_reduce(fine, group=ours)
    assert fine.item() == 2.0
    assert dist.get_backend(ours) == "cpu:syrtos"
    assert repr(ours).startswith("SyrtosProcessGroup(")


@check
def subgroups_and_hvd_work_beside(ours: Any, gloo: Any) -> None:
    import torch
    import torch.distributed as dist

    import syrtos.torch as hvd

    rank = dist.get_rank()
    groups = [dist.new_group([0]), dist.new_group([1]), dist.new_group([1, 0])]
    for ranks, group in zip(([0], [1], [0, 1]), groups, strict=True):
        if rank in ranks:
            tensor = torch.tensor([rank + 1.0])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(r + 1.0 for r in ranks)
            assert dist.get_world_size(group) == len(ranks)
    hvd.init()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [2.0, 2.0]
    dist.destroy_process_group(groups[2])
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=ours)
    assert hvd.allgather(tensor).tolist() == [2.0, 2.0]
    hvd.shutdown()
    dist.all_reduce(tensor, group=ours)
    assert tensor.item() == 4.0


def model_of(torch: Any) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16),
        torch.nn.BatchNorm1d(16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 16),
        torch.nn.Linear(16, 3),
    )


def train(group: Any, hook: Any = None, **options: Any) -> Any:
    """Five steps of DDP, with accumulation in one of them; the weights in the end."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(model_of(torch), process_group=group, **options)
    if hook is not None:
        model.register_comm_hook(group, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank() + 1)
    for step in range(5):
        x, y = (torch.randn(8, n, generator=generator) for n in (6, 3))
        optimizer.zero_grad()
        if step == 2:
            with model.no_sync():
                (model(x) - y).square().mean().backward()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


@check
def ddp_equals_gloos(ours: Any, gloo: Any) -> None:
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    for options in (
        {},
        {"bucket_cap_mb": 0.0005},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"hook": default_hooks.fp16_compress_hook},
    ):
        results, expected = train(ours, **options), train(gloo, **options)
        # Gloo adds float16 in float16; there is no other difference with two ranks.
        close = {"atol": 1e-6, "rtol": 1e-5} if "hook" not in options else {}
        close = close or {"atol": 5e-3, "rtol": 1e-2}
        for result, value in zip(results, expected, strict=True):
            torch.testing.assert_close(result, value, **close)
