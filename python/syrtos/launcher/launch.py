"""Puts a local job together: the store, the ranks' environment, the guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from syrtos.launcher import store
from syrtos.launcher.environment import job_variable, new_job_id, omp_threads, rank_environment
from syrtos.launcher.hosts import Place
from syrtos.launcher.job import Job, JobOptions
from syrtos.launcher.local import LocalStarter
from syrtos.launcher.sink import Target
from syrtos.launcher.starter import RankCommand


@dataclass(frozen=True)
class Program:
    """What each rank runs.

    Attributes
    ----------
    argv : tuple of str
        The program and its arguments.
    extra_fds : callable, optional
        Gives the descriptors that a rank inherits as 3, 4, ...
    ignore_signals : tuple of int
        Signals that are ignored until the program handles them.
    """

    argv: tuple[str, ...]
    extra_fds: Callable[[int], tuple[int, ...]] = lambda rank: ()
    ignore_signals: tuple[int, ...] = ()


def rank_commands(
    places: Sequence[Place],
    program: Program,
    environment: Mapping[str, str],
    settings: Mapping[str, str],
    job_id: str,
    store_port: int,
) -> list[RankCommand]:
    """Return the command of each rank.

    Parameters
    ----------
    places : sequence of Place
        One a rank.
    program : Program
        What to run.
    environment : mapping
        What the ranks' environment is going to be but for the additions.
    settings : mapping
        Variables to add.
    job_id, store_port : str, int
        Of the job.
    """
    added = dict(settings)
    threads = omp_threads(environment, places)
    if threads is not None:
        added["OMP_NUM_THREADS"] = threads
    return [
        RankCommand(
            rank=place.rank,
            host=place.host,
            argv=program.argv,
            environment={**added, **rank_environment(place, store_port, job_id)},
            extra_fds=program.extra_fds(place.rank),
            ignore_signals=program.ignore_signals,
        )
        for place in places
    ]


class LocalJob:
    """A job on this machine and the store that it meets at; a context manager.

    Parameters
    ----------
    places : sequence of Place
        One a rank.
    environment : mapping
        The ranks' environment, but for what the launcher adds.
    """

    def __init__(self, places: Sequence[Place], environment: Mapping[str, str]) -> None:
        self._places = places
        self._environment = environment
        self._job_id = new_job_id()
        self._store = store.open_store()

    def __enter__(self) -> LocalJob:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._store.close()

    def make(
        self,
        settings: Mapping[str, str],
        program: Program,
        targets: tuple[Target, Target],
        options: JobOptions,
    ) -> Job:
        """Return the job, ready to run; only the guard is started.

        Parameters
        ----------
        settings : mapping
            Variables to add to the ranks' environment.
        program : Program
            What each rank runs.
        targets : tuple of two Target
            Where stdout and stderr go.
        options : JobOptions
            How the job behaves.
        """
        commands = rank_commands(
            self._places,
            program,
            self._environment,
            settings,
            self._job_id,
            self._store.port,
        )
        return Job(
            commands,
            lambda loop, listener: LocalStarter(
                loop, listener, job_variable(self._job_id), self._environment
            ),
            targets,
            options,
        )
