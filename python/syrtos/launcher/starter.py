"""What a way to start ranks must offer, and what it reports.

One file per way implements `Starter`; the rest of the launcher does not know which one is at work.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

STDOUT, STDERR = "stdout", "stderr"


@dataclass(frozen=True)
class RankCommand:
    """One rank's process.

    Attributes
    ----------
    rank : int
        The rank in the job.
    host : str
        Name of the host on which it runs.
    argv : tuple of str
        The program and its arguments; no shell sees them.
    environment : dict of str to str
        Variables that are set beside those of the launcher.
    cwd : str or None
        Working folder; None is the launcher's.
    extra_fds : tuple of int
        The launcher's descriptors that the process inherits as 3, 4, ...
    ignore_signals : tuple of int
        Signals that are ignored until the program installs its own handler.
    """

    rank: int
    host: str
    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    extra_fds: tuple[int, ...] = ()
    ignore_signals: tuple[int, ...] = ()


class Listener(Protocol):
    """Receives a starter's reports, on the thread of the loop."""

    def on_started(self, rank: int, pid: int) -> None:
        """Note that the rank's program runs."""

    def on_start_failed(self, rank: int, text: str) -> None:
        """Note that the rank's program could not be started; `text` says why."""

    def on_output(self, rank: int, stream: str, data: bytes) -> None:
        """Take what the rank wrote; empty `data` is the end of the stream."""

    def on_exited(self, rank: int, code: int, when: float) -> None:
        """Note the rank's end; `code` is negative for a signal, `when` is CLOCK_MONOTONIC."""

    def on_gone(self, problem: str | None) -> None:
        """Note that nothing of the job is left, or that `problem`; no report follows."""


class Starter(abc.ABC):
    """Starts ranks and ends them, grandchildren included.

    Owned by the job; all methods are called on the thread of its loop.
    """

    @abc.abstractmethod
    def start(self, commands: Sequence[RankCommand]) -> None:
        """Start the ranks; each is reported as started or failed."""

    @abc.abstractmethod
    def send_signal(
        self, number: int, ranks: Collection[int] | None = None, *, whole_group: bool = True
    ) -> None:
        """Send a signal to the running ones among `ranks` (None: all).

        `whole_group` adds the processes that a rank has started.
        """

    @abc.abstractmethod
    def stop(self, term_after: float, kill_after: float) -> None:
        """End what is left: SIGTERM after `term_after` seconds, SIGKILL after `kill_after`.

        A later call can only bring the times nearer. ``on_gone`` follows.
        """

    @abc.abstractmethod
    def pause_output(self, stream: str, paused: bool) -> None:
        """Stop or resume reading the ranks' `stream`, so that the ranks wait for a slow reader."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release everything; kill at once whatever is still there."""
