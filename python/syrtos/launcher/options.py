"""The command line of ``syrtosrun``, checked: each error is one line that names the wrong value."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from syrtos.errors import InvalidRequestError
from syrtos.launcher.hosts import (
    HostSlots,
    Place,
    assign,
    parse_hosts,
    read_hostfile,
    require_local,
)

LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "fatal", "off")

USAGE = "syrtosrun -np N [-H localhost:N] [options] command [argument ...]"


@dataclass
class Options:
    """What the command line asks for.

    Attributes
    ----------
    command : list of str
        The program of each rank and its arguments.
    num_proc : int
        Number of ranks.
    hosts : list of HostSlots
        Where they run.
    settings : dict of str to str
        Environment variables that stand for options of the ranks.
    """

    command: list[str] = field(default_factory=list)
    num_proc: int = 0
    hosts: list[HostSlots] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    check_build: bool = False
    verbose: bool = False
    output_filename: str | None = None
    timestamp: bool = False
    prefix: bool = True
    on_failure: str = "abort"
    dry_run: bool = False

    def places(self) -> list[Place]:
        """Assign ranks to hosts; InvalidRequestError if they do not fit."""
        return assign(self.hosts, self.num_proc)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidRequestError(f"{message} (see syrtosrun --help)")


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes (1 or more)")
    return int(text)


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number (0 or more)")
    return int(text)


def _real(text: str, meaning: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e8:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of {meaning} (0 or more)")
    return value


def _seconds(text: str) -> float:
    return _real(text, "seconds")


def _some_seconds(text: str) -> float:
    if _real(text, "seconds") == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return float(text)


def _megabytes(text: str) -> float:
    return _real(text, "megabytes")


def _level(text: str) -> str:
    if text.lower() not in LOG_LEVELS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(LOG_LEVELS)}")
    return text.lower()


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        import syrtos

        print(f"syrtosrun {syrtos.__version__}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="syrtosrun",
        usage=USAGE,
        allow_abbrev=False,
        description="Starts N copies of a program as the ranks of one job on this machine.",
    )
    add = parser.add_argument
    add("-v", "--version", action=_ShowVersion, nargs=0, help="print the version")
    add("-cb", "--check-build", action="store_true", help="print what this installation can do")
    add("-np", "--num-proc", type=_count, metavar="N", help="number of processes")
    add("-H", "--hosts", metavar="HOST:SLOTS,...", help="where to start them (this machine)")
    add("-hostfile", "--hostfile", metavar="FILE", help="the same from a file: host slots=n")
    add("--verbose", action="store_true", help="tell what the launcher does")
    add("--dry-run", action="store_true", help="print what would be started, and where")
    add(
        "--on-failure",
        choices=("abort", "continue"),
        default="abort",
        help="end all ranks when one fails (the default), or leave the others alone",
    )
    _add_output(parser)
    _add_settings(parser)
    add("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    add = group.add_argument
    add("--output-filename", metavar="DIR", help="copy output to DIR/rank.<n>/stdout and stderr")
    add(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        dest="timestamp",
        action="store_true",
        help="put the time before each line",
    )
    add(
        "--no-prefix",
        dest="prefix",
        action="store_false",
        help="leave out [rank]<stdout>: before each line",
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings of the ranks")
    add = group.add_argument
    add("--start-timeout", type=_some_seconds, metavar="S", help="limit for all ranks to meet")
    add("--fusion-threshold-mb", type=_megabytes, metavar="MB", help="0 turns fusion off")
    add("--cache-capacity", type=_whole, metavar="N", help="agreements remembered; 0: none")
    add(
        "--timeline-filename",
        metavar="FILE",
        help="record a timeline (Chrome's format); every rank does if {rank} is in the name",
    )
    marks = group.add_mutually_exclusive_group()
    marks.add_argument(
        "--timeline-mark-cycles", action="store_true", default=None, help="mark the cycles in it"
    )
    marks.add_argument(
        "--no-timeline-mark-cycles", dest="timeline_mark_cycles", action="store_false", default=None
    )
    add("--log-level", type=_level, metavar="LEVEL", help=", ".join(LOG_LEVELS))
    stall = group.add_mutually_exclusive_group()
    stall.add_argument("--stall-check", dest="stall_check", action="store_true", default=None)
    stall.add_argument(
        "--no-stall-check", dest="stall_check", action="store_false", help="no stall reports"
    )
    add(
        "--stall-check-warning-time-seconds",
        type=_seconds,
        metavar="S",
        help="report what waits for longer",
    )
    add(
        "--stall-check-shutdown-time-seconds",
        type=_seconds,
        metavar="S",
        help="give up what waits for longer; 0: never",
    )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


#: Option -> variable of the ranks (see syrtos.config), and how its value is written.
SETTINGS: dict[str, tuple[str, Callable[..., str]]] = {
    "start_timeout": ("SYRTOS_START_TIMEOUT", _number),
    "fusion_threshold_mb": ("SYRTOS_FUSION_THRESHOLD", lambda mb: str(round(mb * 2**20))),
    "cache_capacity": ("SYRTOS_CACHE_CAPACITY", str),
    "timeline_filename": ("SYRTOS_TIMELINE", str),
    "timeline_mark_cycles": ("SYRTOS_TIMELINE_MARK_CYCLES", lambda on: "1" if on else "0"),
    "log_level": ("SYRTOS_LOG_LEVEL", str),
    "stall_check": ("SYRTOS_STALL_CHECK_DISABLE", lambda check: "0" if check else "1"),
    "stall_check_warning_time_seconds": ("SYRTOS_STALL_CHECK_TIME_SECONDS", _number),
    "stall_check_shutdown_time_seconds": ("SYRTOS_STALL_SHUTDOWN_TIME_SECONDS", _number),
}


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line.

    Raises
    ------
    InvalidRequestError
        Naming the value that is wrong.
    """
    found = _parser().parse_args(list(arguments))
    if found.check_build:
        return Options(check_build=True)
    command = found.command[1:] if found.command[:1] == ["--"] else found.command
    if found.num_proc is None:
        raise InvalidRequestError("-np is missing: say how many processes to start")
    if not command:
        raise InvalidRequestError("no command: say which program to start")
    _reject_host_as_command(command[0], found.hosts)
    settings = {
        variable: write(getattr(found, option))
        for option, (variable, write) in SETTINGS.items()
        if getattr(found, option) is not None
    }
    return Options(
        command=command,
        num_proc=found.num_proc,
        hosts=choose_hosts(found.hosts, found.hostfile, found.num_proc),
        settings=settings,
        verbose=found.verbose,
        output_filename=found.output_filename,
        timestamp=found.timestamp,
        prefix=found.prefix,
        on_failure=found.on_failure,
        dry_run=found.dry_run,
    )


def choose_hosts(
    hosts: str | None, hostfile: str | os.PathLike[str] | None, count: int
) -> list[HostSlots]:
    """Return the hosts that two options ask for.

    Parameters
    ----------
    hosts, hostfile : str or path, optional
        Values of ``-H`` and ``--hostfile``.
    count : int
        Number of ranks, all on this machine if there is neither.

    Raises
    ------
    InvalidRequestError
        Both are given, one cannot be read, or a host is not this machine.
    """
    if hosts is not None and hostfile is not None:
        raise InvalidRequestError("-H and --hostfile exclude each other: give one")
    table = [HostSlots("localhost", count)]
    if hostfile is not None:
        table = read_hostfile(Path(hostfile))
    elif hosts is not None:
        table = parse_hosts(hosts)
    require_local(table)
    return table


def _reject_host_as_command(word: str, hosts: str | None) -> None:
    """Notice a space between hosts, which makes the second one look like the program."""
    if hosts is not None and re.fullmatch(r"\[?[\w.:-]+\]?:[0-9]+,?", word):
        joined = f"{hosts.rstrip(',')},{word.rstrip(',')}"
        raise InvalidRequestError(
            f"{word!r} is not a command; if it is a host, leave out the space: -H {joined}"
        )


def find_program(name: str, path: str | None = None) -> str:
    """Return the file that runs for `name`, found as execvp does.

    Parameters
    ----------
    name : str
        Program, with or without folder.
    path : str, optional
        Folders to search; PATH by default.

    Raises
    ------
    InvalidRequestError
        If there is no such program; the text names host, program and folders.
    """
    host = os.uname().nodename
    if "/" in name:
        candidates, searched = [name], ""
    else:
        path = os.environ.get("PATH", os.defpath) if path is None else path
        candidates = [f"{folder or '.'}/{name}" for folder in path.split(os.pathsep)]
        searched = f"; searched PATH={path}"
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):  # noqa: PTH113
            return candidate
    present = [candidate for candidate in candidates if Path(candidate).exists()]
    if present:
        raise InvalidRequestError(f"command on host {host} is not executable: {present[0]}")
    raise InvalidRequestError(f"command not found on host {host}: {name}{searched}")
