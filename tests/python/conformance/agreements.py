"""Names, order, groups, process sets, barrier, join, and errors that all ranks see."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

from conformance.front_ends import FrontEnd
from conformance.registry import check, raises
from conformance.values import data, same, total
from syrtos.errors import MismatchError


@check
def named_tensors_may_come_in_any_order(front: FrontEnd) -> None:
    if not front.handles:
        return
    hvd = front.hvd
    order = list(range(200))
    random.Random(hvd.rank()).shuffle(order)
    handles = {
        i: hvd.allreduce_async(front.tensor(np.full(i % 7, i + hvd.rank(), np.float32)),
                               name=f"tensor_{i}", op=hvd.Sum)
        for i in order
    }  # fmt: skip
    for i, handle in handles.items():
        expected = np.full(i % 7, sum(i + rank for rank in front.ranks))
        same(front.array(hvd.synchronize(handle)), expected, "float32", (i % 7,))


@check
def a_name_in_flight_is_refused_and_free_afterwards(front: FrontEnd) -> None:
    if not front.handles:
        return
    hvd = front.hvd
    # The last rank comes late, so that the others surely still have the name in flight.
    first = None
    if hvd.rank() != hvd.size() - 1:
        first = hvd.allreduce_async(front.tensor(np.ones(3)), name="twice", op=hvd.Sum)
        raises(
            ValueError,
            lambda: hvd.synchronize(hvd.allreduce_async(front.tensor(np.zeros(3)), name="twice")),
            "same name",
            "twice",
        )
    hvd.allgather_object("now the last one may start")
    if first is None:
        first = hvd.allreduce_async(front.tensor(np.ones(3)), name="twice", op=hvd.Sum)
    assert front.array(hvd.synchronize(first)).tolist() == [hvd.size()] * 3
    again = hvd.allreduce(front.tensor(np.ones(3)), name="twice", op=hvd.Sum)
    assert front.array(again).tolist() == [hvd.size()] * 3


@check
def mismatches_raise_on_all_ranks_and_the_engine_goes_on(front: FrontEnd) -> None:
    hvd, rank = front.hvd, front.hvd.rank()
    if hvd.size() == 1:
        return
    other = min(rank, 1)  # rank 0 asks for one thing, the others for another
    error = front.mismatch

    def asked(first: Any, second: Any) -> Any:
        return second if other else first

    shape = asked((4, 8), (4, 7))
    raises(
        error,
        lambda: hvd.allreduce(front.tensor(np.ones(shape)), name="kernel"),
        'allreduce "kernel"', "(4, 8)", "(4, 7)", "rank 0", "rank 1",
    )  # fmt: skip
    dtype = asked("float32", "int32")
    raises(
        error,
        lambda: hvd.allreduce(front.tensor(np.ones(3, dtype)), name="kind"),
        "float32", "int32",
    )  # fmt: skip
    raises(
        error,
        lambda: hvd.broadcast(front.tensor(np.ones(3)), root_rank=other, name="root"),
        "root_rank 0", "root_rank 1",
    )  # fmt: skip
    raises(
        error,
        lambda: hvd.allgather(front.tensor(np.ones(asked((2, 3), (2, 4)))), name="rows"),
        "(2, 3)", "(2, 4)",
    )  # fmt: skip
    op = asked(hvd.Sum, hvd.Max)
    raises(error, lambda: hvd.allreduce(front.tensor(np.ones(3)), op=op), "op=")
    scale = asked(0.5, 0.25)
    raises(
        error,
        lambda: hvd.allreduce(
            front.tensor(np.ones(3)), op=hvd.Sum, prescale_factor=scale
        ),
        "prescale_factor=0.5", "prescale_factor=0.25",
    )  # fmt: skip
    result = front.array(hvd.allreduce(front.tensor(np.ones(3)), op=hvd.Sum))
    same(result, np.full(3, hvd.size()), "float64", (3,))


@check
def impossible_requests_raise_on_all_ranks(front: FrontEnd) -> None:
    hvd, size = front.hvd, front.hvd.size()
    scalar = front.tensor(np.array(1.0))
    for call in (hvd.allgather, hvd.reducescatter, hvd.alltoall):
        raises(front.invalid, lambda call=call: call(scalar), "scalar")
    rows = front.tensor(np.ones(2 * size))
    raises(front.invalid, lambda: hvd.alltoall(rows, splits=[1] * size), "splits")
    raises(front.invalid, lambda: hvd.alltoall(rows, splits=[2 * size, *[0] * size]), "splits")
    if size > 1:
        raises(front.invalid, lambda: hvd.alltoall(front.tensor(np.ones(size + 1))), "splits")
    raises(front.invalid, lambda: hvd.broadcast(rows, root_rank=size), f"root_rank {size}")
    truth = front.tensor(np.ones(3, bool))
    raises(front.invalid, lambda: hvd.allreduce(truth), "bool")
    result = front.array(hvd.allreduce(front.tensor(np.ones(3)), op=hvd.Sum))
    same(result, np.full(3, size), "float64", (3,))


@check
def groups_of_different_shapes_do_not_mix(front: FrontEnd) -> None:
    hvd = front.hvd
    shapes = [(3,), (2, 2), (0,), (5,)]
    dtypes = ["float32", "int64", "float32", "float64"]

    def share(rank: int, salt: int) -> list[np.ndarray]:
        return [data(rank, s, d, salt) for s, d in zip(shapes, dtypes, strict=True)]

    def verify(results: list[Any], salt: int) -> None:
        for i, result in enumerate(results):
            expected = total([share(rank, salt)[i] for rank in front.ranks])
            same(front.array(result), expected, dtypes[i], shapes[i])

    groups = [[front.tensor(array) for array in share(hvd.rank(), salt)] for salt in (1, 2)]
    if front.handles:
        handles = [hvd.grouped_allreduce_async(group, op=hvd.Sum) for group in groups]
        for salt, handle in enumerate(handles, 1):
            verify(hvd.synchronize(handle), salt)
    for salt, group in enumerate(groups, 1):
        verify(hvd.grouped_allreduce(group, op=hvd.Sum), salt)
    rows = [front.tensor(np.ones((4, 2))), front.tensor(np.ones(3, np.int32))]
    first, second = hvd.grouped_reducescatter(rows, op=hvd.Sum)
    assert set(front.array(first).reshape(-1).tolist()) <= {float(hvd.size())}
    assert front.array(second).dtype == np.int32


@check
def a_late_rank_holds_the_barrier(front: FrontEnd) -> None:
    hvd = front.hvd
    late = hvd.size() - 1
    if hvd.rank() == late:
        time.sleep(0.3)
    entered = time.monotonic()
    hvd.barrier()
    left = time.monotonic()
    times = hvd.allgather_object((entered, left))
    assert min(leaving for _, leaving in times) >= max(entering for entering, _ in times)


@check
def barriers_between_other_calls(front: FrontEnd) -> None:
    hvd = front.hvd
    for step in range(20):
        handles = []
        if front.handles:
            handles = [
                hvd.allreduce_async(front.tensor(np.full(i + 1, 1.0)), op=hvd.Sum) for i in range(5)
            ]
        hvd.barrier()
        gathered = front.array(hvd.allgather(front.tensor(np.array([step]))))
        assert gathered.tolist() == [step] * hvd.size()
        hvd.barrier()
        for handle in handles:
            assert set(front.array(hvd.synchronize(handle)).tolist()) == {float(hvd.size())}


@check
def process_sets_work_among_their_members(front: FrontEnd) -> None:
    hvd, size, me = front.hvd, front.hvd.size(), front.hvd.rank()
    if size == 1:
        return
    members = [0, 2] if size > 2 else [1]
    process_set = hvd.add_process_set(list(reversed(members)))
    number = process_set.process_set_id
    assert str(process_set) == (
        f"ProcessSet(process_set_id={number}, ranks={members}, mpi_comm=None)"
    )
    assert process_set.size() == len(members)
    assert process_set.included() is (me in members)
    raises(ValueError, lambda: hvd.add_process_set(members), "exists")
    root = members[-1]
    mine = front.tensor(np.array([float(me)]))
    if me in members:
        assert process_set.rank() == members.index(me)
        result = hvd.allreduce(mine, op=hvd.Sum, process_set=process_set)
        assert front.array(result).tolist() == [float(sum(members))]
        result = hvd.allgather(mine, process_set=process_set)
        assert front.array(result).tolist() == [float(member) for member in members]
        result = hvd.broadcast(mine, root_rank=root, process_set=process_set)
        assert front.array(result).tolist() == [float(root)]
        assert hvd.allgather_object(me, process_set=process_set) == members
        outside = next(rank for rank in range(size) if rank not in members)
        raises(
            front.invalid,
            lambda: hvd.broadcast(mine, root_rank=outside, process_set=process_set),
            f"root_rank {outside}",
        )
    else:
        assert process_set.rank() == -1
        raises(front.invalid, lambda: hvd.allreduce(mine, process_set=process_set), "process set")
    assert hvd.remove_process_set(process_set) is True
    assert process_set.process_set_id is None
    assert hvd.remove_process_set(process_set) is False
    assert hvd.remove_process_set(hvd.global_process_set) is False
    raises(ValueError, lambda: hvd.allreduce(mine, process_set=process_set), "removed")
    again = hvd.add_process_set([0])
    assert again.process_set_id == number  # ids are used again
    assert hvd.remove_process_set(again) is True


@check
def join_tells_who_worked_longest(front: FrontEnd) -> None:
    hvd, size, me = front.hvd, front.hvd.size(), front.hvd.rank()
    for round_ in range(3):
        steps = [2 + 3 * ((rank + round_) % size) for rank in front.ranks]
        for step in range(steps[me]):
            working = sum(1 for count in steps if count > step)
            result = hvd.allreduce(front.tensor(np.ones(4)), op=hvd.Sum)
            assert front.array(result).tolist() == [float(working)] * 4
        assert hvd.join() == steps.index(max(steps))
    assert front.array(hvd.allreduce(front.tensor(np.ones(2)), op=hvd.Sum)).tolist() == [size] * 2


@check
def averages_during_a_join_divide_by_all_ranks_or_by_the_active_ones(front: FrontEnd) -> None:
    hvd, size, me = front.hvd, front.hvd.size(), front.hvd.rank()
    for active in (True, False, True):
        for step in range(2 + me):
            working = [rank for rank in front.ranks if 2 + rank > step]
            result = front.array(hvd.allreduce(front.tensor(np.full(3, me + 1.0)), op=hvd.Average))
            total = sum(rank + 1.0 for rank in working)
            assert result.tolist() == [total / (len(working) if active else size)] * 3
        assert hvd.join(average_active=active) == size - 1
    if size > 1:
        raises(MismatchError, lambda: hvd.join(average_active=me == 0), "average_active")


@check
def joined_ranks_are_neutral_or_an_error_names_join(front: FrontEnd) -> None:
    hvd, size, me = front.hvd, front.hvd.size(), front.hvd.rank()
    if me != 0:
        rows = front.array(hvd.allgather(front.tensor(np.array([float(me)]))))
        assert rows.tolist() == [float(rank) for rank in range(1, size)]
        low = front.array(hvd.allreduce(front.tensor(np.array([5.0 + me])), op=hvd.Min))
        assert low.tolist() == [6.0]
        mine = front.tensor(np.array([float(me)]))
        assert front.array(hvd.broadcast(mine, root_rank=1)).tolist() == [1.0]
        raises(front.mismatch, lambda: hvd.broadcast(mine, root_rank=0), "join")
    assert hvd.join() in range(size)
