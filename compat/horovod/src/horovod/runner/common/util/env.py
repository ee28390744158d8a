"""Who this process is, by its environment alone."""

from __future__ import annotations

import os

# Prefixes of the launchers' variables, ours first.
_LAUNCHERS = ("HOROVOD_", "OMPI_COMM_WORLD_", "PMI_")


def get_env_rank_and_size() -> tuple[int, int]:
    """Return rank and number of ranks, as a launcher has told them; (0, 1) without one.

    Raises
    ------
    RuntimeError
        Only one of the two variables of a launcher is set.
    """
    for prefix in _LAUNCHERS:
        names = (f"{prefix}RANK", f"{prefix}SIZE")
        values = [os.environ[name] for name in names if name in os.environ]
        if len(values) == 1:
            raise RuntimeError(f"only one of {names[0]} and {names[1]} is set: set both or none.")
        if values:
            return int(values[0]), int(values[1])
    return 0, 1
