"""The options of ``horovodrun``, with Horovod's spellings, destinations and defaults."""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import horovod
from syrtos.errors import InvalidRequestError

__all__ = ["make_parser"]

LOG_LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidRequestError(f"{message} (see horovodrun --help)")


class _Interfaces(argparse.Action):
    """Collects names of network interfaces from all options for them."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if option_string == "--network-interface" and "," in values:
            warnings.warn(
                "several names in --network-interface are deprecated: use --network-interfaces",
                DeprecationWarning,
                stacklevel=2,
            )
        known = getattr(namespace, self.dest) or set()
        setattr(namespace, self.dest, known | set(values.split(",")))


def _at_least(low: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {low} or more")
        return value

    return number


def _real(low: float, high: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            limits = f"of {low:g} or more" if math.isinf(high) else f"from {low:g} to {high:g}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a number {limits}")
        return value

    return number


def _switch(group: Any, dest: str, on: Sequence[str], off: Sequence[str], text: str) -> None:
    """Add two options that exclude each other and set `dest` to True and False."""
    pair = group.add_mutually_exclusive_group()
    pair.add_argument(*on, dest=dest, action="store_true", default=None, help=text)
    pair.add_argument(*off, dest=dest, action="store_false", default=None, help=argparse.SUPPRESS)


_NONE = "accepted without effect"
_COUNT = _at_least(0)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; wrong values raise ``InvalidRequestError``."""
    parser = _Parser(
        prog="horovodrun",
        usage="horovodrun -np N [-H localhost:N] [options] command [argument ...]",
        description="Starts N copies of a program as the ranks of one job, on Syrtos.",
    )
    add = parser.add_argument
    add("-v", "--version", action="version", version=horovod.__version__)
    add("-cb", "--check-build", action="store_true", help="print what this installation can do")
    add("-np", "--num-proc", dest="num_proc", type=_at_least(1), help="number of processes")
    add("--start-timeout", type=_at_least(1), help="limit for all ranks to meet, in seconds")
    add("--output-filename", help="copy output to OUTPUT_FILENAME/rank.<n>/stdout and stderr")
    add("--verbose", action="store_true", help="tell what the launcher does")
    add("--config-file", help="YAML file with values for options; those given here win")
    add("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    _add_hosts(parser)
    _add_elastic(parser)
    _add_tuning(parser)
    _add_reports(parser)
    _add_library(parser)
    return parser


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("hosts")
    one = group.add_mutually_exclusive_group()
    one.add_argument("-H", "--hosts", help="where to start them, as host:slots,...")
    one.add_argument("-hostfile", "--hostfile", help="the same from a file: host slots=n")
    one.add_argument("--host-discovery-script", help="refused: elastic jobs are not supported")
    add = group.add_argument
    add("-p", "--ssh-port", dest="ssh_port", type=_COUNT, help=_NONE)
    add("-i", "--ssh-identity-file", dest="ssh_identity_file", help=_NONE)
    add("--network-interfaces", dest="nics", action=_Interfaces, help=_NONE)
    add("--network-interface", dest="nics", action=_Interfaces, help=_NONE)
    add("--disable-cache", action="store_true", help=_NONE)


def _add_elastic(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("elastic jobs (not supported by this version)")
    add = group.add_argument
    same = "must equal the number of processes"
    add("--min-np", "--min-num-proc", dest="min_num_proc", type=_at_least(1), help=same)
    add("--max-np", "--max-num-proc", dest="max_num_proc", type=_at_least(1), help=same)
    add("--slots-per-host", dest="slots", type=_COUNT, help="refused")
    add("--elastic-timeout", type=_COUNT, help="refused")
    add("--reset-limit", type=_COUNT, help="refused")
    add(
        "--blacklist-cooldown-range",
        dest="cooldown_range",
        type=_COUNT,
        nargs=2,
        help="refused",
    )


def _add_tuning(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tuning")
    add = group.add_argument
    add("--fusion-threshold-mb", type=_real(0, 1e8), help="0 turns fusion off")
    add("--cycle-time-ms", type=_real(0, math.inf), help=_NONE)
    add("--cache-capacity", type=_COUNT, help="agreements remembered; 0: none")
    for dest in ("hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce", "autotune"):
        option = dest.replace("_", "-")
        _switch(group, dest, [f"--{option}"], [f"--no-{option}"], _NONE)
    add("--autotune-log-file", help=_NONE)
    for name in ("warmup-samples", "steps-per-sample", "bayes-opt-max-samples"):
        add(f"--autotune-{name}", type=_COUNT, help=_NONE)
    add("--autotune-gaussian-process-noise", type=_real(0, 1), help=_NONE)


def _add_reports(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("timeline, stalls and log")
    add = group.add_argument
    add("--timeline-filename", help="record a timeline (Chrome's format)")
    name = "timeline-mark-cycles"
    _switch(group, "timeline_mark_cycles", [f"--{name}"], [f"--no-{name}"], "mark the cycles in it")
    _switch(group, "no_stall_check", ["--no-stall-check"], ["--stall-check"], "no stall reports")
    add("--stall-check-warning-time-seconds", type=_COUNT, help="report what waits for longer")
    add("--stall-check-shutdown-time-seconds", type=_COUNT, help="give up what waits for longer")
    add("--log-level", type=str.upper, choices=LOG_LEVELS, help="of the ranks")
    dest = "log_with_timestamp"
    _switch(group, dest, ["--log-with-timestamp"], ["--log-without-timestamp"], _NONE)
    _switch(group, dest, ["--no-log-hide-timestamp"], ["--log-hide-timestamp"], _NONE)
    add(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        dest="prefix_output_with_timestamp",
        action="store_true",
        help="put the time before each line",
    )


def _add_library(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("library")
    add = group.add_argument
    _switch(
        group,
        "mpi_threads_disable",
        ["--mpi-threads-disable"],
        ["--no-mpi-threads-disable"],
        _NONE,
    )
    add("--mpi-args", help=_NONE)
    add("--tcp", dest="tcp_flag", action="store_true", help=_NONE)
    add("--binding-args", help=_NONE)
    add("--num-nccl-streams", type=_COUNT, help=_NONE)
    add("--thread-affinity", type=_COUNT, help=_NONE)
    add("--gloo-timeout-seconds", type=_at_least(1), help="a rank silent for longer is lost")
    controller = group.add_mutually_exclusive_group()
    for name, text in (("gloo", "the default"), ("mpi", _NONE), ("jsrun", _NONE)):
        controller.add_argument(
            f"--{name}", dest=f"use_{name}", action="store_true", default=None, help=text
        )
