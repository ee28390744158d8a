"""What the distributed optimizers share: which ops they take, and how gradients become requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError

__all__ = ["check_groups", "check_op", "plain_name", "split_requests"]

_COUNTERS = re.compile(r"_\d+(?=[/_]|$)")


def check_op(op: ReduceOp | int, predivide: float, *, adasum: bool = False) -> ReduceOp:
    """Return the op of a distributed optimizer.

    Parameters
    ----------
    op : ReduceOp or int
        Average or Sum; Adasum if `adasum`.
    predivide : float
        ``gradient_predivide_factor``; other than 1 it needs Average.

    Raises
    ------
    InvalidRequestError
        Another op, or a factor that does not go with it.
    """
    allowed = (ReduceOp.Average, ReduceOp.Sum, *([ReduceOp.Adasum] if adasum else ()))
    if op not in allowed:
        names = " or ".join(one.name for one in allowed)
        raise InvalidRequestError(f"op={op!r}: gradients are reduced with {names} only.")
    if predivide != 1.0 and op != ReduceOp.Average:
        raise InvalidRequestError("gradient_predivide_factor needs op=Average.")
    return ReduceOp(op)


def check_groups(
    num_groups: int, groups: Any, key_of: Callable[[Any], Any]
) -> tuple[int, tuple[tuple[Any, ...], ...]]:
    """Return the number of groups, 0 if it was not given, and the groups of variables as tuples.

    Parameters
    ----------
    num_groups, groups
        As the user gave them.
    key_of : callable
        What tells a variable from all others.

    Raises
    ------
    InvalidRequestError
        They make no sense.
    """
    if not isinstance(num_groups, int) or isinstance(num_groups, bool) or num_groups < 0:
        raise InvalidRequestError(f"num_groups={num_groups!r}: give a whole number, 0 or more.")
    if groups is None or groups in ([], ()):
        return num_groups, ()
    if num_groups:
        raise InvalidRequestError("num_groups and groups are two ways to say the same: give one.")
    if isinstance(groups, int) and not isinstance(groups, bool) and groups > 0:
        return groups, ()
    if not isinstance(groups, list | tuple) or not all(
        isinstance(group, list | tuple) for group in groups
    ):
        raise InvalidRequestError(
            f"groups={groups!r}: give a number of groups, 1 or more, or a list of lists of "
            "variables."
        )
    keys = [key_of(variable) for group in groups for variable in group]
    if len(set(keys)) != len(keys):
        raise InvalidRequestError("groups: a variable is listed twice.")
    return 0, tuple(tuple(group) for group in groups)


def split_requests(
    positions: Sequence[int],
    num_groups: int,
    groups: Sequence[Sequence[Any]],
    variables: Sequence[Any],
    key_of: Callable[[Any], Any],
) -> list[list[int]]:
    """Split the positions of gradients into requests, alike on all ranks; some may be empty.

    Parameters
    ----------
    positions : sequence of int
        Of the gradients that exist.
    num_groups, groups
        What `check_groups` returned.
    variables : sequence of variable
        All of them, in the gradients' order; empty if unknown.
    key_of : callable
        As for `check_groups`.
    """
    if num_groups:
        count = min(num_groups, len(positions))
        base, more = divmod(len(positions), count) if count else (0, 0)
        sizes = [base + (i < more) for i in range(count)]
        starts = [sum(sizes[:i]) for i in range(count)]
        return [
            list(positions[start : start + size]) for start, size in zip(starts, sizes, strict=True)
        ]
    if not groups or len(variables) == 0:
        return [list(positions)]
    place = {key_of(variable): i for i, group in enumerate(groups) for variable in group}
    split: list[list[int]] = [[] for _ in range(len(groups) + 1)]
    for position in positions:
        split[place.get(key_of(variables[position]), -1)].append(position)
    return split


def plain_name(path: str) -> str:
    """Return what messages call a variable of Keras: its path without automatic numbers.

    They count what a process has made so far, and a rank that has made one model more must still
    train with the others.
    """
    return _COUNTERS.sub("", path)
