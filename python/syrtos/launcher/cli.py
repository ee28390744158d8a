"""``syrtosrun``: reads the command line and runs the job."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from syrtos.errors import InvalidRequestError, SyrtosError
from syrtos.launcher.environment import omp_threads
from syrtos.launcher.hosts import Place
from syrtos.launcher.job import JobOptions
from syrtos.launcher.launch import LocalJob, Program, rank_commands
from syrtos.launcher.options import Options, find_program, parse
from syrtos.launcher.output import OutputOptions
from syrtos.launcher.sink import Target

USAGE_ERROR = 2


def main(
    arguments: Sequence[str] | None = None,
    *,
    read: Callable[[Sequence[str]], Options] = parse,
    name: str = "syrtosrun",
) -> int:
    """Run ``syrtosrun`` and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line without the program's name.
    read : callable
        Reads it; for commands with other options.
    name : str
        Of the command, for messages.
    """
    _open_standard_streams()
    try:
        return start(read(sys.argv[1:] if arguments is None else arguments), name)
    except SyrtosError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return USAGE_ERROR if isinstance(error, InvalidRequestError) else 1
    except KeyboardInterrupt:
        return 130


def start(options: Options, name: str) -> int:
    """Do what a command line asks for and return the exit code.

    Parameters
    ----------
    options : Options
        The command line.
    name : str
        Of the command, for messages.

    Raises
    ------
    InvalidRequestError
        More ranks than slots, or no such program.
    """
    if options.check_build:
        return _check_build()
    places = options.places()
    find_program(options.command[0])
    if options.dry_run:
        return _show(options, places)
    return _run(options, places, name)


def _open_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed: else a pipe would take its number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def _check_build() -> int:
    """Print what this installation can do."""
    import importlib

    # By name: the launcher stands below the doctor.
    code = importlib.import_module("syrtos.doctor").main([])
    return code if isinstance(code, int) else 0


def _show(options: Options, places: Sequence[Place]) -> int:
    """Print what would be started."""
    program = Program(tuple(options.command))
    commands = rank_commands(places, program, os.environ, options.settings, "...", 0)
    for command, place in zip(commands, places, strict=True):
        words = [f"{name}={value}" for name, value in command.environment.items()]
        print(
            f"rank {place.rank} on {place.host} "
            f"(local {place.local_rank}/{place.local_size}, "
            f"cross {place.cross_rank}/{place.cross_size}): {shlex.join(command.argv)}"
        )
        if options.verbose:
            print(f"  {shlex.join(words)}")
    return 0


def _run(options: Options, places: Sequence[Place], name: str) -> int:
    job_options = JobOptions(
        abort_on_failure=options.on_failure == "abort",
        output=OutputOptions(
            prefix=options.prefix,
            timestamp=options.timestamp,
            directory=Path(options.output_filename) if options.output_filename else None,
        ),
        verbose=options.verbose,
        name=name,
        handle_signals=threading.current_thread() is threading.main_thread(),
    )
    threads = omp_threads(os.environ, places)
    program = Program(tuple(options.command))
    with LocalJob(places, os.environ) as local:
        job = local.make(options.settings, program, (Target(1), Target(2)), job_options)
        if threads is not None:
            job.say(
                f"OMP_NUM_THREADS={threads} for each of {len(places)} ranks, as there are "
                f"{len(os.sched_getaffinity(0))} cores; set it yourself to choose"
            )
        return job.run().exit_code
