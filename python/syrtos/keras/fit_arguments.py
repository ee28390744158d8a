"""Values for the arguments of ``model.fit``."""

from __future__ import annotations

import operator
from typing import Any

from syrtos import _session
from syrtos.errors import InvalidRequestError
from syrtos.keras._backend import current

__all__ = ["min_steps", "verbose"]


def min_steps(steps: int) -> int:
    """Return the smallest of the ranks' numbers of steps, for ``steps_per_epoch``.

    With it all ranks make equally many steps; what a rank has beyond that is left for the next
    epoch or left out, as Keras does. Without it, ranks with fewer batches wait for the others.

    Parameters
    ----------
    steps : int
        The batches that this rank has in an epoch. All ranks must call this.

    Returns
    -------
    int

    Raises
    ------
    InvalidRequestError
        A rank has less than one; raised on all ranks.
    """
    of_ranks = current.allgather_object(operator.index(steps))
    for rank, count in enumerate(of_ranks):
        if count < 1:
            raise InvalidRequestError(
                f"min_steps: rank {rank} has {count} batches in an epoch; every rank needs one."
            )
    return int(min(of_ranks))


def verbose(wanted: Any = "auto") -> Any:
    """Return how much ``fit`` and ``evaluate`` shall print: on rank 0 what is wanted, else nothing.

    Parameters
    ----------
    wanted : str or int
        "auto", 0, 1 or 2, as for ``fit``.

    Returns
    -------
    str or int

    Examples
    --------
    >>> import syrtos.keras as hvd
    >>> hvd.init()
    >>> hvd.verbose(2)
    2
    """
    return wanted if _session.topology().rank == 0 else 0
