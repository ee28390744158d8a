"""``horovodrun``: Horovod's command line, carried out by Syrtos' launcher."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import horovod
from horovod.runner._config_file import FLAGS, read_config_file
from horovod.runner._parser import make_parser
from syrtos.errors import InvalidRequestError, SyrtosError
from syrtos.launcher import cli
from syrtos.launcher.options import SETTINGS, Options, choose_hosts
from syrtos.launcher.outcome import RemoteTraceback

__all__ = ["check_build", "parse_args", "run_commandline"]

#: Argument -> how a user writes it, of what has no effect here.
NO_EFFECT = {
    "autotune": "--autotune",
    "autotune_bayes_opt_max_samples": "--autotune-bayes-opt-max-samples",
    "autotune_gaussian_process_noise": "--autotune-gaussian-process-noise",
    "autotune_log_file": "--autotune-log-file",
    "autotune_steps_per_sample": "--autotune-steps-per-sample",
    "autotune_warmup_samples": "--autotune-warmup-samples",
    "binding_args": "--binding-args",
    "cycle_time_ms": "--cycle-time-ms",
    "disable_cache": "--disable-cache",
    "hierarchical_allgather": "--hierarchical-allgather",
    "hierarchical_allreduce": "--hierarchical-allreduce",
    "mpi_args": "--mpi-args",
    "mpi_threads_disable": "--mpi-threads-disable",
    "nics": "--network-interfaces",
    "num_nccl_streams": "--num-nccl-streams",
    "ssh_identity_file": "--ssh-identity-file",
    "ssh_port": "--ssh-port",
    "tcp_flag": "--tcp",
    "thread_affinity": "--thread-affinity",
    "torus_allreduce": "--torus-allreduce",
    "use_jsrun": "--jsrun",
    "use_mpi": "--mpi",
}
#: The same of what would make the job elastic.
ELASTIC = {
    "host_discovery_script": "--host-discovery-script",
    "slots": "--slots-per-host",
    "elastic_timeout": "--elastic-timeout",
    "reset_limit": "--reset-limit",
    "cooldown_range": "--blacklist-cooldown-range",
}
#: The same of what is allowed if it says that the number of processes stays the same.
BOUNDS = {"min_num_proc": "--min-np", "max_num_proc": "--max-np"}
#: Argument -> variable of the ranks, of what Syrtos' own launcher has no option for.
MORE_SETTINGS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "timeline_mark_cycles": ("SYRTOS_TIMELINE_MARK_CYCLES", lambda on: str(int(bool(on)))),
    "no_stall_check": ("SYRTOS_STALL_CHECK_DISABLE", lambda on: str(int(bool(on)))),
    "gloo_timeout_seconds": ("SYRTOS_PEER_TIMEOUT", str),
}


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line and the file that it names.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line without the program's name; that of this process by default.

    Raises
    ------
    InvalidRequestError
        A value is wrong; the text names it.
    """
    parser = make_parser()
    args = parser.parse_args(arguments)
    if args.config_file:
        _add_file(parser, args)
    if args.command[:1] == ["--"]:
        del args.command[0]
    args.run_func = args.executable = None
    return args


def _add_file(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Take over what the file says and the command line does not."""
    has_controller = any(vars(args)[f"use_{name}"] for name in ("gloo", "mpi", "jsrun"))
    for name, value in read_config_file(Path(args.config_file)).items():
        if getattr(args, name) is not None or (name.startswith("use_") and has_controller):
            continue
        if name not in FLAGS and not name.startswith("use_"):
            # The option's own rules check it, and its own error tells what is wrong.
            option = f"--{name.replace('_', '-')}"
            try:
                value = getattr(parser.parse_args([option, str(value)]), name)
            except InvalidRequestError as error:
                raise InvalidRequestError(f"--config-file {args.config_file}: {error}") from None
        setattr(args, name, value)


def _is_given(args: Any, name: str) -> bool:
    value = getattr(args, name, None)
    return value is not None and value is not False


def _words(args: Any, options: Mapping[str, str]) -> list[str]:
    """Return those that are given, as the caller has written them: options or arguments."""
    is_function = getattr(args, "run_func", None) is not None
    return [
        name if is_function else option for name, option in options.items() if _is_given(args, name)
    ]


def _warnings(args: Any) -> str:
    """Return a line that names what has no effect; empty if there is nothing."""
    words = _words(args, {**NO_EFFECT, **BOUNDS})
    if getattr(args, "log_with_timestamp", None) is not None:
        words.append("--log-with" + ("" if args.log_with_timestamp else "out") + "-timestamp")
    return f"accepted without effect in Syrtos: {', '.join(words)}" if words else ""


def _refuse_elastic(args: Any) -> None:
    changing = {
        name: option
        for name, option in BOUNDS.items()
        if getattr(args, name, None) not in (None, args.num_proc)
    }
    words = _words(args, {**ELASTIC, **changing})
    if words:
        raise InvalidRequestError(
            f"{', '.join(words)}: elastic jobs are not supported by this version of Syrtos. The "
            f"number of processes stays what it is at the start, here {args.num_proc}; a minimum "
            "and a maximum must equal it. Name the hosts by -H or -hostfile."
        )


def _settings(args: Any) -> dict[str, str]:
    return {
        variable: write(getattr(args, name))
        for name, (variable, write) in {**SETTINGS, **MORE_SETTINGS}.items()
        if getattr(args, name, None) is not None
    }


def to_options(args: Any) -> Options:
    """Translate Horovod's arguments into those of Syrtos' launcher.

    Parameters
    ----------
    args : object
        Has them as attributes; those that it does not have are as if not given.

    Raises
    ------
    InvalidRequestError
        Something is missing, wrong or not supported.
    """
    if getattr(args, "num_proc", None) is None:
        raise InvalidRequestError("-np is missing: say how many processes to start")
    command = list(getattr(args, "command", None) or [])
    if not command and getattr(args, "run_func", None) is None:
        raise InvalidRequestError("no command: say which program to start")
    _refuse_elastic(args)
    return Options(
        command=command,
        num_proc=args.num_proc,
        hosts=choose_hosts(
            getattr(args, "hosts", None), getattr(args, "hostfile", None), args.num_proc
        ),
        settings=_settings(args),
        verbose=bool(getattr(args, "verbose", None)),
        output_filename=getattr(args, "output_filename", None),
        timestamp=bool(getattr(args, "prefix_output_with_timestamp", None)),
    )


def check_build(verbose: bool = False) -> str:
    """Return what is there, as Horovod lays it out.

    Parameters
    ----------
    verbose : bool
        Show why something is missing.
    """
    from horovod.common import util

    def box(is_there: object) -> str:
        return f"    [{'X' if is_there else ' '}]"

    gloo = util.gloo_built(verbose)
    lines = [
        f"Horovod v{horovod.__version__} (Syrtos):",
        "",
        "Available Frameworks:",
        f"{box(util.extension_available('tensorflow', verbose))} TensorFlow",
        f"{box(util.extension_available('torch', verbose))} PyTorch",
        f"{box(False)} MXNet",
        "",
        "Available Controllers:",
        f"{box(util.mpi_built())} MPI",
        f"{box(gloo)} Gloo",
        "",
        "Available Tensor Operations:",
        f"{box(util.nccl_built())} NCCL",
        f"{box(util.ddl_built())} DDL",
        f"{box(util.ccl_built())} CCL",
        f"{box(util.mpi_built())} MPI",
        f"{box(gloo)} Gloo",
    ]
    return "\n".join(lines)


def _run(args: Any) -> list[Any] | None:
    """Run a job that is described by attributes, as `horovod.run` and tests do.

    Returns
    -------
    list or None
        The results of ``args.run_func``; None if there is only ``args.command``.

    Raises
    ------
    RuntimeError
        A rank failed.
    InvalidRequestError
        An argument is wrong.
    """
    options = to_options(args)
    text = _warnings(args)
    if text:
        warnings.warn(f"horovod.run: {text}", stacklevel=3)
    if getattr(args, "run_func", None) is not None:
        return _run_function(args, options)
    code = cli.start(options, "horovodrun")
    if code:
        raise RuntimeError(f"{_FIRST_WORDS}: the job ended with exit code {code}.")
    return None


#: Scripts look for these words of Horovod's.
_FIRST_WORDS = "Horovod detected that one or more processes exited with non-zero status"


def _run_function(args: Any, options: Options) -> list[Any]:
    import syrtos

    try:
        return syrtos.run(
            args.run_func,
            num_proc=options.num_proc,
            hosts=getattr(args, "hosts", None),
            hostfile=getattr(args, "hostfile", None),
            output_filename=options.output_filename,
            verbose=2 if options.verbose else 0,
            executable=getattr(args, "executable", None),
            env=options.settings,
        )
    except Exception as error:
        is_of_rank = isinstance(error.__cause__, RemoteTraceback)
        if not is_of_rank and type(error) is not SyrtosError:
            raise  # nothing was started
        what = f"{type(error).__name__}: {error}" if is_of_rank else str(error)
        raise RuntimeError(f"{_FIRST_WORDS}: {what}") from error


def _read(arguments: Sequence[str]) -> Options:
    args = parse_args(arguments)
    if args.check_build:
        print(check_build(args.verbose))
        sys.exit(0)
    options = to_options(args)
    text = _warnings(args)
    if text:
        print(f"horovodrun: {text}", file=sys.stderr)
    return options


def run_commandline() -> int:
    """Run ``horovodrun`` and return its exit code."""
    return cli.main(read=_read, name="horovodrun")


if __name__ == "__main__":
    sys.exit(run_commandline())
