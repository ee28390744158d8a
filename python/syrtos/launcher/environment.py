"""The environment of each rank."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from syrtos import _contract
from syrtos.launcher.hosts import Place

#: All ranks are on this machine.
LOOPBACK = "127.0.0.1"


def new_job_id() -> str:
    """Return a name for a job that nobody can guess."""
    return os.urandom(16).hex()


def job_variable(job_id: str) -> tuple[str, str]:
    """Return name and value of the variable by which the job's processes are known."""
    return _contract.JOB_ID, job_id


def rank_environment(place: Place, store_port: int, job_id: str) -> dict[str, str]:
    """Return what the launcher tells one rank.

    Parameters
    ----------
    place : Place
        Where the rank runs.
    store_port : int
        Port of the rendezvous store on this machine.
    job_id : str
        Prefix of the store's keys.
    """
    numbers = (
        place.rank,
        place.size,
        place.local_rank,
        place.local_size,
        place.cross_rank,
        place.cross_size,
    )
    environment = {
        _contract.STORE: f"{LOOPBACK}:{store_port}",
        _contract.JOB_ID: job_id,
        _contract.HOST: place.host,
        _contract.ADDRESS: LOOPBACK,
        "PYTHONUNBUFFERED": "1",
    }
    for name, number in zip(_contract.TOPOLOGY, numbers, strict=True):
        environment[name] = str(number)
        environment[name.replace("SYRTOS_", "HOROVOD_", 1)] = str(number)
    return environment


def omp_threads(environment: Mapping[str, str], places: Sequence[Place]) -> str | None:
    """Return the value for OMP_NUM_THREADS, or None to leave it alone.

    Ranks that each start a thread per core slow each other down.

    Parameters
    ----------
    environment : mapping
        The ranks' environment; a value found there is kept.
    places : sequence of Place
        The ranks, all on this machine whatever their hosts are called.
    """
    if "OMP_NUM_THREADS" in environment or len(places) < 2:
        return None
    return str(max(1, len(os.sched_getaffinity(0)) // len(places)))
