"""Numbers that the core understands: kinds of collectives and reduce ops."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Kind", "ReduceOp"]


class Kind(IntEnum):
    """The numbers of ``syrtos::CollectiveKind`` (cpp/syrtos/collectives/collective.h)."""

    ALLREDUCE = 0
    ALLGATHER = 1
    BROADCAST = 2
    ALLTOALL = 3
    REDUCESCATTER = 4
    BARRIER = 5
    JOIN = 6
    ADD_GROUP = 7
    REMOVE_GROUP = 8


class ReduceOp(IntEnum):
    """How values of several ranks become one; the numbers are Horovod's.

    ``Average`` of integers is the exact sum divided by the number of ranks, truncated toward zero.
    ``Adasum`` adds pairs of vectors so that parallel ones give their mean and orthogonal ones their
    sum; for real floating-point tensors, in allreduce, over 1, 2, 4, 8, ... ranks.
    """

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5
