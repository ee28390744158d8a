"""Who this process is among the ranks, as the launcher's environment variables tell.

Syrtos' own variables win; without them ``TF_CONFIG`` counts.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from syrtos import _contract, _tf_config
from syrtos.errors import InvalidRequestError

__all__ = ["read"]

#: Permits a world of one although another launcher's variables speak of several processes.
ALLOW_SINGLE = "SYRTOS_ALLOW_SINGLE"

# Other starters: (name, variable with the number of processes, variable with our number).
_FOREIGN = (
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI (MPICH or Intel MPI)", "PMI_SIZE", "PMI_RANK"),
    ("srun (Slurm)", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("torchrun", "WORLD_SIZE", "RANK"),
)
_START = "Start the script with `syrtosrun -np N python script.py`"


def _number(environ: Mapping[str, str], name: str, low: int, high: int | None = None) -> int:
    text = environ[name]
    limit = f"{low} or more" if high is None else f"from {low} to {high}"
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if value < low or (high is not None and value > high):
        raise InvalidRequestError(f"{name}={text!r}: must be a whole number {limit}.")
    return value


def _read_numbers(environ: Mapping[str, str]) -> dict[str, int]:
    """Read the six numbers; the caller has checked that they are there."""
    size = _number(environ, _contract.SIZE, 1)
    values = {"size": size, "rank": _number(environ, _contract.RANK, 0, size - 1)}
    for kind in ("LOCAL", "CROSS"):
        size_name, rank_name = f"SYRTOS_{kind}_SIZE", f"SYRTOS_{kind}_RANK"
        if size_name not in environ and rank_name not in environ:
            continue  # a world of one
        part = _number(environ, size_name, 1, size)
        values[f"{kind.lower()}_size"] = part
        values[f"{kind.lower()}_rank"] = _number(environ, rank_name, 0, part - 1)
    return values


def _missing(environ: Mapping[str, str], size: int) -> list[str]:
    needed = [_contract.RANK, _contract.SIZE]
    if size > 1:
        needed = [*_contract.TOPOLOGY, _contract.STORE, _contract.JOB_ID]
        if environ.get(_contract.CROSS_SIZE, "1") != "1":
            needed += [_contract.HOST, _contract.ADDRESS]
    return [name for name in needed if not environ.get(name)]


def _refuse_foreign(environ: Mapping[str, str]) -> None:
    """Raise if another launcher started several processes: never silently a world of one."""
    if environ.get(ALLOW_SINGLE) == "1":
        return
    horovod = [f"HOROVOD_{kind}" for kind in ("RANK", "SIZE") if f"HOROVOD_{kind}" in environ]
    if horovod and environ.get("HOROVOD_SIZE") != "1":
        found = ", ".join(f"{name}={environ[name]!r}" for name in horovod)
        raise InvalidRequestError(
            f"{found} is set but {_contract.SIZE} is not, so the other ranks cannot be found. "
            f"{_START}, which sets both; or set {ALLOW_SINGLE}=1 to run as a world of one."
        )
    for name, size_name, rank_name in _FOREIGN:
        size = environ.get(size_name, "1")
        if size_name in environ and rank_name in environ and size != "1":
            raise InvalidRequestError(
                f"{size_name}={size!r} and {rank_name}={environ[rank_name]!r} say that {name} "
                "started several processes, but this version of Syrtos cannot find the others "
                f"through it. {_START}; or set {ALLOW_SINGLE}=1 to run as a world of one."
            )


def read(environ: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Return the fields of ``Settings`` that the launcher decides, and the store's ``host:port``.

    Raises
    ------
    InvalidRequestError
        A part of the contract is missing or wrong; nothing is guessed.
    """
    given = [name for name in _contract.TOPOLOGY if name in environ]
    if not given and not environ.get(_contract.STORE):
        cluster = None if environ.get(ALLOW_SINGLE) == "1" else _tf_config.read(environ)
        if cluster is not None:
            return cluster
        _refuse_foreign(environ)
        return {}, ""
    size = _number(environ, _contract.SIZE, 1) if _contract.SIZE in environ else 2
    missing = _missing(environ, size)
    if missing:
        found = ", ".join(f"{name}={environ[name]!r}" for name in given) or _contract.STORE
        raise InvalidRequestError(
            f"the launch is incomplete: {found} is set but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not. {_START}, which sets all of them; or "
            f"unset {', '.join(given) or _contract.STORE} to run as a world of one."
        )
    values: dict[str, Any] = dict(_read_numbers(environ))
    values["host"] = environ.get(_contract.HOST) or socket.gethostname()
    values["address"] = environ.get(_contract.ADDRESS) or "127.0.0.1"
    values["job_id"] = environ.get(_contract.JOB_ID, "")
    return values, environ.get(_contract.STORE, "") if size > 1 else ""
