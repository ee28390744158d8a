"""What became of each rank of ``syrtos.run``, and the exception that tells it."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from typing import Any, NoReturn

from syrtos.errors import CollectiveTimeout, SyrtosError
from syrtos.launcher.job import JobResult, RankState
from syrtos.launcher.starter import STDERR


class RemoteTraceback(Exception):
    """The traceback of the rank that an exception comes from; found as its ``__cause__``."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f"\n{self._text}"


@dataclass
class Failure:
    """Why a rank returned nothing.

    Attributes
    ----------
    rank : int
        The rank.
    summary : str
        One line that names the rank.
    detail : str
        Traceback or last lines on stderr; may be empty.
    exception : BaseException or None
        What it raised, if that could be brought here.
    when : float
        CLOCK_MONOTONIC.
    consequence : bool
        Whether it only failed because another rank did.
    """

    rank: int
    summary: str
    detail: str
    exception: BaseException | None
    when: float
    consequence: bool


def read_outcome(fd: int, state: RankState) -> tuple[Any, Failure | None]:
    """Return a rank's value, or why there is none.

    Parameters
    ----------
    fd : int
        The file in memory that the rank wrote.
    state : RankState
        How its process ended.
    """
    with open(fd, "rb", closefd=False) as file:  # noqa: PTH123
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        try:
            head = pickle.load(file)
            if size - file.tell() < head["length"]:
                raise EOFError
        except (EOFError, pickle.UnpicklingError):
            return None, _without_outcome(state)
        if head["kind"] == "error":
            return None, _from_error(file, head, state)
        if head["kind"] == "exit" or state.failed:
            return None, _without_outcome(state, returned=head["kind"] == "value")
        try:
            return pickle.load(file), None
        except Exception as error:
            text = f"{_name(state)}: its result cannot be read here: {error!r}"
            return None, Failure(state.command.rank, text, "", None, head["time"], False)


def _name(state: RankState) -> str:
    return f"rank {state.command.rank} on {state.command.host}"


def _from_error(file: Any, head: dict[str, Any], state: RankState) -> Failure:
    exception = None
    if head["length"]:
        try:
            exception = pickle.load(file)
        except Exception:
            exception = None  # its text remains
    summary = f"{_name(state)} raised {head['type']}: {head['text']}"
    if not isinstance(exception, BaseException):
        exception = None
    return Failure(
        rank=state.command.rank,
        summary=summary,
        detail=head["traceback"],
        exception=exception,
        when=head["time"],
        consequence=head["recoverable"],
    )


def _without_outcome(state: RankState, returned: bool = False) -> Failure:
    if state.code == 0:
        summary = f"{state.describe()} and returned nothing"
    elif returned:
        summary = f"{state.describe()}, after its function had returned"
    else:
        summary = state.describe()
    if state.stopped:
        summary = f"{_name(state)} was stopped by the launcher"
    tail = state.streams[STDERR].tail[-20:]
    detail = "\n".join(["its last lines on stderr:", *tail]) if tail and not state.stopped else ""
    return Failure(
        rank=state.command.rank,
        summary=summary,
        detail=detail,
        exception=None,
        when=state.ended,
        consequence=state.stopped,
    )


def raise_first(failures: list[Failure]) -> NoReturn:
    """Raise the first cause; the other failures are listed in the exception's own cause."""
    first, *others = sorted(failures, key=lambda failure: (failure.consequence, failure.when))
    lines = [first.summary, first.detail] if first.detail else [first.summary]
    lines += [f"also: {other.summary}" for other in others]
    if first.exception is None:
        raise SyrtosError("\n".join(lines))
    if hasattr(first.exception, "add_note"):  # Python 3.11
        first.exception.add_note(f"(on rank {first.rank} of syrtos.run)")
    raise first.exception from RemoteTraceback("\n".join(lines))


def raise_timeout(result: JobResult, unfinished: list[int], timeout: float) -> NoReturn:
    """Raise the exception for a job that took too long, with the stacks of its ranks."""
    ranks = ", ".join(str(rank) for rank in unfinished)
    plural = "s" if len(unfinished) > 1 else ""
    lines = [f"syrtos.run: rank{plural} {ranks} did not finish within {timeout:g} s"]
    for rank in unfinished:
        dump = result.ranks[rank].streams[STDERR].captured or b""
        text = dump.decode(errors="backslashreplace").rstrip()
        lines.append(f"stacks of rank {rank}:\n{text or '(it did not answer)'}")
    raise CollectiveTimeout("\n".join(lines))
