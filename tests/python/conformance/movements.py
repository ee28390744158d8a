"""allgather, broadcast and alltoall: every dtype, ragged and empty."""

from __future__ import annotations

import numpy as np

from conformance.front_ends import FrontEnd
from conformance.registry import check
from conformance.values import SHAPES, data, same


def _movable(front: FrontEnd) -> tuple[str, ...]:
    return ("bool", *front.numbers, *front.complexes)


@check
def allgather_concatenates_ragged_rows(front: FrontEnd) -> None:
    hvd = front.hvd
    for dtype in _movable(front):
        for rows in (lambda r: r + 1, lambda r: 2 * r, lambda r: 3, lambda r: 0):
            shares = [data(rank, (rows(rank), 2), dtype) for rank in front.ranks]
            result = front.array(hvd.allgather(front.tensor(shares[hvd.rank()])))
            expected = np.concatenate(shares)
            same(result, expected, dtype, expected.shape)


@check
def allgather_of_vectors_and_empty_rows(front: FrontEnd) -> None:
    hvd = front.hvd
    shares = [data(rank, (rank + 2,), "int64") for rank in front.ranks]
    result = front.array(hvd.allgather(front.tensor(shares[hvd.rank()])))
    same(result, np.concatenate(shares), "int64", (sum(map(len, shares)),))
    empty = front.tensor(np.zeros((2, 0, 3), np.float32))
    assert front.array(hvd.allgather(empty)).shape == (2 * hvd.size(), 0, 3)


@check
def allgather_under_one_name_with_changing_rows(front: FrontEnd) -> None:
    hvd = front.hvd
    for step in range(6):
        shares = [data(rank, ((rank + step) % 3, 2), "float32", step) for rank in front.ranks]
        result = front.array(hvd.allgather(front.tensor(shares[hvd.rank()]), name="changing"))
        expected = np.concatenate(shares)
        same(result, expected, "float32", expected.shape)


@check
def grouped_allgather_mixes_dtypes(front: FrontEnd) -> None:
    hvd = front.hvd
    ints = [data(rank, (rank + 1,), "int32") for rank in front.ranks]
    floats = [data(rank, (2, 2), "float64") for rank in front.ranks]
    mine = [front.tensor(ints[hvd.rank()]), front.tensor(floats[hvd.rank()])]
    first, second = hvd.grouped_allgather(mine)
    same(front.array(first), np.concatenate(ints), "int32", (sum(map(len, ints)),))
    same(front.array(second), np.concatenate(floats), "float64", (2 * hvd.size(), 2))


@check
def broadcast_from_every_root(front: FrontEnd) -> None:
    hvd = front.hvd
    for dtype in _movable(front):
        for root in front.ranks:
            for shape in SHAPES:
                mine = data(hvd.rank(), shape, dtype)
                result = front.array(hvd.broadcast(front.tensor(mine), root_rank=root))
                same(result, data(root, shape, dtype), dtype, shape)
                same(mine, data(hvd.rank(), shape, dtype), dtype, shape)


@check
def broadcast_in_place(front: FrontEnd) -> None:
    if not (front.handles and front.in_place):
        return
    hvd = front.hvd
    for root in front.ranks:
        tensor = front.tensor(data(hvd.rank(), (5, 2), "float32"))
        assert hvd.broadcast_(tensor, root_rank=root) is tensor
        same(front.array(tensor), data(root, (5, 2), "float32"), "float32", (5, 2))


@check
def alltoall_in_equal_shares(front: FrontEnd) -> None:
    hvd, size, me = front.hvd, front.hvd.size(), front.hvd.rank()
    for dtype in _movable(front):
        shares = [data(rank, (2 * size, 3), dtype) for rank in front.ranks]
        result = front.array(hvd.alltoall(front.tensor(shares[me])))
        expected = np.concatenate([share[2 * me : 2 * me + 2] for share in shares])
        same(result, expected, dtype, (2 * size, 3))


@check
def alltoall_with_splits_returns_the_received_ones(front: FrontEnd) -> None:
    hvd, size, me = front.hvd, front.hvd.size(), front.hvd.rank()
    for shift in range(3):
        splits = [[(r + to + shift) % 3 for to in range(size)] for r in range(size)]
        shares = [data(rank, (sum(splits[rank]), 2), "int32") for rank in front.ranks]
        pieces = []
        for share, rows in zip(shares, splits, strict=True):
            begin = sum(rows[:me])
            pieces.append(share[begin : begin + rows[me]])
        output, received = hvd.alltoall(front.tensor(shares[me]), splits=splits[me])
        expected = np.concatenate(pieces)
        same(front.array(output), expected, "int32", expected.shape)
        assert front.array(received).tolist() == [row[me] for row in splits]


@check
def alltoall_of_nothing(front: FrontEnd) -> None:
    hvd = front.hvd
    empty = front.tensor(np.zeros((0, 2), np.float32))
    assert front.array(hvd.alltoall(empty)).shape == (0, 2)
    output, received = hvd.alltoall(empty, splits=[0] * hvd.size())
    assert front.array(output).shape == (0, 2)
    assert front.array(received).tolist() == [0] * hvd.size()


@check
def objects_of_every_kind_from_every_root(front: FrontEnd) -> None:
    hvd = front.hvd
    objects = [None, "", [], {"array": np.arange(5), "n": 1}, b"x" * 70_000, ("a", {1, 2})]
    for root in front.ranks:
        for value in objects:
            sent = (value, hvd.rank()) if hvd.rank() == root else "not this"
            received, sender = hvd.broadcast_object(sent, root_rank=root)
            assert sender == root
            assert repr(received) == repr(value)


@check
def gathered_objects_are_in_rank_order(front: FrontEnd) -> None:
    hvd = front.hvd
    kinds = [b"x" * 10, b"y" * 70_000, b"z" * 3, None, "", [], {"a": np.arange(3)}]
    for shift in range(len(kinds)):
        expected = [kinds[(rank + shift) % len(kinds)] for rank in front.ranks]
        received = hvd.allgather_object(expected[hvd.rank()])
        assert repr(received) == repr(expected)
    assert hvd.allgather_object(hvd.rank(), name="ranks") == list(front.ranks)
